"""A fault of a serving node: its spare, the notices, and a daemon that dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from provisioner.control.context import Context
from provisioner.control.node.scheduler import Scheduler
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.repairs.repairs import Repairs
from provisioner.control.repairs.stand_ins import NAMES_MAX, UnitIndex
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.model.alert import Classification, Signal
from provisioner.model.case import Case, Ending, Service, Stage
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.operation import OUTSIDE
from provisioner.model.tenant import Tenant
from provisioner.planning.repair.case_policy import make_notice
from provisioner.ports import StaleWrite
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore, open_store


def host(number: int, **changes: object) -> Node:
    node = Node(
        id=f"n{number}",
        kind=NodeKind.HOST,
        state=State.CERTIFIED,
        placement=Placement.MAINTENANCE,
        location=Location(rack="r01", index=number),
        ports=(Port(switch="leaf", interface=f"swp{number}", rail=0, nic_slot="NIC_0"),),
    )
    return node.model_copy(update=changes)


def serving(number: int) -> Node:
    changes = {"state": State.RELEASED, "placement": Placement.CUSTOMER, "tenant": "blue"}
    return host(number, **changes)


class Site:
    """Nodes on one leaf, and the parts of a daemon that decide on faults."""

    def __init__(self, store: SqlStore, spares: int) -> None:
        self.store = store
        self.clock = WallClock()
        self.context = Context(store, self.clock, Settings(spares_per_unit=spares))
        self.submitted: list[str] = []
        self.start()

    def start(self) -> None:
        """A daemon that remembers nothing."""
        case_service = CaseService(self.context, self.store.cases, self.store.alerts)
        self.repairs = Repairs(self.context, case_service, self.store.alerts, self._submit)
        self.keeper = AlertKeeper(
            self.store.alerts, self.store, self.clock, self._submit, self.repairs.calls.call
        )

    async def _submit(self, operation: str) -> None:
        self.submitted.append(operation)

    async def fail(self, *names: str) -> None:
        """An error that no result survives, on each of these nodes."""
        for name in names:
            signal = Signal(
                node=name,
                id="Xid79",
                target="GPU_0",
                source="watch",
                message="fallen off the bus",
                classifications=(Classification.FATAL_EVENT,),
                at=self.clock.now(),
            )
            await self.keeper.report(name, [signal])

    async def node(self, name: str) -> Node:
        stored = await self.store.nodes.get(name)
        assert stored is not None
        return stored

    async def case(self, name: str) -> Case:
        return (await self.store.cases.list(name))[0]

    async def become(self, name: str, **changes: object) -> None:
        await self.store.nodes.save((await self.node(name)).model_copy(update=changes))


def with_site(
    folder: Path, nodes: list[Node], story: Callable[[Site], Awaitable[None]], spares: int = 1
) -> None:
    async def main() -> None:
        store = open_store(folder / "p.db")
        try:
            for node in nodes:
                await store.nodes.add(node)
            await story(Site(store, spares))
        finally:
            await store.close()

    asyncio.run(main())


async def answer_calls(site: Site) -> None:
    await asyncio.gather(*(site.repairs.look(name) for name in site.repairs.calls.take()))


def test_a_fault_opens_a_case_and_allocates_a_spare_without_waiting_for_a_tick(
    tmp_path: Path,
) -> None:
    async def story(site: Site) -> None:
        await site.fail("n0")
        await answer_calls(site)
        case = await site.case("n0")
        spare = await site.node("n2")
        assert (case.service, case.stand_in, spare.tenant) == (Service.CUT_OFF, "n2", "blue")
        assert len(site.submitted) == 1  # it is released like every node: by an operation
        notices = await site.store.cases.list_notices("blue")
        assert sorted(n.kind for n in notices) == ["failure", "replacement"]
        assert (await site.node("n0")).tenant == "blue"  # until the spare serves

        await site.repairs.tick()
        await site.become("n2", state=State.RELEASED, placement=Placement.CUSTOMER)
        await site.become("n0", state=State.REPAIRING, placement=Placement.MAINTENANCE)
        for _ in range(2):
            await site.repairs.tick()
        case = await site.case("n0")
        assert case.stood_in_at > 0
        assert (await site.node("n0")).tenant == ""
        joined = [n for n in await site.store.cases.list_notices("blue") if n.node == "n2"]
        assert [(n.kind, n.case) for n in joined] == [("returned", case.id)]

        returning = case.enter_stage(Stage.RETURNING, site.clock.now())
        await site.store.cases.save(returning, now=site.clock.now())
        await site.become("n0", state=State.CERTIFIED)
        await site.repairs.tick()
        case = await site.case("n0")
        assert (case.ending, (await site.node("n0")).tenant) == (Ending.REPAIRED, "")
        notices = await site.store.cases.list_notices("blue")
        assert any("n2 serves you in its place" in n.text for n in notices)

    with_site(tmp_path, [serving(0), host(1), host(2)], story)


def test_many_faults_at_once_get_a_spare_each_and_none_twice(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.fail(*(f"n{i}" for i in range(20)))
        await answer_calls(site)
        await site.repairs.tick()
        chosen = [(await site.case(f"n{i}")).stand_in for i in range(20)]
        assert sorted(filter(None, chosen)) == sorted(f"n{i}" for i in range(20, 35))
        lacking = [i for i, spare in enumerate(chosen) if not spare]
        assert len(lacking) == 5
        assert "no certified spare" in (await site.case(f"n{lacking[0]}")).note
        await site.store.nodes.add(host(50))
        await site.repairs.tick()
        chosen = [(await site.case(f"n{i}")).stand_in for i in lacking]
        assert sorted(chosen) == ["", "", "", "", "n50"]

    fleet = [serving(i) for i in range(20)] + [host(i) for i in range(20, 35)]
    with_site(tmp_path, fleet, story, spares=20)


@pytest.mark.parametrize("step", range(3))
def test_a_daemon_that_dies_after_any_step_is_continued(tmp_path: Path, step: int) -> None:
    """The rows as a daemon leaves them after each of its writes, and the next daemon's ticks."""

    async def story(site: Site) -> None:
        await site.fail("n0")
        now = site.clock.now()
        if step >= 1:  # the case with its notice
            await site.repairs._open(await site.node("n0"), await site.repairs._list_standing("n0"))
        if step >= 2:  # the case names the spare, whose row has no tenant yet
            case = await site.case("n0")
            await site.store.cases.save(case.model_copy(update={"stand_in": "n1"}), now=now)
        site.start()
        for _ in range(2):
            await site.repairs.tick()
        case = await site.case("n0")
        allocated = [n.id for n in await site.store.nodes.list() if n.tenant == "blue"]
        assert (case.stand_in, sorted(allocated)) == (
            "n1" if step >= 2 else "n2",
            ["n0", case.stand_in],
        )

    with_site(tmp_path, [serving(0), host(1), host(2)], story, spares=2)


def test_a_spare_that_fails_its_gate_is_exchanged_for_another(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.fail("n0")
        await answer_calls(site)
        assert (await site.case("n0")).stand_in == "n2"
        await site.become("n2", state=State.QUARANTINED)
        await site.repairs.tick()
        assert (await site.case("n0")).stand_in == "n1"
        assert ((await site.node("n1")).tenant, (await site.node("n2")).tenant) == ("blue", "")

    with_site(tmp_path, [serving(0), host(1), host(2)], story, spares=2)


def test_a_spare_with_an_alert_of_its_own_is_not_taken(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.fail("n2")
        await site.fail("n0")
        await answer_calls(site)
        assert (await site.case("n0")).stand_in == "n1"

    with_site(tmp_path, [serving(0), host(1), host(2)], story, spares=2)


def test_a_spare_that_an_integration_holds_is_not_taken(tmp_path: Path) -> None:
    """As a rack campaign holds what it may have written to."""

    async def story(site: Site) -> None:
        opened = await site.store.operations.open("n2", f"{OUTSIDE}rack campaign x", 1.0)
        assert opened is not None
        await site.fail("n0")
        await answer_calls(site)
        assert (await site.case("n0")).stand_in == "n1"

    with_site(tmp_path, [serving(0), host(1), host(2)], story, spares=2)


def test_tenants_that_grow_leave_the_spares_alone(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.store.tenants.put(Tenant(name="red", vrf="RED", nodes_wanted=9))
        await Scheduler(site.context, site._submit).tick()
        free = sorted(n.id for n in await site.store.nodes.list() if not n.tenant)
        assert free == ["n2", "n3"]

    with_site(tmp_path, [host(i) for i in range(4)], story, spares=2)


def test_a_decision_after_a_tick_reads_the_present_rows_of_the_unit_alone(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.repairs.tick()
        other = open_store(tmp_path / "p.db")  # another daemon's
        taken = await other.nodes.get("n2")
        assert taken is not None
        await other.nodes.save(taken.model_copy(update={"tenant": "green"}))
        await other.close()
        with recorded_statements() as statements:
            await site.fail("n0")
            await answer_calls(site)

        assert (await site.case("n0")).stand_in == "n1"
        assert not any("nodes.changed >" in text for text in statements)  # the reading of all
        assert any("nodes.id IN" in text for text in statements)

    with_site(tmp_path, [serving(0), host(1), host(2)], story)


@pytest.mark.parametrize("changed", ["case", "spare"])
def test_an_allocation_of_rows_that_changed_meanwhile_leaves_nothing(
    tmp_path: Path, changed: str
) -> None:
    async def story(site: Site) -> None:
        await site.fail("n0")
        await site.repairs._open(await site.node("n0"), await site.repairs._list_standing("n0"))
        case = await site.case("n0")
        spare = await site.node("n1")
        if changed == "case":
            await site.store.cases.save(case.model_copy(update={"note": "newer"}), now=1.0)
        else:
            await site.become("n1", note="newer")
        naming = case.model_copy(update={"stand_in": "n1"})
        notice = make_notice(case, "replacement", "n1 takes its place", 1.0)
        before = len(await site.store.cases.list_journal_of("n1", 0.0, 100))
        with pytest.raises(StaleWrite):
            await site.store.cases.allocate_spare(naming, spare, notices=[notice], now=1.0)

        assert ((await site.case("n0")).stand_in, (await site.node("n1")).tenant) == ("", "")
        assert [n.kind for n in await site.store.cases.list_notices("blue")] == ["failure"]
        assert await site.store.operations.list_active() == ()
        assert len(await site.store.cases.list_journal_of("n1", 0.0, 100)) == before

        await site.repairs.tick()  # by the present rows
        assert ((await site.case("n0")).stand_in, (await site.node("n1")).tenant) == ("n1", "blue")
        assert [o.node for o in await site.store.operations.list_active()] == ["n1"]

    with_site(tmp_path, [serving(0), host(1)], story)


def test_a_host_that_is_cabled_in_after_a_tick_stands_in_at_the_next_one(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.repairs.tick()
        await site.store.nodes.add(host(1))
        await site.fail("n0")
        await answer_calls(site)
        assert (await site.case("n0")).stand_in == ""

        await site.repairs.tick()
        assert (await site.case("n0")).stand_in == "n1"

    with_site(tmp_path, [serving(0)], story)


@contextmanager
def recorded_statements() -> Iterator[list[str]]:
    """The SQL of every engine meanwhile."""
    statements: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", record)


def test_hosts_are_listed_by_unit_as_they_are_cabled_now() -> None:
    index = UnitIndex()
    first = [host(0), host(1), host(2)]
    index.take(first)
    assert index.list_names(first[0]) == {"n0", "n1", "n2"}

    elsewhere = first[1].model_copy(update={"location": Location(scalable_unit=7)})
    index.take([first[0], elsewhere])
    assert index.list_names(first[0]) == {"n0"}
    assert index.list_names(elsewhere) == {"n1"}
    assert index.list_names(host(9)) is None  # it came since
    assert index.list_names(first[1]) is None  # its row is older than the index

    index.take([host(number) for number in range(NAMES_MAX + 1)])
    assert index.list_names(host(0)) is None  # one unit of all is no unit
