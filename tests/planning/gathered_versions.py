"""Versions of a fleet, of whole inventories in place of the rows that hold them."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.inventory import Inventory, list_versions
from provisioner.planning.campaigns.fleet_fields import FleetVersions


def gather_versions(inventories: Mapping[str, Inventory]) -> FleetVersions:
    listed = {name: list_versions(inventory) for name, inventory in inventories.items()}
    digests = {name: repr(versions) for name, versions in listed.items()}
    return FleetVersions(digests, {digests[name]: listed[name] for name in listed})
