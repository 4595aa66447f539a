"""Runs health checks on nodes and among nodes."""
