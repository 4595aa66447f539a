"""Parts above the leaves: a pod's spines, their uplinks, the superspines, and planes."""

from __future__ import annotations

import random

import pytest
from planted import World, fabric_of, isolate, name_of, tier_parts

from provisioner.model.fabric_session import FabricMember, FabricRun, FabricSession, RailRun
from provisioner.model.location import Port, RailEnd
from provisioner.model.outcome import Reason
from provisioner.planning.fault_location import fabric_rounds
from provisioner.planning.fault_location.fabric_session import SessionPolicy
from provisioner.planning.fault_location.isolation_words import (
    Culprit,
    Fabric,
    FabricLink,
    FabricNode,
    FabricTest,
    IsolationPolicy,
    Verdicts,
)
from provisioner.planning.places.address_plan import AddressPlan, Names, Widths
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports, name_groups_above

ABOVE = (Culprit.POD_SPINE, Culprit.POD_UPLINK, Culprit.SUPERSPINE)
PODS = fabric_of(64, rails=4, unit=8, pod=16)
POLICY = SessionPolicy()


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize("kind", ABOVE)
def test_a_part_above_the_leaves_is_named_and_everything_below_is_cleared(
    kind: Culprit, rate: float
) -> None:
    world = World(PODS, random.Random(f"{kind} {rate}"), rate=rate)
    world.shared = {world.rng.choice(tier_parts(PODS, kind))}

    verdicts = isolate(world, IsolationPolicy())

    assert {name_of(b) for b in verdicts.condemned} == world.planted()
    assert (verdicts.undecided, verdicts.held) == ((), "")
    assert verdicts.cleared == len(PODS.leaf_of)


def test_a_bad_link_below_bad_superspines_is_named_too() -> None:
    world = World(PODS, random.Random(2))
    world.shared = set(tier_parts(PODS, Culprit.SUPERSPINE))
    world.links = {("n0021", 2)}

    verdicts = isolate(world, IsolationPolicy())

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_above_the_leaves_is_blamed_for_bad_nodes_and_leaves(seed: int) -> None:
    world = World(PODS, random.Random(seed))
    world.nodes = {"n0003", "n0040"}
    world.leaves = {"su5-rail1"}

    verdicts = isolate(world, IsolationPolicy())

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


def test_of_two_pods_that_do_not_reach_each_other_nothing_between_them_is_condemned() -> None:
    fabric = fabric_of(32, rails=4, unit=8, pod=16)
    world = World(fabric, random.Random(1))
    world.shared = {(Culprit.POD_UPLINK, "uplinks of spines of pod 1")}

    verdicts = isolate(world, IsolationPolicy())

    assert (verdicts.condemned, verdicts.held) == ((), "")
    assert {(b.culprit, b.group) for b in verdicts.undecided} == {
        (Culprit.POD_UPLINK, "uplinks of spines of pod 0"),
        (Culprit.POD_UPLINK, "uplinks of spines of pod 1"),
        (Culprit.SUPERSPINE, "superspines"),
    }


def only_one_unit_of_pod_0(rails: int) -> Fabric:
    whole = fabric_of(48, rails=rails, unit=8, pod=16)
    return Fabric(nodes=(*whole.nodes[:8], *whole.nodes[16:]))


@pytest.mark.parametrize("kind", [Culprit.POD_SPINE, Culprit.POD_UPLINK])
@pytest.mark.parametrize("rails", [1, 4])
def test_paths_that_every_test_crosses_together_are_in_doubt_together(
    kind: Culprit, rails: int
) -> None:
    """Of a pod of which one leaf a rail is tested, its spines and their uplinks are one path."""
    fabric = only_one_unit_of_pod_0(rails)
    world = World(fabric, random.Random(3))
    world.shared = {tier_parts(fabric, kind)[0]}

    verdicts = isolate(world, IsolationPolicy())

    assert verdicts.condemned == ()
    assert {Culprit.POD_SPINE, Culprit.POD_UPLINK} <= {b.culprit for b in verdicts.undecided}
    assert (Culprit.UPLINK in {b.culprit for b in verdicts.undecided}) == (rails == 1)
    assert verdicts.cleared == len(fabric.leaf_of)


def test_a_leaf_of_one_plane_is_never_blamed_alone_where_tests_are_spread_over_two() -> None:
    links = [FabricLink(rail=r, leaf=f"p{p}-r{r}") for r in range(2) for p in range(2)]
    nodes = [FabricNode(name=f"n{n:04}", links=tuple(links)) for n in range(8)]
    fabric = Fabric(nodes=tuple(nodes))
    world = World(fabric, random.Random(3))
    world.leaves = {"p0-r1"}

    verdicts = isolate(world, IsolationPolicy())

    assert verdicts.condemned == ()
    assert {b.leaf for b in verdicts.undecided if b.culprit is Culprit.LEAF} == {"p0-r1", "p1-r1"}


# --- sessions on nodes of an address plan


NAMES = Names(
    node="p{pod}-su{unit}-n{node:02}",
    leaf="leaf-p{plane}-pod{pod}-su{unit}-r{number}",
    spine="spine-p{plane}-pod{pod}-{number}",
    superspine="superspine-p{plane}-{number}",
    rack="p{pod}-su{unit}-rack{rack}",
)


def plan_of(planes: int) -> AddressPlan:
    return AddressPlan(
        tiers=3, pods=4, units=2, nodes=4, rails=2, planes=planes, spines=2, superspines=2,
        widths=Widths(plane=1, unit=7), names=NAMES,
    )  # fmt: skip


def members_of(plan: AddressPlan) -> tuple[FabricMember, ...]:
    ports = Ports(Addressing(plan))
    places = [(pod, unit, n) for pod in range(4) for unit in range(2) for n in range(4)]
    members = []
    for place in places:
        mine = []
        for rail in range(plan.rails):
            for plane in reversed(range(plan.planes)):
                leaf, interface = ports.name_leaf_end(RailEnd(*place, rail, plane))
                slot = f"NIC_{rail}"
                mine.append(Port(switch=leaf, interface=interface, rail=rail, nic_slot=slot))
        name = ports.name_node(RailEnd(*place, 0))
        members.append(
            FabricMember(node=name, seeks=True, bound="b", entered_at=0.0, ports=tuple(mine))
        )
    return tuple(members)


def lived(plan: AddressPlan, pods_apart: set[str]) -> tuple[FabricSession, Verdicts]:
    """To the verdicts of a session in which these pods (or all: "") reach no other."""
    begun = FabricSession(
        id="s", vrf="MAINT", release="r", profile="p", opened_at=0.0, members=members_of(plan)
    )
    above = above_of(plan, begun)
    for _ in range(40):
        step = fabric_rounds.decide_next(begun, POLICY, above)
        if isinstance(step, Verdicts):
            return begun, step
        runs = tuple(_run(test, step.number, pods_apart) for test in step.tests)
        begun = begun.model_copy(update={"runs": (*begun.runs, *runs)})
    raise AssertionError("it does not end")


def above_of(plan: AddressPlan, begun: FabricSession) -> fabric_rounds.Above:
    leaves = {p.switch for m in begun.members for p in m.ports}
    return {leaf: name_groups_above(leaf, plan) for leaf in leaves}


def _run(test: FabricTest, number: int, pods_apart: set[str]) -> FabricRun:
    pods = {name.partition("-")[0] for name in test.nodes}
    bad = len(pods) > 1 and bool((pods | {""}) & pods_apart)
    results = tuple(
        RailRun(rail=rail, shown="pass", gbit_s=500.0 if bad else 778.0) for rail in test.rails
    )
    return fabric_rounds.record_not_run(test, number).model_copy(update={"results": results})


@pytest.mark.parametrize(
    ("apart", "subject", "held_back"),
    [
        (set(), "", 0),
        ({"p2"}, "uplinks of spines of pod 2", 8),
        ({""}, "superspines", 32),
    ],
)
def test_a_session_names_the_superspines_to_the_nodes_that_depend_on_them(
    apart: set[str], subject: str, held_back: int
) -> None:
    plan = plan_of(1)
    ended, verdicts = lived(plan, apart)

    found = fabric_rounds.find_outcome_blockers(ended, verdicts, POLICY, above_of(plan, ended))

    blocked = {name: listed for name, listed in found.items() if listed}
    assert len(blocked) == held_back
    assert {b.subject for listed in blocked.values() for b in listed} == ({subject} - {""})
    assert all(b.reason is Reason.FABRIC for listed in blocked.values() for b in listed)
    assert all("none tells which" in listed[0].unblock for listed in blocked.values())
    assert all(name.startswith(tuple(apart)) for name in blocked)


def test_where_rails_are_in_two_planes_no_plane_is_blamed_for_the_other() -> None:
    plan = plan_of(2)
    ended, verdicts = lived(plan, {""})

    assert verdicts.condemned == ()
    groups = {b.group for b in verdicts.undecided if b.culprit is Culprit.SUPERSPINE}
    assert groups == {"superspines, plane 0", "superspines, plane 1"}
    found = fabric_rounds.find_outcome_blockers(ended, verdicts, POLICY, above_of(plan, ended))
    assert all(b.reason is Reason.CHECK_SKIPPED for listed in found.values() for b in listed)
    assert all(found.values())


@pytest.mark.parametrize(
    ("name", "above"),
    [
        ("leaf-p1-pod3-su0-r1", ("spines of pod 3, plane 1", "superspines, plane 1")),
        ("leaf-p2-pod3-su0-r1", ("", "")),  # the plan has two planes
        ("spine-p1-pod3-0", ("", "")),
        ("border-1", ("", "")),
    ],
)
def test_a_leaf_tells_what_is_above_it(name: str, above: tuple[str, str]) -> None:
    assert name_groups_above(name, plan_of(2)) == above
    assert name_groups_above(name, None) == ("", "")
