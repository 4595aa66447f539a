"""Names of interfaces and addresses, the same for what we write to a NetBox and read from it."""

from __future__ import annotations

import ipaddress


def interface_key(device: str, name: str) -> str:
    """The key of an interface."""
    return f"{device}/{name}"


def address_of(text: str) -> str:
    """An address with its prefix length as NetBox writes it; a host's own if none is given.

    "" for what is no address.
    """
    try:
        return str(ipaddress.ip_interface(text.partition("%")[0])) if text else ""
    except ValueError:
        return ""
