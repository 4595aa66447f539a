"""Loopback addresses: the one place where a login or a journal may go over plain HTTP."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or an IP address is this machine's own; no name is looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
