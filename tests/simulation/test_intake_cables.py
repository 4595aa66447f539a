"""A node whose cables are not as planned is not worked on: both true ends are named first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import virtual_time
from rig import World

from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason

ONE, OTHER, LEAF = "su0-n00", "su0-n01", "leaf-su0-r3"


def ports(leaf: Switch) -> dict[str, str]:
    """Whose each port of a leaf is."""
    return {end.system: name for name, end in leaf.neighbours.items()}


def exchange(world: World, one: str = ONE, other: str = OTHER) -> None:
    """The cables of two nodes at one leaf, as all three hear it."""
    leaf = world.site.switches[LEAF]
    mine = ports(leaf)
    for at, whose in ((mine[one], other), (mine[other], one)):
        leaf.planted.lldp[at] = (whose, leaf.neighbours[mine[whose]].port)
        view = world.site.hosts[whose]
        view.cables = tuple(replace(c, interface=at) if c.rail == 3 else c for c in view.cables)


async def taken_in(directory: Path) -> dict[str, Node]:
    world = World(directory, nodes=3, seed=1)
    exchange(world)
    await world.take_in()
    await world.start()
    try:
        for _ in range(60):
            await world.clock.sleep(30.0)
            nodes = {n.id: n for n in await world.store.nodes.list()}
            past = (State.DISCOVERED, State.INTAKE)
            if not any(n.state in past for n in nodes.values() if n.ports):
                break
    finally:
        await world.crash()
        await world.store.close()
    return nodes


def test_exchanged_cables_stop_both_nodes_at_intake_and_nobody_else(tmp_path: Path) -> None:
    nodes = virtual_time.run(taken_in(tmp_path))

    assert {name: n.state for name, n in nodes.items() if n.ports} == {
        ONE: State.QUARANTINED,
        OTHER: State.QUARANTINED,
        "su0-n02": State.CONVERGING,
    }
    for name in (ONE, OTHER):
        first = nodes[name].blockers[0]
        assert first.reason is Reason.CABLING
        assert f"{ONE}/NIC_3" in first.unblock
        assert f"{OTHER}/NIC_3" in first.unblock
