"""A person's power request: once, with its intent in the ledger, and never on a tenant's host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World

from provisioner.control.node.scheduler import Scheduler
from provisioner.daemon.daemon import Daemon
from provisioner.model.inventory import Power
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus, Operation, OperationStatus
from provisioner.planning.lifecycle.power_requests import (
    PowerAct,
    find_objection,
    judge_effect,
    read_want,
    write_want,
)

HOST = "su0-n00"
RESTS = {"state": State.QUARANTINED, "placement": Placement.MAINTENANCE, "vrf": "MAINT"}


class Bench:
    """One host that rests, and a daemon that does nothing by itself."""

    def __init__(self, world: World, daemon: Daemon) -> None:
        self.world = world
        self.daemon = daemon

    async def open(self, act: PowerAct, *, for_tenant: bool = False) -> Operation:
        now = self.world.clock.now()
        want = write_want(act, for_tenant=for_tenant)
        operation = await self.world.store.operations.open(HOST, want, now)
        assert operation is not None
        return operation

    async def drive(self, act: PowerAct, *, for_tenant: bool = False) -> Operation:
        operation = await self.open(act, for_tenant=for_tenant)
        await self.daemon.reconciler.drive(operation.id)
        ended = await self.world.store.operations.get(operation.id)
        assert ended is not None
        return ended

    async def entries(self) -> list[ActionStatus]:
        listed = await self.world.store.operations.list_entries(HOST)
        return [e.status for e in listed]

    def acts(self) -> list[str]:
        """The requests that the host got; "is Off" is what came of one."""
        log = [e.detail for e in self.world.site.machines[HOST].log if e.kind == "power"]
        return [detail for detail in log if not detail.startswith("is ")]


def with_bench(tmp_path: Path, story: Callable[[Bench], Awaitable[Any]], **changes: Any) -> Any:
    async def main() -> Any:
        world = World(tmp_path, nodes=1, seed=3)
        await world.take_in()
        node = await world.store.nodes.get(HOST)
        assert node is not None
        await world.store.nodes.save(node.model_copy(update=RESTS | changes))
        return await story(Bench(world, await world.build()))

    return virtual_time.run(main())


def test_a_host_is_switched_off_and_on_and_cycled(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        for act in (PowerAct.OFF, PowerAct.ON, PowerAct.CYCLE):
            ended = await bench.drive(act)
            assert (ended.status, ended.note) == (OperationStatus.DONE, f"it is {act.end}")
        assert bench.acts() == ["ForceOff", "On", "ForceOff", "On"]
        assert set(await bench.entries()) == {ActionStatus.CONFIRMED}
        rows = await bench.world.store.journal.list()
        steps = [r["detail"]["step"] for r in rows if r["kind"] == "step"]
        assert steps == ["power off", "power on", "power cycle"]
        await bench.drive(PowerAct.OFF)
        again = await bench.drive(PowerAct.OFF)
        assert again.status is OperationStatus.DONE
        assert bench.acts()[-2:] == ["On", "ForceOff"], "a host that is off gets no second request"

    with_bench(tmp_path, story)


SERVES = {
    "state": State.RELEASED,
    "placement": Placement.CUSTOMER,
    "vrf": "RED",
    "tenant": "red",
    "served": "red",
}


def test_a_host_that_serves_is_switched_at_its_tenants_wish_and_boots_anew(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        off = await bench.drive(PowerAct.OFF, for_tenant=True)
        assert (off.status, off.note) == (OperationStatus.DONE, "it is Off")
        on = await bench.drive(PowerAct.ON, for_tenant=True)
        assert on.status is OperationStatus.DONE
        first = on.note.partition("boot id ")[2].partition(",")[0]
        cycled = await bench.drive(PowerAct.CYCLE, for_tenant=True)
        assert first
        assert cycled.note.endswith(f"before: {first}")
        assert bench.acts() == ["ForceOff", "On", "ForceOff", "On"]
        node = await bench.world.store.nodes.get(HOST)
        assert node is not None
        assert (node.state, node.tenant) == (State.RELEASED, "red")

    with_bench(tmp_path, story, **SERVES)


def test_a_host_that_serves_is_not_switched_without_its_tenants_wish(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        ended = await bench.drive(PowerAct.CYCLE)
        assert ended.status is OperationStatus.PARKED
        assert "it serves red" in ended.note
        assert bench.acts() == []

    with_bench(tmp_path, story, **SERVES)


def test_a_tenants_wish_holds_for_a_host_that_serves_it_only() -> None:
    bmcs = ({"name": "host", "url": "https://10.0.0.9"},)
    bare = Node.model_validate({"id": HOST, "kind": "host", "bmcs": bmcs}, strict=False)
    host = bare.model_copy(update=RESTS)
    assert find_objection(host) is None
    no = find_objection(host, for_tenant=True)
    assert no is not None
    assert "it serves no tenant" in no.detail


def test_a_daemon_that_dies_between_off_and_on_is_followed_by_one_that_switches_on(
    tmp_path: Path,
) -> None:
    async def story(bench: Bench) -> None:
        operation = await bench.open(PowerAct.CYCLE)
        first = asyncio.create_task(bench.daemon.reconciler.drive(operation.id))
        while bench.acts() != ["ForceOff"]:
            await bench.world.clock.sleep(1.0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await bench.entries() == [ActionStatus.INTENDED]
        await (await bench.world.build()).reconciler.drive(operation.id)
        ended = await bench.world.store.operations.get(operation.id)
        assert ended is not None
        assert ended.status is OperationStatus.DONE
        assert await bench.entries() == [ActionStatus.ABSENT, ActionStatus.CONFIRMED]
        assert bench.acts() == ["ForceOff", "On"]

    with_bench(tmp_path, story)


def test_an_off_whose_answer_was_lost_is_adopted(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        settle = bench.world.store.operations.settle
        held = asyncio.Event()

        async def dying(*given: Any, **named: Any) -> Any:
            held.set()
            await asyncio.Event().wait()

        bench.world.store.operations.settle = dying
        operation = await bench.open(PowerAct.OFF)
        first = asyncio.create_task(bench.daemon.reconciler.drive(operation.id))
        await held.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        bench.world.store.operations.settle = settle
        await (await bench.world.build()).reconciler.drive(operation.id)
        assert await bench.entries() == [ActionStatus.CONFIRMED]
        assert bench.acts() == ["ForceOff"]

    with_bench(tmp_path, story)


def test_a_silent_bmc_parks_the_request_and_leaves_no_row_open(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.world.wire.lost = 1.0
        ended = await bench.drive(PowerAct.CYCLE)
        assert ended.status is OperationStatus.PARKED
        assert "unreachable" in ended.note
        assert ActionStatus.INTENDED not in await bench.entries()
        bench.world.wire.lost = 0.0
        assert (await bench.drive(PowerAct.OFF)).status is OperationStatus.DONE

    with_bench(tmp_path, story)


def test_a_host_that_got_a_tenant_meanwhile_is_left_alone(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        ended = await bench.drive(PowerAct.OFF)
        assert ended.status is OperationStatus.PARKED
        assert "it serves red" in ended.note
        assert (bench.acts(), await bench.entries()) == ([], [])

    serving = {"state": State.RELEASED, "placement": Placement.CUSTOMER, "tenant": "red"}
    with_bench(tmp_path, story, **serving)


def test_the_scheduler_hands_a_request_to_the_engine(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        operation = await bench.open(PowerAct.OFF)
        submitted: list[str] = []

        async def submit(operation_id: str) -> None:
            submitted.append(operation_id)

        scheduler = Scheduler(bench.daemon.context, submit, may_begin=lambda _: False)
        await scheduler.tick()
        assert submitted == [operation.id]

    with_bench(tmp_path, story)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"state": State.CERTIFIED}, ""),
        ({"state": State.REPAIRING}, ""),
        ({"kind": NodeKind.SWITCH}, "no host with a BMC"),
        ({"bmcs": ()}, "no host with a BMC"),
        ({"state": State.RELEASED, "tenant": "red"}, "it serves red"),
        ({"placement": Placement.CUSTOMER, "served": "VRF PROD"}, "it serves VRF PROD"),
        ({"placement": Placement.MIXED}, "not proved to be in the maintenance network"),
        ({"state": State.CONVERGING}, "it is converging"),
        ({"state": State.RETIRED}, "it is retired"),
        ({"state": State.CERTIFIED, "tenant": "red"}, "on its way to red"),
    ],
)
def test_only_a_host_that_rests_in_maintenance_is_switched(
    changes: dict[str, Any], why: str
) -> None:
    bmcs = ({"name": "host", "url": "https://10.0.0.9"},)
    node = Node.model_validate({"id": HOST, "kind": "host", "bmcs": bmcs}, strict=False)
    objection = find_objection(node.model_copy(update=RESTS | changes))
    assert (objection is None) == (why == "")
    assert objection is None or (why in objection.detail and objection.unblock)


@pytest.mark.parametrize(
    ("act", "before", "now", "happened"),
    [
        (PowerAct.OFF, Power.ON, Power.OFF, True),
        (PowerAct.OFF, Power.ON, Power.ON, False),
        (PowerAct.ON, Power.OFF, Power.ON, True),
        (PowerAct.ON, Power.OFF, Power.UNKNOWN, False),
        (PowerAct.CYCLE, Power.ON, Power.OFF, False),
        (PowerAct.CYCLE, Power.ON, Power.ON, None),
        (PowerAct.CYCLE, Power.OFF, Power.ON, True),
    ],
)
def test_the_effect_of_a_lost_request_is_read_from_the_device(
    act: PowerAct, before: Power, now: Power, happened: bool | None
) -> None:
    assert judge_effect(act, before, now) is happened


def test_only_the_purposes_of_power_requests_are_read_as_such() -> None:
    assert [read_want(w) for w in ("power off", "power", "power up", "certified", "power  on")] == [
        PowerAct.OFF, None, None, None, None,
    ]  # fmt: skip
