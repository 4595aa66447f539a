"""A second fault of a node with an open case: recorded there, and stricter at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.repairs.repairs import Repairs
from provisioner.model.alert import Alert, Classification
from provisioner.model.case import Case, Origin, Service
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore, open_store

SERVING = Node(id="n1", kind=NodeKind.HOST, state=State.RELEASED, placement=Placement.CUSTOMER,
               tenant="blue", vrf="BLUE")  # fmt: skip


class Site:
    """One serving node, its cases and its alerts, and the loop that opens cases."""

    def __init__(self, store: SqlStore) -> None:
        self.store, self.book, self.alerts = (
            store,
            store.cases,
            store.alerts,
        )
        clock, settings = WallClock(), Settings()
        self.clock = clock
        self.case_service = CaseService(Context(store, clock, settings), self.book, self.alerts)
        self.repairs = Repairs(
            Context(store, clock, settings), self.case_service, self.alerts, self._submit
        )

    async def _submit(self, _operation: str) -> None:
        """No engine drives the node here."""

    async def raise_alert(self, name: str, *classes: Classification) -> None:
        now = self.clock.now()
        raised = Alert(node="n1", id=name, target="GPU_0", classifications=classes, since=now,
                       message="reported", source="watch", last_at=now)  # fmt: skip
        await self.alerts.put([raised], (), now)

    async def tick(self) -> tuple[Node, Case]:
        await self.repairs.tick()
        node, case = await self.store.nodes.get("n1"), (await self.book.list("n1"))[0]
        assert node is not None
        return node, case


def with_site(folder: Path, story) -> None:
    async def main() -> None:
        store = open_store(folder / "p.db")
        try:
            await store.nodes.add(SERVING)
            await story(Site(store))
        finally:
            await store.close()

    asyncio.run(main())


def test_a_later_and_worse_alert_takes_the_node_back_at_once(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.raise_alert("LinkFlap", Classification.LINK)
        node, case = await site.tick()
        assert (node.state, case.service) == (State.RELEASED, Service.KEEP)

        await site.raise_alert("Sensor", Classification.HARDWARE)
        node, case = await site.tick()
        assert (node.state, case.service) == (State.RELEASED, Service.DRAIN)
        assert case.drain_at > site.clock.now() + 3600

        await site.raise_alert("Xid79", Classification.FATAL_EVENT)
        node, case = await site.tick()
        assert (node.state, case.service, len(case.reports)) == (
            State.DRAINING, Service.CUT_OFF, 2
        )  # fmt: skip
        kinds = [n.kind for n in await site.book.list_notices("blue")]
        assert kinds == ["failure", "failure", "failure"]
        journal = [r["kind"] for r in await site.book.list_journal_of("n1", 0.0, 100)]
        assert journal.count("case_joined") == 2

    with_site(tmp_path, story)


def test_an_alert_that_stood_when_a_person_chose_is_not_weighed_again(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.raise_alert("Xid79", Classification.FATAL_EVENT)
        opened = await site.case_service.open(
            SERVING, Origin.OPERATOR, "known", "jane", service=Service.KEEP
        )
        assert isinstance(opened, Case)
        for _ in range(3):
            node, case = await site.tick()
        assert (node.state, case.service, case.reports) == (State.RELEASED, Service.KEEP, ())

    with_site(tmp_path, story)


def test_a_person_makes_the_service_of_an_open_case_stricter(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.raise_alert("LinkFlap", Classification.LINK)
        _, first = await site.tick()
        joined = await site.case_service.open(
            SERVING, Origin.OPERATOR, "smoke", "jane", service=Service.CUT_OFF
        )
        assert isinstance(joined, Case)
        assert (joined.id, joined.service) == (first.id, Service.CUT_OFF)
        node, _ = await site.tick()
        assert node.state is State.DRAINING

    with_site(tmp_path, story)
