"""A host's rails as its operating system configures them: address, frames, routes, source rules.

Each rail has a /31 to its leaf. A packet from a rail's address must leave by that rail, wherever it
goes: a table of its own for each rail, and a rule that leads every packet from its address there.
Without them the host sends to other leaves' rails by its default route, over management. Traffic
that is not bound to an address goes to its own rail's network where the site names one per rail.
source: NVIDIA Spectrum-X reference architecture 1.3, host networking; RFC 3021 for /31.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.base import Record
from provisioner.model.inventory import Inventory
from provisioner.model.location import find_host_end
from provisioner.model.node import Node
from provisioner.settings.fabric import FabricSettings

TABLE_FIRST = 100  # of rail 0; the kernel's own tables are 253 to 255
PRIORITY_FIRST = 3000  # the kernel has 1000 for VRF devices and 32766 for the main table


class RailLink(Record):
    """One rail of one host."""

    rail: int
    mac: str
    address: str  # with prefix length, "172.0.0.0/31"
    gateway: str  # the leaf's end
    table: int
    priority: int
    networks: tuple[str, ...]  # of all rails: reached from this rail's address by its leaf
    own_networks: tuple[str, ...]  # of this rail: reached from any address by its leaf
    mtu: int


def list_rail_links(
    node: Node, inventory: Inventory, settings: FabricSettings
) -> tuple[RailLink, ...]:
    """Return the node's rails that have a card with a MAC address and a planned address."""
    macs = {d.slot: d.mac for d in inventory.devices if d.mac}
    links = []
    for port in sorted(node.ports, key=lambda p: (p.rail, p.nic_slot)):
        mac = macs.get(port.nic_slot)
        end = find_host_end(port.address)
        if port.rail < 0 or mac is None or end is None:
            continue
        same_version = [n for n in settings.rail_networks if (":" in n) == (end.version == 6)]
        per_rail = len(same_version) > port.rail and len(same_version) > 1
        links.append(
            RailLink(
                rail=port.rail,
                mac=mac,
                address=str(end),
                gateway=port.address.partition("/")[0],
                table=TABLE_FIRST + port.rail,
                priority=PRIORITY_FIRST + port.rail,
                networks=tuple(same_version),
                own_networks=(same_version[port.rail],) if per_rail else (),
                mtu=settings.rail_mtu,
            )
        )
    return tuple(links)


def write_netplan(links: Sequence[RailLink]) -> dict[str, Any]:
    """Return the rails as `ethernets` of network configuration, version 2 (cloud-init, netplan)."""
    return {f"rail{link.rail}": _write_rail(link) for link in links}


def _write_rail(link: RailLink) -> Mapping[str, Any]:
    inside = [{"to": n, "via": link.gateway, "table": link.table} for n in link.networks]
    outside = [{"to": n, "via": link.gateway} for n in link.own_networks]
    address = link.address.partition("/")[0]
    return {
        "match": {"macaddress": link.mac},
        "dhcp4": False,
        "addresses": [link.address],
        "mtu": link.mtu,
        "optional": True,
        "routes": [*inside, *outside],
        "routing-policy": [{"from": address, "table": link.table, "priority": link.priority}],
    }
