"""Cables of a node that is taken in, as both ends hear each other."""

from __future__ import annotations

from typing import Any

import pytest
from release_rig import CANARY, PEER, Bench, play
from test_release_order import TWO, alone

from provisioner.model.node import State
from provisioner.model.outcome import Reason


@pytest.mark.parametrize(
    "changes",
    [{"state": State.CERTIFIED}, {"address": ""}],
    ids=["certified", "without an address"],
)
def test_cables_are_judged_only_while_a_node_is_taken_in(changes: dict[str, Any]) -> None:
    async def scenario(bench: Bench) -> Any:
        calls = len(bench.rig.switches.calls)
        node = bench.node().model_copy(update={"state": State.INTAKE, **changes})
        found = await bench.releases.list_miscablings(node)
        return found, len(bench.rig.switches.calls) - calls

    assert play(scenario, TWO) == ((), 0)


def test_a_cable_in_another_nodes_port_is_named_at_both_ends() -> None:
    async def scenario(bench: Bench) -> Any:
        mine, other = bench.port, bench.rig.nodes[PEER].ports[0].interface
        cards = bench.leaf.neighbours
        cards[mine], cards[other] = cards[other], cards[mine]
        node = bench.node().model_copy(update={"state": State.INTAKE})
        found = await bench.releases.list_miscablings(node)
        without = await alone(bench, rechecks=False).list_miscablings(node)
        return found, without

    found, without = play(scenario, TWO)

    assert without == ()
    assert {b.reason for b in found} == {Reason.CABLING}
    assert CANARY not in str(found)
