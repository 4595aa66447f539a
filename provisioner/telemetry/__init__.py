"""Metrics, traces and logs: what the daemon tells of itself. Law: it changes nothing."""
