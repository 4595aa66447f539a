"""Read the list of expected hardware from YAML text, with one clear error for the first fault."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from pydantic import ValidationError

from provisioner import quirks
from provisioner.model.expected import OS_SCHEMES, Expected, ExpectedNode
from provisioner.model.location import Bond
from provisioner.model.node import NodeKind
from provisioner.model.tenant import MAINTENANCE_VRF, PKEY_MAINTENANCE, PKEYS, Tenant
from provisioner.planning.matrix.located_yaml import (
    LIST_NODES_MAX,
    LIST_SIZE_MAX,
    Located,
    Path,
    load,
)

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_PCI = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_VRF = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,14}")  # an interface name of Linux: 15 characters
_RESERVED = frozenset({MAINTENANCE_VRF.lower(), "default", "mgmt"})  # never a customer's
_VNI_MAX = 2**24 - 1  # RFC 7348: 24 bits


def parse(source: str, text: str) -> Expected:
    """Read and check one list. Raises InputError with file, line, field and remedy."""
    located = load(source, text, LIST_SIZE_MAX, LIST_NODES_MAX)
    if not isinstance(located.tree, dict):
        raise located.build_error(
            (), "this is not a list of expected hardware", "Begin with `nodes:`."
        )
    try:
        expected = Expected.model_validate(located.tree)
    except ValidationError as error:
        raise located.build_model_error(error, "See docs/intake.md for the fields.") from None
    for vendor in expected.factory_credentials:
        if vendor not in quirks.ALL:
            raise located.build_error(
                ("factory_credentials", vendor),
                f"{vendor!r} is no vendor declaration",
                f"It is one of: {', '.join(quirks.ALL)}.",
            )
    _check_unique(located, expected)
    kinds = {n.name: n.kind for n in expected.nodes}
    for i, node in enumerate(expected.nodes):
        _check_node(located, ("nodes", i), node)
        _check_ports(located, ("nodes", i), node, kinds)
        _check_bonds(located, ("nodes", i), node)
    for i, tenant in enumerate(expected.tenants):
        _check_tenant(located, ("tenants", i), tenant)
    return expected


def _check_unique(located: Located, expected: Expected) -> None:
    """Check that no name, serial, MAC, address, port or VRF is used twice."""
    nodes = list(enumerate(expected.nodes))
    cards = [(("nodes", i, "dpus", j), d) for i, n in nodes for j, d in enumerate(n.dpus)]
    _check_values_unique(located, [(("nodes", i, "name"), n.name) for i, n in nodes])
    serials: list[tuple[Path, str]] = [
        (("nodes", i, "bmc", "serial"), n.bmc.serial) for i, n in nodes
    ]
    _check_values_unique(located, [*serials, *(((*at, "serial"), d.serial) for at, d in cards)])
    macs: list[tuple[Path, str]] = [
        (("nodes", i, "bmc", "mac"), n.bmc.mac.lower()) for i, n in nodes
    ]
    _check_values_unique(
        located, [*macs, *(((*at, "base_mac"), d.base_mac.lower()) for at, d in cards)]
    )
    _check_values_unique(
        located, [(("nodes", i, "bmc", "url"), n.bmc.url.rstrip("/").lower()) for i, n in nodes]
    )
    for i, node in nodes:
        slots = [d.slot for d in node.dpus]
        _check_values_unique(
            located, [(("nodes", i, "dpus", j, "slot"), s) for j, s in enumerate(slots)]
        )
    _check_values_unique(
        located,
        [
            (("nodes", i, "ports", j), f"{p.switch}/{name}")
            for i, n in nodes
            for j, p in enumerate(n.ports)
            for name in {p.interface, *(p.bond.members if p.bond else ())}
        ],
    )
    _check_values_unique(
        located,
        [
            (("nodes", i, "ports", j, "guid"), p.guid)
            for i, n in nodes
            for j, p in enumerate(n.ports)
        ],
    )
    segments = [
        (("nodes", i, "ports"), key)
        for i, n in nodes
        for key in {k for p in n.ports if p.bond for k in (p.bond.segment, _name_vni(p.bond))}
    ]
    _check_values_unique(located, segments)
    for i, node in nodes:  # two nodes may share an outlet, which is then never switched
        _check_values_unique(
            located, [(("nodes", i, "outlets", j), str(o)) for j, o in enumerate(node.outlets)]
        )
    tenants = list(enumerate(expected.tenants))
    _check_values_unique(located, [(("tenants", i, "name"), t.name) for i, t in tenants])
    _check_values_unique(located, [(("tenants", i, "vrf"), t.vrf) for i, t in tenants])
    keys = [(("tenants", i, "pkey"), f"{t.pkey:#06x}" if t.pkey else "") for i, t in tenants]
    _check_values_unique(located, keys)


def _check_values_unique(located: Located, values: Iterable[tuple[Path, str]]) -> None:
    path_of: dict[str, Path] = {}
    for path, value in values:
        if value and value in path_of:
            first = located.find_place(path_of[value])[1]
            raise located.build_error(path, f"{value!r} stands here a second time", f"See {first}.")
        path_of[value] = path


def _check_node(located: Located, path: Path, node: ExpectedNode) -> None:
    if node.kind is NodeKind.SWITCH:
        scheme = OS_SCHEMES.get(node.os, node.address.partition("://")[0])
        description = "a switch over SSH" if scheme == "ssh" else "the API of a switch"
        _check_address(located, (*path, "address"), node.address, description, scheme)
    elif not (node.bmc.url or node.bmc.mac or node.bmc.serial):
        problem = "no field identifies this host's BMC"
        remedy = "Give bmc.serial, mac or url."
        raise located.build_error((*path, "bmc"), problem, remedy)
    if node.bmc.url:
        _check_address(located, (*path, "bmc", "url"), node.bmc.url, "a BMC")
    macs: list[tuple[Path, str]] = [((*path, "bmc", "mac"), node.bmc.mac)]
    for j, card in enumerate(node.dpus):
        macs.append(((*path, "dpus", j, "base_mac"), card.base_mac))
        if card.pci and not _PCI.fullmatch(card.pci):
            problem = f"{card.pci!r:.60} is no PCI address"
            remedy = "Write it like 0000:06:00.0, in quotes."
            raise located.build_error((*path, "dpus", j, "pci"), problem, remedy)
    for where, mac in macs:
        if mac and not _MAC.fullmatch(mac):
            remedy = 'Write it like "5c:25:73:00:00:01", in quotes.'
            raise located.build_error(where, f"{mac!r:.60} is no MAC address", remedy)


def _check_address(
    located: Located, path: Path, url: str, what: str, scheme: str = "https"
) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == scheme and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in url:
        shown = "it holds credentials and" if "@" in url else f"{url!r:.80}"
        remedy = f"Write it like {scheme}://10.0.0.9, without credentials."
        raise located.build_error(path, f"{shown} is not the address of {what}", remedy)


def _check_ports(
    located: Located, path: Path, node: ExpectedNode, kinds: Mapping[str, NodeKind]
) -> None:
    for j, port in enumerate(node.ports):
        if kinds.get(port.switch) is not NodeKind.SWITCH and not port.guid:
            raise located.build_error(
                (*path, "ports", j, "switch"),
                f"there is no switch {port.switch!r:.80} on this list",
                "Add the switch as a node of kind `switch`.",
            )
        if port.address:
            try:
                ipaddress.ip_interface(port.address)
            except ValueError:
                raise located.build_error(
                    (*path, "ports", j, "address"),
                    f"{port.address!r:.80} is not an address with a prefix length",
                    "Write it like 172.0.0.1/31.",
                ) from None


def _check_bonds(located: Located, path: Path, node: ExpectedNode) -> None:
    """Check that a bond of several leaves has one leg on each, and more than one."""
    for j, port in enumerate(node.ports):
        bond = port.bond
        problem = ""
        if bond is None:
            continue
        same = [
            p.switch
            for p in node.ports
            if p.bond and (p.bond.segment, p.bond.mlag) == (bond.segment, bond.mlag)
        ]
        vlan = re.fullmatch(r"vlan[1-9]\d{0,3}", port.interface)
        if port.rail >= 0 or port.guid:
            problem = "a rail has no bond"
        elif (bond.vni or bond.mtu) and not bond.made:
            problem = "only a bond that is made has a VNI and an MTU"
        elif bond.made and not vlan and (bond.segment or bond.mlag or port.interface != bond.name):
            problem = "a bond that is made needs the interface of its VLAN"
        elif bond.segment and bond.mlag:
            problem = "a bond has a segment or an MLAG, not both"
        elif (bond.segment or bond.mlag) and not 1 < len(same) == len(set(same)):
            problem = "a bond with a segment or an MLAG has one leg on each of several leaves"
        if problem:
            where = (*path, "ports", j, "bond")
            raise located.build_error(where, problem, "See docs/tenants.md#front-end.")


def _name_vni(bond: Bond) -> str:
    return f"VNI {bond.vni}" if bond.vni else ""


def _check_tenant(located: Located, path: Path, tenant: Tenant) -> None:
    if not _VRF.fullmatch(tenant.vrf) or tenant.vrf.lower() in _RESERVED:
        problem = f"{tenant.vrf!r:.60} cannot be a customer's VRF"
        remedy = f"Use at most 15 letters and digits; not {', '.join(sorted(_RESERVED))}."
        raise located.build_error((*path, "vrf"), problem, remedy)
    if not 0 <= tenant.l3vni <= _VNI_MAX:
        problem = f"{tenant.l3vni} is no VNI"
        raise located.build_error((*path, "l3vni"), problem, f"Give 1 to {_VNI_MAX}.")
    if tenant.pkey and (tenant.pkey not in PKEYS or tenant.pkey == PKEY_MAINTENANCE):
        problem = f"{tenant.pkey:#x} is no P_Key of a customer"
        remedy = f"Give 0x1 to 0x7ffe, without the membership bit; not {PKEY_MAINTENANCE:#x}."
        raise located.build_error((*path, "pkey"), problem, remedy)
    if tenant.nodes_wanted < 0:
        problem = f"{tenant.nodes_wanted} is no number of nodes"
        raise located.build_error((*path, "nodes_wanted"), problem, "Give 0 or more.")
