"""Cables of a node that is taken in, as both ends hear each other."""

from __future__ import annotations

from typing import Any

import pytest
from release_rig import CANARY, NODE, PEER, Bench, play
from test_release_order import TWO, alone
from test_release_recheck import looks
from test_release_recheck import silence as silence_host

from provisioner.execution.tenancy.tenancy import find_wrong_cables
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


@pytest.mark.parametrize("hears", [False, True])
def test_macs_are_read_where_a_port_hears_nobody_and_name_the_other_node(hears: bool) -> None:
    macs = {NODE: "0c:42:a1:00:00:01", PEER: "0c:42:a1:00:00:02"}

    async def scenario(bench: Bench) -> Any:
        mine, other = (bench.node(name).ports[0].interface for name in (NODE, PEER))
        for name, mac in macs.items():
            await bench.give_mac(name, "NIC_3", mac)
        bench.leaf.planted.macs = {macs[PEER]: mine, macs[NODE]: other}
        if not hears:
            bench.leaf.neighbours.clear()
            silence_host(bench)
        node = bench.node().model_copy(update={"state": State.INTAKE})
        calls = len(bench.rig.switches.calls)
        found = await bench.releases.list_miscablings(node)
        paths = [path for _, _, path in bench.rig.switches.calls[calls:]]
        return found, any("mac" in path for path in paths)

    found, read = play(scenario, TWO)

    assert read is not hears
    assert {b.reason for b in found} == (set() if hears else {Reason.CABLING})
    assert (PEER in str(found)) is not hears


def test_a_node_that_no_leaf_hears_is_not_judged_yet() -> None:
    async def scenario(bench: Bench) -> Any:
        for switch in bench.switches.values():
            switch.neighbours.clear()
        node = bench.node().model_copy(update={"state": State.INTAKE})
        return await bench.releases.list_miscablings(node), bench.rig.hosts.calls

    assert play(scenario, TWO) == ((), [])


@pytest.mark.parametrize("running", [True, False])
def test_a_node_that_runs_is_asked_itself_where_no_leaf_hears_it(running: bool) -> None:
    async def scenario(bench: Bench) -> Any:
        for switch in bench.switches.values():
            switch.neighbours.clear()
        rig = bench.rig
        await find_wrong_cables(rig.tenancy, looks(bench), bench.node(), running=running)
        return bool(rig.hosts.calls)

    assert play(scenario, TWO) is running
