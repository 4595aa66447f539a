"""A simulated site of fenced nodes and the watch of its leaves, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from leaf_rig import Rig

from provisioner.control.context import Context
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.control.watch.leaf_watch import LeafWatch
from provisioner.control.watch.release_watch import ReleaseWatch
from provisioner.model.node import Node, Placement
from provisioner.model.tenant import Tenant

A = "su0-n00"
SPARE = "swp60"  # a port that no node owns


class Bench:
    """A site of fenced nodes, and the watch of its leaves."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.store = rig, rig.store
        self.submitted: list[str] = []
        self.book = rig.store.alerts
        settings = rig.effects.settings
        context = Context(rig.store, rig.clock, settings)
        back = ReleaseWatch(context, rig.tenancy, self._submit)
        self.violations = IsolationViolations(rig.store, rig.clock, self.book)
        self.recovery_book = rig.store.recovery
        self.watch = LeafWatch(
            context, rig.tenancy, self.violations, back.take_back, book=self.recovery_book
        )
        self.port = rig.nodes[A].ports[0]
        self.leaf = rig.site.switches[self.port.switch]

    async def _submit(self, operation: str) -> None:
        self.submitted.append(operation)

    async def node(self, **changes: Any) -> Node:
        """The node with these changes to its row."""
        stored = await self.store.nodes.get(A)
        told = {"placement": Placement.MAINTENANCE, "vrf": "MAINT", "fenced_at": 1.0, **changes}
        return await self.store.nodes.save(stored.model_copy(update=told))

    def put(self, vrf: str, interface: str = "", trees: tuple[str, ...] = ()) -> None:
        """A foreign hand moves a port, in all trees of its leaf or in these."""
        for name in trees or ("operational", "applied", "startup"):
            entry = getattr(self.leaf, name)["interface"][interface or self.port.interface]
            entry.setdefault("ip", {})["vrf"] = vrf

    async def look(self) -> None:
        """One look at the leaf, by rows as they are."""
        self.watch._owners.take(await self.store.nodes.list())
        self.watch._due[self.leaf.name] = 0.0
        await self.watch.check_leaf(self.leaf.name)
        self.rig.site.advance()

    def vrf(self, interface: str = "") -> str:
        name = interface or self.port.interface
        trees = (self.leaf.operational, self.leaf.applied, self.leaf.startup)
        return " ".join(sorted({t["interface"][name]["ip"].get("vrf", "") for t in trees}))

    async def rows(self) -> list[tuple[str, str]]:
        """(kind, node) of what the journal has of isolation violations."""
        found = await self.store.journal.list(0, 1000)
        return [(r["kind"], r["node"]) for r in found if r["kind"] in ("trespass", "fence")]

    async def alerts(self, node: str) -> list[str]:
        return [f"{a.id} {a.target}" for a in await self.book.list(node) if a.active]


def play(scenario: Callable[[Bench], Awaitable[Any]], **settings: Any) -> Any:
    async def main() -> Any:
        rig = await Rig(**settings).open()
        try:
            for name, vrf in (("red", "RED"), ("blue", "BLUE")):
                await rig.store.tenants.put(Tenant(name=name, vrf=vrf))
            return await scenario(Bench(rig))
        finally:
            await rig.close()

    return asyncio.run(main())
