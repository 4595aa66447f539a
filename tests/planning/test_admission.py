"""How much may be out of service at once, as sentences."""

from __future__ import annotations

import pytest

from provisioner.model.inventory import Activation
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.planning.lifecycle.admission import (
    find_admission_reasons,
    find_busy_neighbours,
    switch_limit,
    tier_of,
)

PERCENT = 25


def step(disruption: Disruption = Disruption.SWITCH) -> Step:
    return Step(
        kind=StepKind.ACTIVATE,
        activation=Activation.IMAGE_REBOOT,
        disruption=disruption,
        duration_s=600,
        expected=(),
        reason="test",
    )


def switch(name: str, state: State = State.CONVERGING) -> Node:
    return Node(id=name, kind=NodeKind.SWITCH, state=state)


def host(state: State, *leaves: str, name: str = "n0") -> Node:
    ports = tuple(
        Port(switch=leaf, interface="swp1", rail=rail, nic_slot=f"NIC_{rail}")
        for rail, leaf in enumerate(leaves)
    )
    return Node(id=name, kind=NodeKind.HOST, state=state, ports=ports)


LEAVES = [switch(f"leaf-{i}") for i in range(8)]
SPINES = [switch(f"spine-{i}") for i in range(4)]
FABRIC = [*LEAVES, *SPINES]

# sentence: (switch that is to go down, hosts, what is down, word of each reason)
CASES: dict[str, tuple[Node, list[Node], list[str], list[str]]] = {
    "nothing is down: it may": (LEAVES[0], [], [], []),
    "one of eight leaves is down: a second may": (LEAVES[0], [], ["leaf-1"], []),
    "two of eight are the limit": (LEAVES[0], [], ["leaf-1", "leaf-2"], ["2 of 8 leaf"]),
    "a spine that is down keeps no leaf up": (LEAVES[0], [], ["spine-0", "spine-1"], []),
    "one of four spines is the limit": (SPINES[0], [], ["spine-1"], ["1 of 4 spine"]),
    "its own outage does not count twice": (SPINES[0], [], ["spine-0"], []),
    "a host on it that is released holds it": (
        LEAVES[0],
        [host(State.RELEASED, "leaf-0")],
        [],
        ["n0 and 0 more use"],
    ),
    "a host on it that is validated holds it": (
        LEAVES[0],
        [host(State.VALIDATING, "leaf-1", "leaf-0"), host(State.RELEASED, "leaf-0", name="n1")],
        [],
        ["n0 and 1 more use"],
    ),
    "a host on it that converges does not": (
        LEAVES[0],
        [host(State.CONVERGING, "leaf-0")],
        [],
        [],
    ),
    "a released host on another leaf does not": (
        LEAVES[0],
        [host(State.RELEASED, "leaf-1")],
        [],
        [],
    ),
    "every reason is named": (
        LEAVES[0],
        [host(State.RELEASED, "leaf-0")],
        ["leaf-1", "leaf-2"],
        ["limit 2", "use this switch"],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_a_switch_goes_down(sentence: str) -> None:
    node, hosts, down, words = CASES[sentence]
    disrupted = dict.fromkeys(down, Disruption.SWITCH)

    reasons = find_admission_reasons(node, step(), [*FABRIC, *hosts], disrupted, PERCENT)

    assert len(reasons) == len(words)
    assert [w for w, r in zip(words, reasons, strict=True) if w not in r] == []


@pytest.mark.parametrize("disruption", [d for d in Disruption if d is not Disruption.SWITCH])
def test_a_step_that_leaves_the_switch_up_waits_for_nobody(disruption: Disruption) -> None:
    hosts = [host(State.RELEASED, "leaf-0")]
    disrupted = dict.fromkeys(("leaf-1", "leaf-2", "leaf-3"), Disruption.SWITCH)

    assert (
        find_admission_reasons(LEAVES[0], step(disruption), [*FABRIC, *hosts], disrupted, PERCENT)
        == ()
    )


def test_a_host_takes_no_switch_down() -> None:
    node = host(State.CONVERGING, "leaf-0")

    assert find_admission_reasons(node, step(), [*FABRIC, node], {}, PERCENT) == ()


@pytest.mark.parametrize(
    ("count", "percent", "limit"),
    [(8, 25, 2), (7, 25, 1), (4, 25, 1), (1, 25, 1), (3, 1, 1), (8, 100, 8), (0, 25, 1)],
)
def test_the_limit_is_rounded_down_but_at_least_one(count: int, percent: int, limit: int) -> None:
    assert switch_limit(count, percent) == limit


def test_a_tier_is_the_first_word_of_a_name() -> None:
    assert (tier_of(switch("leaf-su0-r0")), tier_of(switch("spine-3"))) == ("leaf", "spine")


@pytest.mark.parametrize("state", list(State))
def test_a_host_waits_for_the_switches_on_its_cables_until_they_are_in_service(
    state: State,
) -> None:
    on_its_way = {State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING}
    on_its_way |= {State.DRAINING}
    nodes = {n.id: n for n in (switch("leaf-0", state), switch("leaf-1", State.RELEASED))}

    busy = find_busy_neighbours(host(State.CERTIFIED, "leaf-1", "leaf-0"), nodes)

    assert busy == (("leaf-0",) if state in on_its_way else ())


def test_a_switch_that_nobody_has_taken_in_is_waited_for() -> None:
    assert find_busy_neighbours(host(State.CERTIFIED, "leaf-9", "leaf-9", "leaf-8"), {}) == (
        "leaf-8",
        "leaf-9",
    )


RAIL_0 = [
    host(State.CONVERGING, "leaf-0", name="n0"),
    host(State.CONVERGING, "leaf-1", name="n1"),
    host(State.CONVERGING, "leaf-7", "leaf-2", name="n2"),
]


@pytest.mark.parametrize(
    ("down", "words"),
    [
        ("leaf-1", ["leaf-1 carries rail 0 as well and is down"]),
        ("leaf-2", []),
        ("spine-0", []),
    ],
)
def test_two_leaves_of_a_rail_are_never_down_together(down: str, words: list[str]) -> None:
    disrupted = {down: Disruption.SWITCH}

    assert (
        list(find_admission_reasons(LEAVES[0], step(), [*FABRIC, *RAIL_0], disrupted, PERCENT))
        == words
    )


def test_the_limit_of_spines_holds_in_each_plane_too() -> None:
    spines = [switch(f"spine-p{plane}-{i}") for plane in range(2) for i in range(4)]

    def said(*down: str) -> tuple[str, ...]:
        disrupted = dict.fromkeys(down, Disruption.SWITCH)
        return find_admission_reasons(spines[0], step(), spines, disrupted, PERCENT)

    assert said() == ()
    assert said("spine-p1-0") == ()
    assert ["of one plane" in reason for reason in said("spine-p0-1")] == [True]
