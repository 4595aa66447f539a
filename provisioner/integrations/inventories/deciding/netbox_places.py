"""Keys of interfaces and addresses, in one form for writing to a NetBox and reading from it."""

from __future__ import annotations

import ipaddress


def format_interface_key(device: str, name: str) -> str:
    """Return the key of an interface."""
    return f"{device}/{name}"


def normalize_address(text: str) -> str:
    """Return an address with its prefix length as NetBox writes it; a single host without one.

    Returns "" for a text that is no address.
    """
    try:
        return str(ipaddress.ip_interface(text.partition("%")[0])) if text else ""
    except ValueError:
        return ""
