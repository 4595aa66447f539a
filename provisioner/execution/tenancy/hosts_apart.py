"""Keep hosts apart on the network where agents are looked up: observe, restore, prove by packets.

The required filters follow from the settings and the rows alone (the tests among nodes that are
under way), so that a successor after a crash restores them by observing. Nothing is kept here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from provisioner.execution.actions.work import Site
from provisioner.execution.tenancy.leaf import apart_filter
from provisioner.execution.tenancy.release_recheck import answers_of
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.host_filter import Door
from provisioner.model.node import Node, NodeKind, Origin
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateRow
from provisioner.planning.release import release_cables as rules
from provisioner.ports import Store


@dataclass(frozen=True)
class SeenApart:
    """One leaf as it was read. `gaps`: the missing parts, as sentences.

    `untouched`: no tree has a trace of the filter, as on a leaf that was never prepared.
    """

    guarded: tuple[str, ...]
    gaps: tuple[str, ...]
    untouched: bool
    doors: tuple[Door, ...]


class HostsApart:
    """The filter between hosts on every leaf of a site."""

    def __init__(self, site: Site, store: Store, tenancy: Tenancy) -> None:
        self._site = site
        self._store = store
        self._tenancy = tenancy

    @property
    def enabled(self) -> bool:
        """Return whether the leaves are to keep hosts apart."""
        return self._site.settings.keeps_hosts_apart

    async def doors(self) -> tuple[Door, ...]:
        """Return the pairs of hosts that tests let connect now, by the rows."""
        sessions = [s for s in await self._store.fabric.list_sessions() if s.doors]
        names = {name for s in sessions for group in s.doors for name in group}
        nodes = await self._store.nodes.list_named(names) if names else {}
        return rules.doors_of(sessions, nodes)

    async def look(self, leaf: str, owned: Collection[str]) -> SeenApart | Blocker:
        """Read one leaf. `owned`: its ports that hosts are cabled to."""
        state = await self._tenancy.filter_state(leaf)
        if isinstance(state, Blocker):
            return state
        settings = self._site.settings
        doors = await self.doors()
        now = state.ports["operational"]
        guarded = rules.guarded_ports(leaf, owned, now, settings.lookup_ports)
        gaps = rules.find_gaps(apart_filter(settings, doors), state.filters, state.ports, guarded)
        bound = any(has for ports in state.ports.values() for _, has in ports.values())
        untouched = not bound and all(held is None for held in state.filters.values())
        return SeenApart(guarded, gaps, untouched, doors)

    async def put_back(self, leaf: str, seen: SeenApart) -> tuple[Blocker, ...]:
        """Write the missing parts on one leaf; () if they are proved by reading, and saved."""
        return (await self._tenancy.keep_apart(leaf, seen.guarded, seen.doors)).blockers

    async def bring(self, nodes: Collection[Node]) -> tuple[Blocker, ...]:
        """Bring the leaves of these nodes to the state that the rows demand now: doors opened or
        closed.
        """
        if not self.enabled:
            return ()
        owned = await self._owned({p.switch for n in nodes for p in n.ports if not p.guid})

        async def bring_one(leaf: str, ports: Collection[str]) -> tuple[Blocker, ...]:
            state = await self.look(leaf, ports)
            if isinstance(state, Blocker):
                return (state,)
            return await self.put_back(leaf, state) if state.gaps else ()

        outcomes = await asyncio.gather(*(bring_one(leaf, ports) for leaf, ports in owned.items()))
        return tuple(blocker for blockers in outcomes for blocker in blockers)

    async def rows(self, node: Node) -> tuple[GateRow, ...]:
        """Return the rows of the gate for a node that is still in maintenance."""
        settings = self._site.settings
        if not self.enabled:
            why = "the site's own switches keep hosts apart (lookup_isolation)"
            if settings.lookup_isolation == "leaves":
                why = "no lookup_networks are set"
            return (rules.none_row(node.id, why),)
        rows_of: list[GateRow] = []
        owned = await self._owned({p.switch for p in node.ports if not p.guid})
        looks = await asyncio.gather(*(self.look(leaf, ports) for leaf, ports in owned.items()))
        for leaf, state in zip(owned, looks, strict=True):
            gaps = None if isinstance(state, Blocker) else state.gaps
            rows_of.append(rules.leaf_row(leaf, gaps))
        if any(row.bad for row in rows_of):
            return tuple(rows_of)
        return (*rows_of, *await self._packets(node))

    async def _packets(self, node: Node) -> tuple[GateRow, ...]:
        if self._site.settings.release_probes == "off":
            return (rules.none_row(node.id, "the site's settings have probes off"),)
        networks = self._site.settings.lookup_networks
        nodes = await self._store.nodes.list()
        errands = rules.errands_of(node, nodes, networks, await self.doors())
        if not errands:
            return (rules.none_row(node.id, "no other host in maintenance could be asked"),)
        return rules.judge_probes(errands, await answers_of(self._site, errands))

    async def _owned(self, leaves: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the ports of these leaves that hosts are cabled to."""
        owned: dict[str, list[str]] = {leaf: [] for leaf in sorted(leaves)}
        for node in await self._store.nodes.list():
            if node.kind is NodeKind.HOST and node.origin is not Origin.DETACHED:
                for port in node.ports:
                    if port.switch in owned and not port.guid:
                        owned[port.switch].append(port.interface)
        return owned
