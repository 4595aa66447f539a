"""Metrics, traces and logs of the daemon. Nothing in this package changes any state."""
