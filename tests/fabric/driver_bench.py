"""A node's driver on the bench of releases, as far as it hands nodes over and fences them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from release_rig import MATRIX, NODE, Bench

from provisioner.control.context import Context
from provisioner.control.node.observer import Observer
from provisioner.control.node.performer import Performer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, Placement
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement
from provisioner.planning.certification import certification
from provisioner.planning.lifecycle.decide import Fence, Release
from provisioner.store.repositories.signing_keys import MasterKey, open_signer


class Parts:
    """A collector that reads what the store has, after whatever `before` does.

    `answers`: why the first readings were without a result.
    """

    def __init__(self, bench: Bench, *answers: Sequence[Blocker]) -> None:
        self._bench = bench
        self._answers = list(answers)
        self.before: Callable[[], Any] | None = None
        self.read_at: list[float] = []

    async def collect(self, node: Node) -> tuple[Inventory | None, tuple[Blocker, ...]]:
        self.read_at.append(self._bench.rig.clock.now())
        inventory = await self._bench.rig.store.evidence.get_inventory(node.id)
        if self._answers:
            return inventory, tuple(self._answers.pop(0))
        if self.before is not None:
            await self.before()
        return inventory, ()


class Driver:
    """A node's driver on the bench, as far as it hands nodes over and fences them."""

    def __init__(self, bench: Bench, parts: Parts) -> None:
        self.bench, self.parts, self.store = bench, parts, bench.rig.store
        nobody: Any = None  # asked for nothing here
        collector: Any = parts
        context = Context(self.store, bench.rig.clock, bench.rig.effects.settings)
        self._performer = Performer(
            context,
            observer=Observer(context, collector, bench.rig.tenancy, MATRIX),
            identifier=nobody,
            executor=nobody,
            tenancy=bench.rig.tenancy,
            eraser=nobody,
            certifier=nobody,
            rechecks=Rechecks(bench.rig.effects, self.store, MATRIX),
        )

    async def hold(self) -> Hold:
        opened = await self.store.operations.open(NODE, "journey", self.bench.rig.clock.now())
        assert opened is not None
        return Hold(self.store, self.bench.rig.clock, await self.store.operations.take(opened.id))

    async def certified(self, hold: Hold, **changes: Any) -> Node:
        """The bench's node with a certificate of what is in it."""
        store, now = self.store, self.bench.rig.clock.now()
        inventory = await store.evidence.get_inventory(NODE)
        node = await store.nodes.get(NODE)
        assert inventory is not None
        assert node is not None
        signer = await open_signer(store, MasterKey.generate(), now)
        certificate = signer.sign(
            Certificate(
                id="c-1",
                node=NODE,
                release=node.release,
                profile=node.profile,
                serials=certification.list_serials(inventory),
                versions=(),
                boot_id="",
                location=str(node.location),
                ports=tuple(sorted(f"{p.switch}/{p.interface}" for p in node.ports)),
                report_digest="",
                matrix_digest="",
                issued_at=now,
                expires_at=now + 86_400.0,
            )
        )
        certified = node.model_copy(update={"certificate": "c-1", **changes})
        stored = await hold.record(node=certified, certificate=certificate)
        assert stored is not None
        return stored

    async def release(self, **changes: Any) -> tuple[Blocker, ...]:
        hold = await self.hold()
        node = await self.certified(hold, **changes)
        return tuple(await self._performer.perform(hold, node, Release(vrf="RED"), None))

    async def fence(
        self, violations: Sequence[PortPlacement] = (), seen: Placement = Placement.MIXED
    ) -> tuple[Blocker, ...]:
        """A fence of the node, of which this turn has seen where its ports are."""
        hold, node = await self.hold(), await self.store.nodes.get(NODE)
        assert node is not None
        turn = Fence(violations=tuple(violations))
        seen_node = node.model_copy(update={"placement": seen})
        return tuple(await self._performer.perform(hold, seen_node, turn, None))

    async def refusals(self) -> list[tuple[str, ...]]:
        rows = await self.store.journal.list()
        return [tuple(r["detail"]["rows"]) for r in rows if r["kind"] == "release_refused"]
