"""Leaves where the node has no port and its tenant has some: routes come there, and old ones go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from release_rig import FEW, MATRIX, NODE, Bench, bad, play, trees

from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.release_sequence import Releases
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.release.port_isolation import FAR_LEAVES_MAX, far_leaves

FAR = "leaf-su0-r7"  # of another node of the tenant; the released one has no cable there
PLAN = AddressPlan(route_target_as=64512, vni_first=5001)


async def without_a_cable_there(bench: Bench) -> None:
    ports = tuple(p for p in bench.node().ports if p.switch != FAR)
    node = bench.node().model_copy(update={"ports": ports})
    bench.rig.nodes[NODE] = await bench.rig.store.nodes.save(node)


def old_route(leaf: Switch) -> None:
    leaf.planted.routes.append(("MAINT", "172.96.0.0/31", "bgp", "MAINT"))


def not_learnt(leaf: Switch) -> None:
    leaf.planted.missing.add("172.96.0.0/31")


def taken_by_another(leaf: Switch) -> None:
    for tree in trees(leaf):
        bgp = tree["vrf"]["BLUE"]["router"]["bgp"]
        bgp["route-import"]["from-evpn"]["route-target"]["64512:5001"] = {}


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (old_route, GateCheck.REMAINDER),
        (not_learnt, GateCheck.REMOTE_ROUTE),
        (taken_by_another, GateCheck.FOREIGN_TARGETS),
    ],
)
def test_a_leaf_elsewhere_keeps_the_node_back(
    plant: Callable[[Switch], None], check: GateCheck
) -> None:
    async def scenario(bench: Bench) -> Any:
        await without_a_cable_there(bench)
        plant(bench.switches[FAR])
        return await bench.release()

    outcome = play(scenario, FEW)

    assert {r.subject for r in bad(outcome) if r.check is check} == {FAR}
    assert outcome.blockers


def test_a_leaf_elsewhere_that_does_not_answer_is_no_proof() -> None:
    async def scenario(bench: Bench) -> Any:
        await without_a_cable_there(bench)
        bench.rig.site.nvue[FAR].reachable = lambda: False
        return await bench.release()

    outcome = play(scenario, FEW)

    assert {(r.subject, r.verdict) for r in bad(outcome)} == {(FAR, RowVerdict.UNKNOWN)}


def test_the_address_plan_says_which_route_target_a_tenant_has() -> None:
    async def scenario(bench: Bench) -> Any:
        for leaf in bench.switches.values():
            for tree in trees(leaf) if leaf.name.startswith("leaf") else ():
                bgp = tree["vrf"]["RED"]["router"]["bgp"]
                bgp["route-import"]["from-evpn"]["route-target"] = {"64512:5999": {}}
                bgp["route-export"]["to-evpn"]["route-target"] = {"64512:5999": {}}
        rig = bench.rig
        rig.tenancy = Tenancy(rig.effects, rig.store, PLAN)
        rechecks = Rechecks(rig.effects, rig.store, MATRIX)
        bench.releases = Releases(rig.effects, rig.store, rig.tenancy, rechecks)
        return await bench.release()

    wrong = [r for r in bad(play(scenario, FEW)) if r.check is GateCheck.TARGETS]

    assert wrong
    assert {r.seen for r in wrong} <= {
        "RED no longer takes in 64512:5001",
        "RED takes in 64512:5999",
    }


def test_few_leaves_are_looked_at_and_not_always_the_same() -> None:
    def host(number: int, state: State = State.RELEASED) -> Node:
        port = Port(switch=f"leaf{number}", interface="swp1", rail=0, nic_slot="N")
        return Node(id=f"n{number}", kind=NodeKind.HOST, vrf="RED", state=state, ports=(port,))

    nodes = [host(n) for n in range(100)]

    chosen = [far_leaves(n, "RED", nodes) for n in nodes]

    assert {len(c) for c in chosen} == {FAR_LEAVES_MAX}
    assert len(set(chosen)) > 90
    assert far_leaves(nodes[0], "RED", [nodes[0], host(1, State.CERTIFIED)]) == ()
    assert far_leaves(nodes[0], "BLUE", nodes) == ()
