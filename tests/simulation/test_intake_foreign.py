"""Intake of a node that serves: its ports are read first, and nothing is moved without a word."""

from __future__ import annotations

from pathlib import Path

from rig import World
from virtual_time import run

from provisioner.integrations.sim.site.truth import list_placements
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle import operator_requests as requests

HOST = "su0-n00"


def _serve(world: World, vrf: str) -> None:
    """Another system has put one of the host's ports into a network of its own."""
    place = world.site.places[HOST]
    leaf = world.site.switches[place.name_leaf(3)]
    leaf.add_vrf(vrf, 65000)
    for tree in (leaf.operational, leaf.applied, leaf.startup):
        tree["interface"][place.interface].setdefault("ip", {})["vrf"] = vrf


async def _until(world: World, state: State) -> Node:
    end = world.clock.now() + 4 * 3600.0
    while world.clock.now() < end:
        await world.clock.sleep(30.0)
        node = await world.store.nodes.get(HOST)
        assert node is not None
        if node.state is state:
            return node
    raise AssertionError(f"it is {node.state}: {node.note}")


def test_a_port_in_a_foreign_network_stops_the_intake_until_a_person_takes_the_node(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 1, 5)
        _serve(world, "PROD")
        before = list_placements(world.site, HOST)
        await world.take_in()
        await world.start()
        assert world.daemon is not None

        node = await _until(world, State.QUARANTINED)
        assert [b.reason for b in node.blockers] == [Reason.TRESPASS]
        assert "PROD" in node.blockers[0].detail
        assert "--take su0-n00" in node.blockers[0].unblock
        await world.clock.sleep(3600.0)
        assert list_placements(world.site, HOST) == before
        assert (await world.store.nodes.get(HOST)).served == ""

        given = requests.take_ports(await world.store.nodes.get(HOST), world.clock.now())
        assert isinstance(given, Node), given
        await world.store.nodes.save(given)
        node = await _until(world, State.CONVERGING)
        assert set(list_placements(world.site, HOST).values()) == {"MAINT"}
        assert (node.served, node.taken) == ("VRF PROD", False)
        await world.daemon.stop()

    run(scenario())


def test_a_node_whose_ports_are_ours_cannot_be_taken() -> None:
    fenced = Node(id="n", kind="host", fenced_at=1.0)

    assert requests.take_ports(fenced, 2.0) == (
        "it was taken in already: its ports are the provisioner's to move"
    )
