"""Redfish events: subscriptions, the stream of server-sent events, and their parsing."""
