"""Whatever is upgraded at once, each leaf keeps a spine and each spine a superspine, by its cables.

The groups come from names; what is proved comes from the plan's cables (`find_uplink_ends`).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.control.campaigns.campaign_facts import read_fleet
from provisioner.model.campaign import Campaign, Policy
from provisioner.model.inventory import Activation
from provisioner.model.location import SwitchPlace, Uplink
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.planning.campaigns.limits import count_used, switch_groups
from provisioner.planning.lifecycle.admission import find_admission_reasons
from provisioner.planning.places.address_plan import AddressPlan, Names, Widths
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports, list_switch_groups

NAMES = [  # the number last, the plane last, the tier's word in the middle, the number first
    ("spine-p{plane}-pod{pod}-{number}", "superspine-p{plane}-{number}"),
    ("spine-p{pod}-{number}-{plane}", "ss-{number}-{plane}"),
    ("dc1-pod{pod}-spine-{number}-{plane}", "dc1-{plane}-ss{number}"),
    ("s{number}-pod{pod}-p{plane}", "u{number}-p{plane}"),
]
STEP = Step(
    kind=StepKind.ACTIVATE,
    activation=Activation.IMAGE_REBOOT,
    disruption=Disruption.SWITCH,
    duration_s=600,
    expected=(),
    reason="test",
)


def plan_of(names: tuple[str, str], planes: int = 2, superspines: int = 3) -> AddressPlan:
    return AddressPlan(
        tiers=3,
        pods=2,
        units=1,
        planes=planes,
        spines=3,
        superspines=superspines,
        widths=Widths(plane=1, unit=7),
        names=Names(
            leaf="leaf-p{plane}-pod{pod}-su{unit}-r{number}", spine=names[0], superspine=names[1]
        ),
    )


def build_switches(plan: AddressPlan) -> tuple[list[Node], list[frozenset[str]]]:
    """Return the switches above the leaves, and what each switch below has above it."""
    ports = Ports(Addressing(plan))
    lower = [
        SwitchPlace("leaf", pod, unit, number, plane)
        for pod in range(plan.pods)
        for unit in range(plan.units)
        for number in range(plan.leaves)
        for plane in range(plan.planes)
    ]
    lower += [
        SwitchPlace("spine", pod, 0, number, plane)
        for pod in range(plan.pods)
        for number in range(plan.spines)
        for plane in range(plan.planes)
    ]
    above = [
        frozenset(
            ports.find_uplink_ends(Uplink(place, n))[1][0]
            for n in range(ports.count_uplinks(place))
        )
        for place in lower
    ]
    names = sorted(frozenset().union(*above))
    return [Node(id=n, kind=NodeKind.SWITCH, state=State.CONVERGING) for n in names], above


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(NAMES),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 100),
    st.data(),
)
def test_no_upgrade_takes_the_last_switch_above_another(
    names: tuple[str, str], planes: int, superspines: int, percent: int, data: st.DataObject
) -> None:
    plan = plan_of(names, planes, superspines)
    nodes, above = build_switches(plan)
    broken = data.draw(st.sets(st.sampled_from([n.id for n in nodes]), max_size=2))
    nodes = [
        n.model_copy(update={"state": State.QUARANTINED}) if n.id in broken else n for n in nodes
    ]
    down: dict[str, Disruption] = {}

    for node in data.draw(st.permutations(nodes)):
        if not find_admission_reasons(node, STEP, nodes, down, percent, plan):
            down[node.id] = Disruption.SWITCH

    out = broken | set(down)
    cut = [group for group in above if len(group) > 1 and group <= out and not group <= broken]
    assert cut == []
    assert down or broken  # it is no answer to admit nothing


def test_a_superspine_of_one_number_goes_down_beside_those_of_others() -> None:
    plan = plan_of(NAMES[0])
    nodes, _ = build_switches(plan)
    by_name = {n.id: n for n in nodes}

    def ask(name: str, *down: str, percent: int = 100, **states: State) -> tuple[str, ...]:
        moved = {n.replace("_", "-"): state for n, state in states.items()}
        now = [n.model_copy(update={"state": moved[n.id]}) if n.id in moved else n for n in nodes]
        gone = dict.fromkeys(down, Disruption.SWITCH)
        return find_admission_reasons(by_name[name], STEP, now, gone, percent, plan)

    first = "superspine-p0-0"  # 0 to 2 serve the spines of number 0
    assert ask(first, "superspine-p0-3", "superspine-p0-4", "superspine-p1-1") == ()
    assert ask(first, "superspine-p0-1") == ()
    (both,) = ask(first, "superspine-p0-1", "superspine-p0-2")
    assert "no other of the superspines of spine number 0, plane 0 carries on" in both
    (limit,) = ask(first, "superspine-p0-1", percent=34)
    assert "1 of 3 superspines of spine number 0, plane 0 are down, limit 1" in limit
    for state in (State.QUARANTINED, State.DISCOVERED, State.INTAKE):
        (absent,) = ask(first, "superspine-p0-1", superspine_p0_2=state)
        assert "bring one back, or retire it" in absent
    assert ask(first, "superspine-p0-1", superspine_p0_2=State.RELEASED) == ()
    (retired,) = ask(first, "superspine-p0-1", superspine_p0_2=State.RETIRED)
    assert "superspine-p0-1 and 0 more" in retired


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("leaf-p0-pod1-su0-r3", ()),
        ("spine-p1-pod1-2", ("spines of pod 1, plane 1",)),
        ("superspine-p1-8", ("superspines of spine number 2, plane 1", "superspines, plane 1")),
        ("superspine-p1-9", ("superspine-p1 switches of one plane",)),  # the plan has nine
        ("front-su0-l1", ()),  # the plan has no front-end
        ("border-1", ("border switches of one plane",)),
        ("border", ()),
    ],
)
def test_a_switchs_name_tells_its_groups(name: str, groups: tuple[str, ...]) -> None:
    plan = plan_of(NAMES[0])

    if name == "front-su0-l1":
        two = plan.model_copy(update={"front_leaves": 2, "pods": 1})
        assert list_switch_groups(name, two) == ("front switches of pod 0, unit 0",)
    else:
        assert list_switch_groups(name, plan) == groups


@pytest.mark.parametrize("names", NAMES)
def test_a_campaign_leaves_one_of_each_group_whatever_its_limits(names: tuple[str, str]) -> None:
    plan = plan_of(names, planes=1)
    nodes, above = build_switches(plan)
    policy = Policy(switch_limits={})
    campaign = Campaign(
        id="c0001", release="r", select="all", baseline="r", created_at=0.0, policy=policy
    )
    facts = read_fleet(nodes, campaign, (), (), 0.0, plan)

    _, owners = switch_groups(facts, policy)

    for group in above:
        numbers = [n for n, fact in enumerate(facts) if fact.name in group]
        used = count_used(owners, numbers)
        assert any(u > g.limit for u, g in zip(used, owners.groups, strict=True))
        used = count_used(owners, numbers[1:])
        assert all(u <= g.limit for u, g in zip(used, owners.groups, strict=True))
