"""`provisioner plan`: the inventory of any Redfish service."""

from __future__ import annotations


def plan(inventory: str) -> None:
    """Print the plan."""
