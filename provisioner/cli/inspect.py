"""`provisioner inspect`: the inventory of any Redfish service."""

from __future__ import annotations


def inspect(url: str) -> None:
    """Print the inventory of a Redfish service."""
