"""Read the state of one leaf that the gate of a release judges, in one look that callers share.

A look is complete or it is a blocker: one unreadable part makes a blocker of it. Reading may be
repeated, so that one lost answer costs one request. A caller that comes while a look is being read
gets the next one, since its subject may have changed after that part was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from provisioner.execution.tenancy.leaf_line import LeafLine, Refused
from provisioner.model.leaf_state import LeafState, PortState, VniState, VrfState
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Clock, PortError
from provisioner.settings import Settings
from provisioner.switches import cumulus
from provisioner.switches import cumulus_state as words

AT_ONCE = 12  # requests of one look; the API of a switch serves a few at a time
TRIES_MAX = 4  # of one request: an answer in fifty may be lost, and a look is some fifty of them
GATHER_PART = 0.2  # of `switch_gather_s`


class LeafLook:
    """Looks at one leaf. `state` may be called by any number of nodes at once."""

    def __init__(self, line: LeafLine, clock: Clock, limits: Settings) -> None:
        self._line = line
        self._clock = clock
        self._limits = limits
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._wanted: set[str] = set()
        self._next: asyncio.Task[LeafState | Blocker] | None = None
        self._reading: set[asyncio.Task[LeafState | Blocker]] = set()

    async def state(self, interfaces: Collection[str]) -> LeafState | Blocker:
        """Return the leaf with at least these ports, read after this was called."""
        self._wanted |= set(interfaces)
        if self._next is None:
            self._next = asyncio.create_task(self._look(), name=f"look at {self._line.name}")
            self._reading.add(self._next)
            self._next.add_done_callback(self._reading.discard)
        return await asyncio.shield(self._next)

    async def heard(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return the LLDP neighbours of one port; empty if the leaf reports none."""
        try:
            return words.read_lldp(
                await self._ask(self._line.find, words.lldp_path(interface)) or {}
            )
        except (PortError, Refused, words.Unreadable):
            return frozenset()

    async def close(self) -> None:
        """Stop looking."""
        tasks = tuple(self._reading)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> LeafState | Blocker:
        try:
            await self._clock.sleep(self._limits.switch_gather_s * GATHER_PART)
        finally:
            wanted, self._wanted = sorted(self._wanted), set()
            self._next = None
        try:
            return await self._read(wanted)
        except (PortError, Refused) as problem:
            return self._line.blocker(problem)
        except words.Unreadable as problem:
            return self._line.blocker(Refused(Reason.MALFORMED, str(problem)))

    async def _read(self, interfaces: Sequence[str]) -> LeafState:
        line = self._line
        # before the trees: a revision that ends in between shows in the tree that is read after it
        listed = cumulus.read_revisions(await self._ask(line.get, cumulus.REVISIONS_PATH))
        if listed is None:
            raise words.Unreadable("no readable list of revisions")
        on_the_way = sorted(name for name, state in listed.items() if state.sent)
        trees, told, ports, coming = await asyncio.gather(
            self._all(
                [cumulus.tree_path("applied"), cumulus.tree_path("startup"), *_TREES], line.get
            ),
            self._all(_OPTIONAL, line.find),
            self._all([p(i) for i in interfaces for p in _OF_PORT], line.find),
            self._all([cumulus.interfaces_path(name) for name in on_the_way], line.get),
        )
        applied, startup, entries, names = trees
        neighbours, bridges, qos, adaptive, acls, health = told
        if neighbours is None or health is None:
            raise words.Unreadable("it tells neither neighbours nor health")
        vrfs = await self._vrfs(cumulus.read_names(names))
        bridged = [words.macs_path(name) for name in words.at(bridges or {})]
        macs: dict[str, str] = {}
        for table in await self._all(bridged, line.find):
            macs |= words.read_macs(table or {})
        return LeafState(
            switch=line.name,
            at=self._clock.now(),
            applied=words.digest(applied),
            unsaved=words.unsaved(applied, startup),
            on_the_way=tuple(on_the_way),
            issues=words.read_issues(health),
            qos=words.digest(qos),
            adaptive_routing=words.digest(adaptive),
            acls={name: words.digest(entry) for name, entry in words.at(acls or {}).items()},
            ports=_ports(interfaces, entries, [words.at(applied, "interface"), *coming], ports),
            vrf_of={name: words.vrf_of(entry) for name, entry in words.at(entries).items()},
            vrfs=vrfs,
            applied_targets=words.configured_targets(applied),
            applied_peers=words.configured_peers(applied),
            listens=words.listening(applied),
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
        numbers = [sorted(words.at(told[i] or {}, "vni")) for i in range(2, len(told), 3)]
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
                except PortError:
                    if attempt == TRIES_MAX - 1:
                        raise
                    await self._clock.sleep(self._limits.switch_poll_s * 2**attempt / 2)
        raise AssertionError("unreachable")


_TREES = (cumulus.INTERFACES_PATH, cumulus.VRFS_PATH)
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
    now = words.at(entries)
    found = {}
    for number, name in enumerate(interfaces):
        if name not in now:
            raise words.Unreadable(f"it has no interface {name}")
        lldp, counters, qos = told[3 * number : 3 * number + 3]
        meant = [words.at(tree, name) for tree in trees]
        heard = words.read_lldp(lldp or {})
        found[name] = words.read_port(now[name], meant, heard, counters or {}, qos)
    return found
