"""Cumulus Linux over NVUE's REST API."""
