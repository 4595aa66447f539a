"""Places of ports, from every tree of NVUE that decides on them.

Rule: the operational state alone does not decide where a port stays. A revision that a crashed
daemon (or another writer) has sent is still under way for seconds, and a configuration that was
applied but not saved is undone by the next reboot. A port is settled only where all agree. The
revisions are read before the trees: one that ends in between shows in the tree that is read after.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from provisioner.integrations.cumulus import nvue_calls, port_filter
from provisioner.integrations.cumulus import port_filter as host_filter
from provisioner.integrations.cumulus.revisions import NvueLine
from provisioner.model.host_filter import FilterState, SeenFilter
from provisioner.model.outcome import Reason
from provisioner.model.switch import ABSENT, DEFAULT_VRF, Place, TenantPort
from provisioner.ports.switch import SwitchRefused

ONE_BY_ONE = 2  # ports; more of them are read with the whole collection
INTERFACES_MAX = 8192  # of one leaf: ports, breakouts and devices that are built on them
PHYSICAL = re.compile(r"swp[0-9]+(s[0-9]+)?")  # a port of the front panel, or a lane of one
TREES = ("applied", "startup", "operational")


async def read_coming(line: NvueLine) -> list[str]:
    """Return the revisions that are being applied."""
    listed = nvue_calls.read_revisions(await line.get(nvue_calls.REVISIONS_PATH))
    if listed is None:
        raise SwitchRefused(Reason.MALFORMED, "no readable list of revisions")
    return sorted(name for name, state in listed.items() if state.sent)


async def read_places(
    line: NvueLine, interfaces: Sequence[str], *, saved: bool
) -> Mapping[str, frozenset[Place]]:
    """Return the places of each port; without `saved`, not that of the next start."""
    coming = await read_coming(line)
    trees = [*coming, "applied", *(["startup"] if saved else []), "operational"]
    places: dict[str, set[Place]] = {interface: set() for interface in interfaces}
    for read in await asyncio.gather(*(_read_tree(line, interfaces, tree) for tree in trees)):
        for interface, place in read.items():
            places[interface].add(place)
    return {interface: frozenset(read) for interface, read in places.items()}


async def read_tenant_ports(line: NvueLine, site_vrfs: Collection[str]) -> dict[str, TenantPort]:
    """Return every port of the leaf that is, or will be by itself, in a VRF not in `site_vrfs`.

    Each tree is read whole, so that ports without an owner are seen as well.
    """
    ports: dict[str, TenantPort] = {}
    for tree in (*await read_coming(line), *TREES):
        for name, entry in (await read_interfaces(line, tree)).items():
            vrf = nvue_calls.read_vrf(entry)
            if vrf is None:
                raise SwitchRefused(Reason.MALFORMED, f"{name[:40]}: no readable state ({tree})")
            if vrf not in site_vrfs:
                before = ports.get(name, TenantPort(frozenset(), ()))
                addresses = nvue_calls.read_addresses(entry)
                ports[name] = TenantPort(
                    before.vrfs | {vrf},
                    addresses or before.addresses,
                    physical=PHYSICAL.fullmatch(name) is not None,
                )
    return ports


async def read_interfaces(line: NvueLine, tree: str) -> dict[str, Any]:
    """Return all interfaces of one tree."""
    answer = await line.get(nvue_calls.interfaces_path(tree))
    if not isinstance(answer, dict) or len(answer) > INTERFACES_MAX:
        raise SwitchRefused(Reason.MALFORMED, f"no readable interfaces ({tree})")
    return answer


async def read_filter(line: NvueLine, tree: str) -> SeenFilter | None:
    """Return the filter between hosts as one tree has it; None if it has none."""
    answer = await line.find(nvue_calls.acls_path(tree))
    entry = answer.get(host_filter.NAME) if isinstance(answer, dict) else None
    return None if entry is None else host_filter.read_filter(entry)


async def read_filter_state(line: NvueLine) -> FilterState:
    """Return the filter and its ports in all trees."""
    filters = await asyncio.gather(*(read_filter(line, tree) for tree in TREES))
    ports = await asyncio.gather(*(_read_filtered(line, tree) for tree in TREES))
    return FilterState(dict(zip(TREES, filters, strict=True)), dict(zip(TREES, ports, strict=True)))


async def _read_filtered(line: NvueLine, tree: str) -> dict[str, tuple[str, bool]]:
    ports = {}
    for name, entry in (await read_interfaces(line, tree)).items():
        vrf = nvue_calls.read_vrf(entry)
        if vrf is None:
            raise SwitchRefused(Reason.MALFORMED, f"{name[:40]}: no readable state ({tree})")
        ports[name] = (vrf or DEFAULT_VRF, nvue_calls.read_apart(entry))
    return ports


async def _read_tree(line: NvueLine, interfaces: Sequence[str], tree: str) -> dict[str, Place]:
    if len(interfaces) <= ONE_BY_ONE:
        answers = {}
        for i in interfaces:
            # of a bond that is made: before that it does not exist, and nothing goes through it
            ask = line.get if PHYSICAL.fullmatch(i) else line.find
            answers[i] = await ask(nvue_calls.interface_path(i, tree))
    else:
        listed = await line.get(nvue_calls.interfaces_path(tree))
        answers = listed if isinstance(listed, dict) else {}
    places = {}
    for interface in interfaces:
        vrf = nvue_calls.read_vrf(answers.get(interface))
        absent = answers and answers.get(interface) is None
        if absent and not PHYSICAL.fullmatch(interface):
            places[interface] = Place(ABSENT, denied=False, apart=False)
            continue
        if vrf is None:
            raise SwitchRefused(Reason.MALFORMED, f"{interface}: no readable state ({tree})")
        denied = nvue_calls.read_denied(answers.get(interface))
        apart = nvue_calls.read_apart(answers.get(interface))
        guards = port_filter.read_bound(answers.get(interface))
        places[interface] = Place(vrf or DEFAULT_VRF, denied, apart, guards)
    return places
