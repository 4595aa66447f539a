"""A person's request to set the time of a node's BMCs: once at each, with its intent recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_power_requests import HOST, SERVES, Bench, with_bench

from provisioner.control.node.requested_acts import is_requested
from provisioner.model.inventory import BmcClock
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.operation import ActionStatus, Operation, OperationStatus
from provisioner.planning.lifecycle.operator_requests import (
    WANT,
    describe_effect,
    find_objection,
    is_set,
)

SERVERS = ("10.0.0.2", "10.0.0.3")
YEAR_S = 86_400.0 * 365


async def open_request(bench: Bench) -> Operation:
    operation = await bench.world.store.operations.open(HOST, WANT, bench.world.clock.now())
    assert operation is not None
    return operation


async def set_time(bench: Bench, operation: Operation | None = None) -> Operation:
    operation = operation or await open_request(bench)
    await (await bench.world.build()).reconciler.drive(operation.id)
    ended = await bench.world.store.operations.get(operation.id)
    assert ended is not None
    return ended


def set_back(bench: Bench) -> list[Any]:
    """Set the clocks of all BMCs of the host a year back, without time servers."""
    bmcs = list(bench.world.site.machines[HOST].bmcs.values())
    for bmc in bmcs:
        bmc.clock_offset_s = -YEAR_S
    return bmcs


async def give_servers(bench: Bench) -> None:
    bench.world.settings = bench.world.settings.model_copy(update={"bmc_ntp_servers": SERVERS})


@pytest.mark.parametrize("servers", [True, False])
def test_all_bmcs_of_a_serving_host_get_the_right_time(tmp_path: Path, *, servers: bool) -> None:
    async def story(bench: Bench) -> None:
        if servers:
            await give_servers(bench)
        bmcs = set_back(bench)
        ended = await set_time(bench)
        node = await bench.world.store.nodes.get(HOST)
        assert node is not None
        count = len(node.bmcs)
        assert ended.status is OperationStatus.DONE, ended.note
        assert ended.note == f"the time of {count} of {count} BMCs is set"
        assert await bench.entries() == [ActionStatus.CONFIRMED] * count
        assert len(bmcs) >= count > 1
        assert sum(abs(bmc.clock_offset_s) < 30 for bmc in bmcs) >= count
        assert (node.state, node.tenant, bench.acts()) == (State.RELEASED, "red", [])
        rows = await bench.world.store.journal.list()
        assert [r["detail"]["step"] for r in rows if r["kind"] == "step"][-1] == WANT

    with_bench(tmp_path, story, **SERVES)


def test_a_successor_goes_on_with_the_bmcs_that_are_left(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await give_servers(bench)
        set_back(bench)
        operation = await open_request(bench)
        first = asyncio.create_task((await bench.world.build()).reconciler.drive(operation.id))
        while ActionStatus.CONFIRMED not in await bench.entries():
            await bench.world.clock.sleep(0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        ended = await set_time(bench, operation)
        assert ended.status is OperationStatus.DONE, ended.note
        rows = await bench.world.store.operations.list_entries(HOST)
        confirmed = [r.action for r in rows if r.status is ActionStatus.CONFIRMED]
        assert len(confirmed) == len(set(confirmed)), "none of them is set twice"

    with_bench(tmp_path, story)


def test_silent_bmcs_park_the_request_and_leave_no_row_open(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.world.wire.lost = 1.0
        ended = await set_time(bench)
        assert ended.status is OperationStatus.PARKED
        assert ended.note.startswith("the time of 0 of ")
        assert "unreachable" in ended.note
        assert ActionStatus.INTENDED not in await bench.entries()

    with_bench(tmp_path, story)


@pytest.mark.parametrize(
    ("want", "requested"),
    [(WANT, True), ("power off", True), ("credentials", False), ("converge", False)],
)
def test_the_scheduler_hands_on_what_people_opened(want: str, *, requested: bool) -> None:
    assert is_requested(want) is requested


BMC = {"name": "host", "url": "https://10.0.0.9"}
NODE = Node.model_validate({"id": HOST, "kind": "host", "bmcs": (BMC,)}, strict=False)


@pytest.mark.parametrize(
    ("changes", "admitted"),
    [
        ({}, True),
        ({"state": State.RELEASED, "tenant": "red"}, True),
        ({"state": State.RETIRED}, False),
        ({"kind": NodeKind.SWITCH}, False),
        ({"bmcs": ()}, False),
    ],
)
def test_a_host_with_a_bmc_in_use_may_have_it(changes: dict[str, Any], *, admitted: bool) -> None:
    assert (find_objection(NODE.model_copy(update=changes)) is None) is admitted


def test_the_effect_names_the_bmcs_and_the_servers() -> None:
    assert describe_effect(NODE, SERVERS)[0] == (
        f"The BMCs host of {HOST} get the NTP servers 10.0.0.2, 10.0.0.3."
    )
    assert "the daemon's time once" in describe_effect(NODE, ())[0]


@pytest.mark.parametrize(
    ("shown", "servers", "right"),
    [
        ({"skew_s": -400.0, "ntp": True, "ntp_servers": SERVERS}, SERVERS, True),
        ({"skew_s": 0.0, "ntp": False, "ntp_servers": SERVERS}, SERVERS, False),
        ({"skew_s": 0.0, "ntp": True, "ntp_servers": ("10.9.9.9",)}, SERVERS, False),
        ({"skew_s": 2.0, "ntp": None}, SERVERS, True),
        ({"skew_s": 40.0, "ntp": None}, SERVERS, False),
        ({"skew_s": None, "ntp": None}, SERVERS, False),
        ({"skew_s": 2.0, "ntp": True, "ntp_servers": ("10.9.9.9",)}, (), True),
        (None, SERVERS, False),
    ],
)
def test_the_time_is_right_by_servers_or_by_the_clock(
    shown: dict[str, Any] | None, servers: tuple[str, ...], *, right: bool
) -> None:
    clock = None if shown is None else BmcClock(source="/redfish/v1/Managers/1", **shown)

    assert is_set(clock, servers) is right
