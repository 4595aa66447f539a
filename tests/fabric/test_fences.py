"""A fence that stops half way is written down as what it is: the ports may be anywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from release_rig import FEW, LEAF, NODE, Bench, play

from provisioner.control.context import Context
from provisioner.control.node.performer import Performer
from provisioner.execution.actions.hold import Hold
from provisioner.model.node import Placement
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle.decide import Fence
from provisioner.ports import StaleWrite


async def fenced(
    bench: Bench, stored: Placement, seen: Placement, *, overtaken: bool = False
) -> Any:
    """What a fence reports of a node, where its row says that it is, and how often it was said.

    `seen`: where the turn's own reading found its ports. `overtaken`: somebody writes the node's
    row while the ports are moved.
    """
    nobody: Any = None  # asked for nothing by a fence
    store, clock = bench.rig.store, bench.rig.clock
    performer = Performer(
        Context(store, clock, bench.rig.effects.settings),
        observer=nobody,
        identifier=nobody,
        executor=nobody,
        tenancy=bench.rig.tenancy,
        eraser=nobody,
        certifier=nobody,
    )
    node = await store.nodes.save(bench.node().model_copy(update={"placement": stored}))
    opened = await store.operations.open(NODE, "journey", clock.now())
    hold = Hold(store, clock, await store.operations.take(opened.id))
    other = asyncio.create_task(_write_note(bench)) if overtaken else None
    try:
        problems = await performer.perform(
            hold, node.model_copy(update={"placement": seen}), Fence(), None
        )
    except StaleWrite as stale:
        problems = stale
    if other is not None:
        await other
    rows = await store.journal.list()
    said = [r["detail"]["confirmed"] for r in rows if r["kind"] == "fence"]
    return problems, await store.nodes.get(NODE), said


async def _write_note(bench: Bench) -> None:
    """A person's word on the node's row, as soon as a leaf is asked to change."""
    while not bench.leaf.revisions or not any(r.changes for r in bench.leaf.revisions.values()):
        await bench.rig.clock.sleep(0.05)
    node = await bench.rig.store.nodes.get(NODE)
    assert node is not None
    await bench.rig.store.nodes.save(node.model_copy(update={"note": "a person's word"}))


def silent(bench: Bench) -> None:
    bench.rig.site.nvue[LEAF].reachable = lambda: False


def refusing(bench: Bench) -> None:
    bench.leaf.faults.add("apply_fails")


def halfway(plant: Any, stored: Placement, seen: Placement) -> Any:
    """A fence of a node in RED, whose one leaf does not follow."""

    async def scenario(bench: Bench) -> Any:
        await bench.release()
        plant(bench)
        return await fenced(bench, stored, seen)

    return play(scenario, FEW)


def test_a_fence_is_written_down_with_where_every_port_was_read() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        began = bench.rig.clock.now()
        return (*await fenced(bench, Placement.MIXED, Placement.MIXED), began)

    problems, node, said, began = play(scenario, FEW)

    assert (problems, said) == ((), [True])
    assert (node.placement, node.vrf) == (Placement.MAINTENANCE, "MAINT")
    assert node.fenced_at > began


@pytest.mark.parametrize("seen", [Placement.MIXED, Placement.CUSTOMER])
def test_a_half_fence_of_a_node_that_was_thought_to_be_fenced_is_written_down(
    seen: Placement,
) -> None:
    problems, node, said = halfway(refusing, Placement.MAINTENANCE, seen)

    assert [(b.reason, b.subject) for b in problems] == [(Reason.SWITCH_REFUSED, LEAF)]
    assert (node.placement, node.vrf) == (Placement.MIXED, "")
    assert said == [False]


def test_a_node_that_was_read_elsewhere_is_not_fenced_while_a_leaf_is_silent() -> None:
    problems, node, said = halfway(silent, Placement.MAINTENANCE, Placement.MIXED)

    assert {b.reason for b in problems} == {Reason.UNREACHABLE}
    assert (node.placement, said) == (Placement.MIXED, [False])


def test_a_half_fence_is_written_down_once() -> None:
    _, node, said = halfway(refusing, Placement.MIXED, Placement.MIXED)

    assert (node.placement, said) == (Placement.MIXED, [])


def test_a_customers_node_stays_a_customers_while_nothing_of_its_fence_is_known() -> None:
    problems, node, said = halfway(silent, Placement.CUSTOMER, Placement.CUSTOMER)

    assert problems
    assert (node.placement, said) == (Placement.CUSTOMER, [])


@pytest.mark.parametrize(
    ("plant", "confirmed"), [(None, True), (refusing, False)], ids=["whole", "half"]
)
def test_the_journal_keeps_a_fence_where_the_nodes_row_was_changed_meanwhile(
    plant: Any, confirmed: bool
) -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        if plant is not None:
            plant(bench)
        given = (bench, Placement.MAINTENANCE, Placement.MIXED)
        problems, node, _ = await fenced(*given, overtaken=True)
        rows = [r for r in await bench.rig.store.journal.list() if r["kind"] == "fence"]
        return problems, node, [(r["node"], r["detail"]) for r in rows]

    problems, node, rows = play(scenario, FEW)

    assert isinstance(problems, StaleWrite)  # the driver looks again, at the newer row
    assert (node.note, node.placement) == ("a person's word", Placement.MAINTENANCE)
    ((subject, detail),) = rows
    assert subject == NODE
    assert (detail["confirmed"], detail["row"]) == (confirmed, "changed meanwhile")
    if confirmed:
        assert {p["vrf"] for p in detail["placements"]} == {"MAINT"}
