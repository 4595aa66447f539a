"""What watching every port of every leaf costs at 65,536 nodes, and the time to a fence.

    python tests/bench/bench_leaf_watch.py [nodes]      (65536 without; 2048 for a quick one)

Real: the watch of leaves with its rows in a SQLite file, tenancy, leaf, the words of Cumulus, JSON
both ways. Simulated: leaves of 64 ports of which 32 are cabled to nodes, as NVUE answers; a few
serve for all 16,384, since a leaf's answer costs the same whoever is asked. A third of the nodes is
released, so that a third of the ports stands in a customer's network with a row that says so.
Only CPU time of this process counts, that of the simulated leaves taken off. The time to the fence
is measured on one leaf in virtual time, over looks at random moments: from a foreign hand's change
until the port forwards in the maintenance network again. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import this_machine
from bench_release import Fleet
from sqlalchemy import Connection, insert
from virtual_time import run

from provisioner.control.context import Context
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.control.watch.leaf_watch import ROUND_S, LeafWatch
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import Tenant
from provisioner.ports import Call, Reply, SwitchAddress
from provisioner.settings import Settings
from provisioner.store import open_store
from provisioner.store.rows import node_rows
from provisioner.store.schema import schema

NODES, RAILS, PER_LEAF = 65_536, 8, 32
LOOKS = 300
FENCES = 40


async def nobody(_node: Node, _why: Any) -> None:
    """No node is taken back here."""


class MeteredFleet(Fleet):
    """Simulated leaves that answer at once; what they cost is taken off."""

    def __init__(self, nodes: int, *, wire: bool) -> None:
        super().__init__(nodes)
        self.spent_s, self.wire = 0.0, wire

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        if self.wire:
            return await super().request(switch, call)
        self.requests += 1
        began = time.process_time()
        reply = self.answered(switch, call)
        self.spent_s += time.process_time() - began
        return reply


def rows(nodes: int, leaves: list[str], cabled: list[str]) -> list[Node]:
    """Hosts with a port at each of eight leaves, a third of them released; and all leaves.

    `leaves`: the simulated ones that answer for all; `cabled`: their ports, by the node's place.
    """
    found: list[Node] = []
    for number in range(nodes):
        unit, at = divmod(number, PER_LEAF)
        ports = tuple(
            Port(switch=f"u{unit}-r{rail}", interface=cabled[at], rail=rail,
                 nic_slot=f"NIC_{rail}", address=f"172.{rail}.{at}.1/31")
            for rail in range(RAILS)
        )  # fmt: skip
        changes: dict[str, Any] = {"state": State.CERTIFIED, "placement": Placement.MAINTENANCE}
        if at % 3 == 0:
            changes = {"state": State.RELEASED, "placement": Placement.CUSTOMER, "vrf": "RED"}
        found.append(Node(id=f"n{number}", kind=NodeKind.HOST, fenced_at=1.0, ports=ports,
                          tenant="red" if at % 3 == 0 else "", **changes))  # fmt: skip
    for unit in range(-(-nodes // PER_LEAF)):
        found += [
            Node(id=f"u{unit}-r{rail}", kind=NodeKind.SWITCH, address=f"https://{leaves[rail]}")
            for rail in range(RAILS)
        ]
    return found


def kept(connection: Connection, nodes: list[Node]) -> None:
    """Rows as the store has them."""
    for number, node in enumerate(nodes, 1):
        row = node_rows._columns(node) | {"id": node.id, "changed": number}
        connection.execute(insert(schema.nodes).values(**row))


async def cost(nodes: int, folder: Path) -> dict[str, Any]:
    """CPU of rounds and looks at full size."""
    fleet = MeteredFleet(PER_LEAF, wire=False)
    cabled = [ports[0].interface for ports in fleet.hosts.values()]
    assert len(cabled) == PER_LEAF
    for leaf in fleet.switches.values():
        for at, name in enumerate(cabled):
            for tree in (leaf.operational, leaf.applied, leaf.startup):
                vrf = "MAINT" if at % 3 else "RED"
                tree["interface"][name].setdefault("ip", {})["vrf"] = vrf
        for number in range(40, 72):
            leaf.add_port(f"swp{number}")
    store = open_store(folder / "store.db", inline=True)
    await store.write(lambda c: kept(c, rows(nodes, sorted(fleet.switches), cabled)))
    await store.tenants.put(Tenant(name="red", vrf="RED"))
    tenancy = Tenancy(fleet.effects, store)
    context = Context(store, fleet.clock, Settings())
    watch = LeafWatch(context, tenancy, IsolationViolations(store, fleet.clock), nobody)
    began = time.process_time()
    await watch.run_round()
    first_s = time.process_time() - began
    await watch.close()
    began = time.process_time()
    for _ in range(20):
        await watch.run_round()
        await watch.close()
    round_s = (time.process_time() - began) / 20
    names = random.Random("leaf watch").sample(sorted(watch._due), min(LOOKS, len(watch._due)))
    fleet.spent_s, fleet.requests = 0.0, 0
    began = time.process_time()
    for name in names:
        await watch.check_leaf(name)
    look_s = (time.process_time() - began - fleet.spent_s) / len(names)
    assert len(watch.read) >= len(names)
    assert fleet.requests == 4 * len(names)  # nothing was suspected
    leaves, every_s = len(watch._due), Settings().watch_ports_s
    await store.close()
    return {
        "leaves": leaves,
        "ports": nodes * RAILS,
        "requests_a_look": round(fleet.requests / len(names), 2),
        "look_ms": round(1000 * look_s, 3),
        "round_ms": round(1000 * round_s, 2),
        "first_round_s": round(first_s, 2),
        "requests_a_s": round(leaves * fleet.requests / len(names) / every_s, 1),
        "cores": round(leaves * look_s / every_s + round_s / ROUND_S, 3),
    }


async def fences() -> list[float]:
    """Virtual seconds from a foreign hand's change of a quarantined node's port to its fence."""
    fleet = MeteredFleet(1, wire=True)
    store = open_store(":memory:", inline=True)
    [(name, ports)] = fleet.hosts.items()
    quarantined = Node(id=name, kind=NodeKind.HOST, ports=ports, state=State.QUARANTINED,
                       placement=Placement.MAINTENANCE, fenced_at=1.0)  # fmt: skip
    await store.nodes.add(quarantined)
    for leaf in fleet.switches:
        await store.nodes.add(Node(id=leaf, kind=NodeKind.SWITCH, address=f"https://{leaf}"))
    tenancy = Tenancy(fleet.effects, store)
    blocked = (await tenancy.fence(ports)).blockers
    assert not blocked, blocked
    context = Context(store, fleet.clock, Settings())
    watch = LeafWatch(context, tenancy, IsolationViolations(store, fleet.clock), nobody)
    watching = asyncio.create_task(watch.run())
    rng, took = random.Random("hands"), []
    for _ in range(FENCES):
        await fleet.clock.sleep(rng.uniform(0.0, 300.0))
        port = rng.choice(ports)
        leaf = fleet.switches[port.switch]
        for tree in (leaf.operational, leaf.applied, leaf.startup):
            tree["interface"][port.interface]["ip"]["vrf"] = "RED"
        began = fleet.clock.now()
        while leaf.get_vrf(port.interface) != "MAINT":
            await fleet.clock.sleep(0.1)
            fleet.schedule.advance(fleet.clock.now())
            assert fleet.clock.now() - began < 1000.0
        took.append(fleet.clock.now() - began)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await tenancy.close()
    await store.close()
    return took


def main() -> None:
    """Measure both, and print a line for each."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    with tempfile.TemporaryDirectory() as folder:
        told = run(cost(nodes, Path(folder)))
    sys.stdout.write(f"{nodes} nodes: {told}\n")
    took = run(fences())
    told |= {
        "fence_median_s": round(statistics.median(took), 1),
        "fence_max_s": round(max(took), 1),
        "fences": len(took),
    }
    sys.stdout.write(json.dumps({"nodes": nodes, **told, **this_machine.told()}) + "\n")


if __name__ == "__main__":
    main()
