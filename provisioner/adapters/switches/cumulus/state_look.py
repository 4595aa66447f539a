"""Reads all of one leaf that the gate of a release judges.

Rule: a look is whole or it is none: an answer that cannot be read refuses all of it. Reading may be
repeated, so that one lost answer costs one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from provisioner.adapters.switches.cumulus import nvue_calls, port_reading
from provisioner.adapters.switches.cumulus import switch_state as words
from provisioner.adapters.switches.cumulus.revisions import NvueLine, decode_document
from provisioner.adapters.switches.systems import list_port_macs
from provisioner.model.outcome import Reason
from provisioner.model.recovery import LeafState, PortState, VniState, VrfState
from provisioner.ports import Clock, PortError
from provisioner.ports.switch import SwitchRefused
from provisioner.settings import Settings

AT_ONCE = 12  # requests of one look; the API of a switch serves a few at a time
TRIES_MAX = 4  # of one request: an answer in fifty may be lost, and a look is some fifty of them


class StateLook:
    """One look at one leaf."""

    def __init__(self, line: NvueLine, clock: Clock, limits: Settings) -> None:
        self._line = line
        self._clock = clock
        self._limits = limits
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, interfaces: Sequence[str]) -> LeafState:
        """Return the leaf with these ports."""
        try:
            return await self._read(interfaces)
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return (system, port) of each device that one port hears by LLDP."""
        try:
            answer = await self._ask(self._line.find, words.lldp_path(interface))
            return words.read_lldp(answer or {})
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def read_macs(self) -> dict[str, frozenset[str]]:
        """Return front-panel port -> MACs, of its bridges and of its routed ports."""
        try:
            entries, bridges = await self._all(
                (words.NEIGHBOURS_PATH, words.BRIDGES_PATH), self._line.find
            )
            macs = await self._read_bridges(bridges)
            return list_port_macs(port_reading.PHYSICAL, words.read_neighbours(entries or {}), macs)
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def _read_bridges(self, bridges: Any) -> dict[str, str]:
        bridged = [words.macs_path(name) for name in words.find_object(bridges or {})]
        macs: dict[str, str] = {}
        for table in await self._all(bridged, self._line.find):
            macs |= words.read_macs(table or {})
        return macs

    async def _read(self, interfaces: Sequence[str]) -> LeafState:
        line = self._line
        # before the trees: a revision that ends in between shows in the tree that is read after it
        listed = nvue_calls.read_revisions(await self._ask(line.get, nvue_calls.REVISIONS_PATH))
        if listed is None:
            raise words.Unreadable("no readable list of revisions")
        on_the_way = sorted(name for name, state in listed.items() if state.sent)
        trees, told, ports, coming = await asyncio.gather(
            self._all(
                [nvue_calls.tree_path("applied"), nvue_calls.tree_path("startup"), *_TREES],
                line.get,
            ),
            self._all(_OPTIONAL, line.find),
            self._all([p(i) for i in interfaces for p in _OF_PORT], line.find),
            self._all([nvue_calls.interfaces_path(name) for name in on_the_way], line.get),
        )
        applied, startup, entries, names = trees
        neighbours, bridges, qos, adaptive, acls, health = told
        if neighbours is None or health is None:
            raise words.Unreadable("it reports neither neighbours nor health")
        vrfs = await self._vrfs(nvue_calls.read_names(names))
        macs = await self._read_bridges(bridges)
        return LeafState(
            switch=line.name,
            at=self._clock.now(),
            applied=words.digest(applied),
            unsaved=words.find_unsaved(applied, startup),
            on_the_way=tuple(on_the_way),
            issues=words.read_issues(health),
            qos=words.digest(decode_document(qos, ("qos", "roce"))),
            adaptive_routing=words.digest(
                decode_document(adaptive, ("router", "adaptive-routing"))
            ),
            acls={
                name: words.digest(entry) for name, entry in words.find_object(acls or {}).items()
            },
            ports=_ports(
                interfaces, entries, [words.find_object(applied, "interface"), *coming], ports
            ),
            vrf_of={
                name: words.vrf_of(entry) for name, entry in words.find_object(entries).items()
            },
            vrfs=vrfs,
            applied_targets=words.configured_targets(applied),
            applied_peers=words.configured_peers(applied),
            listens=words.find_listening_vrfs(applied),
            neighbours=words.read_neighbours(neighbours),
            fdb=macs,
        )

    async def _vrfs(self, names: Sequence[str] | None) -> dict[str, VrfState]:
        if not names:
            raise words.Unreadable("no readable list of VRFs")
        line = self._line
        tables, told = await asyncio.gather(
            self._all([words.rib_path(n, f) for n in names for f in words.FAMILIES], line.find),
            self._all([p(n) for n in names for p in _OF_VRF], line.find),
        )
        numbers = [sorted(words.find_object(told[i] or {}, "vni")) for i in range(2, len(told), 3)]
        asked = [vni for mine in numbers for vni in mine]
        targets = await self._all([words.targets_path(vni) for vni in asked], line.get)
        read = {vni: words.read_targets(t) for vni, t in zip(asked, targets, strict=True)}
        found: dict[str, VrfState] = {}
        for at, name in enumerate(names):
            peers, families, _ = told[3 * at : 3 * at + 3]
            vnis: Mapping[str, VniState] = {vni: read[vni] for vni in numbers[at]}
            found[name] = VrfState(
                routes=(
                    *words.read_routes(tables[2 * at]),
                    *words.read_routes(tables[2 * at + 1] or {}),  # IPv6 may be off
                ),
                peers=words.read_peers(peers or {}),
                imports=words.read_imports(families or {}),
                vnis=vnis,
            )
        return found

    async def _all(
        self, paths: Sequence[str], how: Callable[[str], Awaitable[Any]]
    ) -> Sequence[Any]:
        return await asyncio.gather(*(self._ask(how, path) for path in paths))

    async def _ask(self, how: Callable[[str], Awaitable[Any]], path: str) -> Any:
        async with self._slots:
            for attempt in range(TRIES_MAX):
                try:
                    return await how(path)
                except SwitchRefused:
                    raise
                except PortError:
                    if attempt == TRIES_MAX - 1:
                        raise
                    await self._clock.sleep(self._limits.switch_poll_s * 2**attempt / 2)
        raise AssertionError("unreachable")


_TREES = (nvue_calls.INTERFACES_PATH, nvue_calls.VRFS_PATH)
_OPTIONAL = (
    words.NEIGHBOURS_PATH,
    words.BRIDGES_PATH,
    words.QOS_PATH,
    words.ADAPTIVE_PATH,
    words.ACLS_PATH,
    words.HEALTH_PATH,
)
_OF_PORT = (words.lldp_path, words.counters_path, words.port_qos_path)
_OF_VRF = (words.peers_path, words.families_path, words.vrf_vnis_path)


def _ports(
    interfaces: Sequence[str], entries: Any, trees: Sequence[Any], told: Sequence[Any]
) -> dict[str, PortState]:
    now = words.find_object(entries)
    found = {}
    for number, name in enumerate(interfaces):
        if name not in now:
            raise words.Unreadable(f"it has no interface {name}")
        lldp, counters, qos = told[3 * number : 3 * number + 3]
        meant = [words.find_object(tree, name) for tree in trees]
        heard = words.read_lldp(lldp or {})
        found[name] = words.read_port(now[name], meant, heard, counters or {}, qos)
    return found
