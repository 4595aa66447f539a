"""Ports that a foreign hand puts into a customer's network while a node is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import World
from virtual_time import run

from provisioner.integrations.sim.site.truth import list_placements
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason

HOST = "su0-n00"


def _put(world: World, vrf: str) -> None:
    """All ports of the host into a network, in every tree of its leaves."""
    place = world.site.places[HOST]
    for rail in range(8):
        leaf = world.site.switches[place.name_leaf(rail)]
        for tree in (leaf.operational, leaf.applied, leaf.startup):
            tree["interface"][place.interface].setdefault("ip", {})["vrf"] = vrf


async def _until(world: World, *states: State) -> Node:
    end = world.clock.now() + 24 * 3600.0
    while world.clock.now() < end:
        await world.clock.sleep(10.0)
        node = await world.store.nodes.get(HOST)
        assert node is not None
        if node.state in states:
            return node
    raise AssertionError(f"it is {node.state}: {node.note}")


@pytest.mark.parametrize(
    "watch_ports_s",
    [
        pytest.param(60.0, id="watched", marks=pytest.mark.long),  # the driver alone must see it
        pytest.param(1e9, id="its driver alone"),
    ],
)
def test_no_certificate_is_signed_of_a_node_that_stands_in_a_customers_network(
    tmp_path: Path, watch_ports_s: float
) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 1, 5, watch_ports_s=watch_ports_s)
        world.cases = world.store.cases
        await world.take_in()
        await world.start()
        assert world.daemon is not None
        await _until(world, State.VALIDATING)
        await world.clock.sleep(30.0)
        _put(world, "RED")
        began = world.clock.now()
        seen = set()
        while set(list_placements(world.site, HOST).values()) != {"MAINT"}:
            await world.clock.sleep(5.0)
            seen.add((await world.store.nodes.get(HOST)).state)
            assert world.clock.now() - began < 4 * 3600.0
        assert State.CERTIFIED not in seen
        if watch_ports_s == 60.0:
            assert world.clock.now() - began < 120.0

        node = await _until(world, State.QUARANTINED, State.REPAIRING)
        assert {b.reason for b in node.blockers} == {Reason.TRESPASS}
        assert (node.served, node.certificate) == ("VRF RED", "")
        rows = await world.store.journal.list(0, 10_000)
        kinds = [r["kind"] for r in rows if r["node"] == HOST]
        assert kinds.index("trespass") < len(kinds) - kinds[::-1].index("fence")
        assert "certified" not in kinds
        await _until(world, State.REPAIRING)
        await world.clock.sleep(300.0)
        case = await world.cases.get_open(HOST)
        assert case is not None
        assert case.ticket is not None
        assert "Find out who" in case.ticket.work
        assert case.tries == ()
        await world.daemon.stop()

    run(scenario())
