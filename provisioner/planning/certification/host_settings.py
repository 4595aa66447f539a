"""Named sets of a host's settings, packages and services: the host's baseline and its check tools.

The matrix lists a set by name (`host_settings`), and a profile pins the name under `host.baseline`
or `host.check_tools`. A reading names the set whose every value is in force; "none" where none is,
so that drift is a version that differs from its pin and is planned like any other update.
Pure: the same table says what a set may hold and how a look's facts are compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from provisioner.model.base import Record
from provisioner.model.inventory import Inventory
from provisioner.model.location import Port, find_host_end
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node

if TYPE_CHECKING:  # the settings bring the checks with them, which a reader of the matrix needs not
    from provisioner.settings.fabric import FabricSettings

# ------------------------------------------------------------------------------
# A host's rails as its operating system configures them: address, frames, routes, source rules.
#
# Each rail has a /31 to its leaf. A packet from a rail's address must leave by that rail, wherever
# it goes: a table of its own for each rail, and a rule that leads every packet from its address
# there. Without them the host sends to other leaves' rails by its default route, over management.
# Traffic that is not bound to an address goes to its own rail's network where the site names one
# per rail. source: NVIDIA Spectrum-X reference architecture 1.3, host networking; RFC 3021 for /31.


TABLE_FIRST = 100  # of rail 0; the kernel's own tables are 253 to 255
FRONT_TABLE = 180  # of the first bond of north-south ports
PRIORITY_FIRST = 3000  # the kernel has 1000 for VRF devices and 32766 for the main table


class RailLink(Record):
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


def write_bonds(node: Node, inventory: Inventory) -> dict[str, Any]:
    """Return `bonds` and their `ethernets` of such a configuration: LACP, at the leaves' rate.

    Of bonds that are made on the leaves alone, and whose every leg is a card with a known MAC. A
    packet from its address leaves by it, as on a rail; the default route stays as it is.
    """
    macs = {d.slot: d.mac for d in inventory.devices if d.mac}
    legs: dict[str, list[Port]] = {}
    for port in node.ports:
        if port.bond and port.bond.made:
            legs.setdefault(port.bond.segment or port.address, []).append(port)
    cards: dict[str, Any] = {}
    bonds: dict[str, Any] = {}
    for ports in legs.values():
        bond = ports[0].bond
        end = find_host_end(ports[0].address)
        known = [macs[p.nic_slot] for p in ports if p.nic_slot in macs]
        if bond is None or end is None or len(known) < sum(_count_members(p) for p in ports):
            continue
        name = f"front{len(bonds)}"
        table = FRONT_TABLE + len(bonds)
        mine = {
            f"{name}{'abcdefghijklmnop'[number]}": {"match": {"macaddress": mac}, "optional": True}
            for number, mac in enumerate(known)
        }
        cards |= mine
        gateway = ports[0].address.partition("/")[0]
        everywhere = "0.0.0.0/0" if end.version == 4 else "::/0"
        bonds[name] = {
            "interfaces": list(mine),
            "addresses": [str(end)],
            "parameters": {"mode": "802.3ad", "lacp-rate": "fast", "mii-monitor-interval": 100},
            "optional": True,
            "routes": [{"to": everywhere, "via": gateway, "table": table}],
            "routing-policy": [{"from": str(end.ip), "table": table, "priority": 2900}],
            **({"mtu": bond.mtu} if bond.mtu else {}),
        }
    return {"ethernets": cards, "bonds": bonds} if bonds else {}


def _count_members(port: Port) -> int:
    return len(port.bond.members) if port.bond else 0


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


# ------------------------------------------------------------------------------
# Run-time settings of SuperNICs, from the matrix's profile and the fabric's overlay.
#
# Every boot loses them, so they are no component with a version: they are set before the checks of
# every validation, and a check reads them with other tools than those that set them.


ROOT = "/interfaces/interface/"
OVERLAYS = ("pure_l3", "l3_evpn")
# the interface must go down and up before it takes effect (NVIDIA's nic-configuration-operator)
_GAP = "ethernet/nvidia/config/inter-packet-gap"
# settings that do not need the congestion-control algorithm
_BEFORE = ("nvidia/qos/", "nvidia/roce/")
# an equivalent value that the service may report
_ALSO = {"nvidia/qos/config/trust-mode": "QOS_TRUST_MODE_DSCP"}
_PATH = re.compile(r"[a-z][a-z0-9_-]*(\[id=\d{1,3}\])?(/[a-z][a-z0-9_-]*(\[id=\d{1,3}\])?){1,9}")
_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Setting(Record):
    """One value at one path of DOCA's management service."""

    path: str
    value: str
    type: str  # "string" | "bool" | "int"
    also: str = ""
    restart_interface: bool = False


class Runtime(Record):
    """Settings in the order in which they are set; the algorithm is started between the two
    groups.
    """

    routing: tuple[Setting, ...]
    congestion: tuple[Setting, ...]


def find_fault(place: str, value: str) -> str | None:
    path, mark, overlay = place.partition("@")
    if mark and overlay not in OVERLAYS:
        return f"there is no overlay '{overlay}'"
    if not _PATH.fullmatch(path) or not _VALUE.fullmatch(value):
        return "no path and value of a run-time setting"
    return None


def select_settings(profile: Mapping[str, str], overlay: str) -> Runtime:
    """Return the settings of a profile for every interface of a SuperNIC in this kind of fabric."""
    mine = [
        (place.partition("@")[0], value)
        for place, value in profile.items()
        if "@" not in place or place.endswith(f"@{overlay}")
    ]
    made = [_setting(path, value) for path, value in mine]
    return Runtime(
        routing=tuple(s for s in made if s.path.startswith(tuple(ROOT + b for b in _BEFORE))),
        congestion=tuple(
            s for s in made if not s.path.startswith(tuple(ROOT + b for b in _BEFORE))
        ),
    )


def _setting(path: str, value: str) -> Setting:
    whole_number = path.endswith("/value") or path == _GAP
    return Setting(
        path=ROOT + path,
        value=value,
        type="bool" if value in ("true", "false") else "int" if whole_number else "string",
        also=_ALSO.get(path, ""),
        restart_interface=path == _GAP,
    )


BASELINE = "host.baseline"
CHECK_TOOLS = "host.check_tools"
KINDS = (BASELINE, CHECK_TOOLS)
PACKAGE = "package:"
SERVICE = "service:"
HostSets = Mapping[str, Mapping[str, Mapping[str, str]]]  # kind -> name -> setting -> value
NO_SETS: HostSets = {}

_NAME = r"[a-z0-9][a-z0-9.+@_-]{0,62}"
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.,:=@/-]{0,119}"
# setting -> its values; each is read from the running host (planning/intake/host_tools.py)
_VALUES = {
    "rails": "on",  # address, MTU, routes and source rule of every planned rail
    "roce_trust": "dscp|pcp",  # mlnx_qos(8)
    "roce_pfc": "[01]{8}",  # one digit for each priority
    "roce_ecn": "[0-7]{1,8}",  # priorities with ECN at both ends of a flow
    "roce_cma_tos": r"\d{1,3}",  # of connections by rdma_cm (configfs rdma_cm, Linux ABI)
    "relaxed_ordering": "on|off",  # PCIe Device Control, bit 4, of the rails' cards
    "acs": "off",  # Access Control Services of PCIe bridges (NCCL, troubleshooting)
    "hugepages_2m": r"\d{1,7}",
    "kernel_arguments": f"{_WORD}( {_WORD}){{0,31}}",  # "iommu=pt", as /proc/cmdline has them
    "fabric_manager": "nvswitch",  # runs where the GPUs are on NVSwitches, and nowhere else
}
_PREFIXED = ((PACKAGE, _WORD.replace("=", "~+")), (SERVICE, "on"))


def find_setting_fault(name: str, value: str) -> str | None:
    for prefix, values in _PREFIXED:
        if name.startswith(prefix):
            is_name = re.fullmatch(_NAME, name.removeprefix(prefix))
            good = is_name and re.fullmatch(values, value)
            return None if good else f"no name and value of a {prefix[:-1]}"
    if name not in _VALUES:
        return f"there is no setting '{name[:60]}'; there are {', '.join(_VALUES)}"
    if not re.fullmatch(_VALUES[name], value):
        return f"'{value[:60]}' is no value of {name}"
    return None


def select_sets(matrix: Matrix) -> dict[str, dict[str, dict[str, str]]]:
    """Return the sets that are pinned somewhere: kind -> name -> settings."""
    sets: dict[str, dict[str, dict[str, str]]] = {}
    for release in matrix.releases.values():
        for profile in release.profiles.values():
            for kind in KINDS:
                pin = profile.pins.get(kind)
                for name in () if pin is None else (pin.version, *pin.also):
                    if name in matrix.host_settings:
                        sets.setdefault(kind, {})[name] = matrix.host_settings[name]
    return sets


def list_packages(settings: Mapping[str, str]) -> dict[str, str]:
    """Return package -> pinned version."""
    return {n.removeprefix(PACKAGE): v for n, v in settings.items() if n.startswith(PACKAGE)}


def list_services(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(n.removeprefix(SERVICE) for n in settings if n.startswith(SERVICE))


def find_differences(settings: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    """Return setting -> its value in the host, of those that differ; "" for one not read."""
    return {
        name: facts.get(name, "")
        for name, value in settings.items()
        if not _is_in_force(name, value, facts.get(name, ""))
    }


def _is_in_force(name: str, value: str, read: str) -> bool:
    if name == "kernel_arguments":
        return set(value.split()) <= set(read.split())
    return value == read
