"""`provisioner explain` on a data directory that a daemon left behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from given_events import event_of
from program import Done, run

from provisioner.daemon.data import open_data
from provisioner.model.alert import Alert
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason

NOW = 1_700_000_000.0
BLOCKER = Blocker(
    reason=Reason.CHECK_FAILED,
    subject="gpu_inventory/GPU_SXM_5",
    detail="[red]7 of 8\x1b[2J",
    unblock="Reseat it.",
)
NODE = Node(
    id="n1",
    kind=NodeKind.HOST,
    state=State.QUARANTINED,
    entered_at=NOW,
    placement=Placement.MAINTENANCE,
    release="spectrum-x-1.3.0",
    profile="hgx-h100-bf3",
    blockers=(BLOCKER,),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("explain")

    async def fill() -> None:
        async with open_data(directory / "data", NOW) as opened:
            store = opened.store
            await store.nodes.add(NODE)
            operation = await store.operations.open("n1", "journey", NOW)
            assert operation is not None
            operation = await store.operations.take(operation.id)
            part = Component(kind="host.bmc", slot="host", version="1.0", source="/redfish/v1")
            seen = Inventory(node="n1", vendor="generic", components=(part,))
            await store.operations.record(operation, inventory=seen, now=NOW)
            detail = {"from": "validating", "to": "quarantined", "why": str(BLOCKER)}
            await store.journal.append(event_of("state", "n1", detail), NOW)
            alert = Alert(
                node="n1", id="FanFailed", target="FAN_1", source="watch", since=NOW, last_at=NOW
            )
            await store.alerts.put([alert], [], NOW)

    asyncio.run(fill())
    return directory


def explain(place: Path, *words: str) -> Done:
    return run(["explain", *words, "--data", "data"], place)


def test_a_quarantined_node_is_explained_with_its_plan_its_alerts_and_its_way_out(place: Path):
    done = explain(place, "n1")

    assert done.returncode == 0
    for words in ("What it is:", "It came from validating", "FanFailed of FAN_1", "Reseat it."):
        assert words in done.stdout
    assert "node retry n1" in done.stdout


def test_what_a_device_said_is_neither_markup_nor_control(place: Path):
    done = explain(place, "n1")

    assert "[red]7 of 8" in done.stdout
    assert "\x1b" not in done.stdout


def test_for_machines_it_is_one_object(place: Path):
    told = json.loads(explain(place, "n1", "--json").stdout)

    assert (told["node"], set(told)) == ("n1", {"node", "what", "why", "next", "unblock", "step"})


def test_a_node_that_nobody_knows_is_a_slip_of_the_pen(place: Path):
    done = explain(place, "n9")

    assert (done.returncode, "no such node" in done.stderr) == (4, True)
