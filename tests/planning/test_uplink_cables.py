"""Cables between leaves, spines and superspines: what both ends hear, against the address plan."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from provisioner.integrations.site_examination.judging import Examined, Standing
from provisioner.integrations.site_examination.uplinks import judge_uplinks, list_uplinks
from provisioner.model.location import SwitchPlace
from provisioner.model.switch import Heard, Surroundings
from provisioner.planning.places.address_plan import AddressPlan, Names, Widths
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

PLAN = AddressPlan(
    tiers=3, pods=2, units=2, nodes=4, rails=2, planes=2, spines=2, superspines=2,
    widths=Widths(plane=1, unit=7),
    names=Names(
        node="p{pod}-su{unit}-n{node:02}", leaf="leaf-p{plane}-pod{pod}-su{unit}-r{number}",
        spine="spine-p{plane}-pod{pod}-{number}", superspine="superspine-p{plane}-{number}",
        rack="p{pod}-su{unit}-rack{rack}",
    ),
)  # fmt: skip
LEAF, SPINE, SUPERSPINE = "leaf-p0-pod0-su0-r0", "spine-p0-pod0-0", "superspine-p0-0"
Around = dict[str, dict[str, tuple[str, str]]]


def list_switches() -> frozenset[str]:
    ports = Ports(Addressing(PLAN))
    tiers = (("leaf", 2, 2, 2), ("spine", 2, 1, 2), ("superspine", 1, 1, 4))
    return frozenset(
        ports.name_switch(SwitchPlace(tier, pod, unit, number, plane))
        for tier, pods, units, numbers in tiers
        for pod in range(pods)
        for unit in range(units)
        for number in range(numbers)
        for plane in range(2)
    )


SITE = list_switches()
PLANNED = list_uplinks(PLAN, SITE)


def cabled() -> Around:
    """Every switch hears what the plan says, and its first port a host."""
    around: Around = {name: {"swp64s1": ("su0-n00", "eth0")} for name in SITE}
    for low, high in PLANNED.items():
        around[low[0]][low[1]] = high
        around[high[0]][high[1]] = low
    return around


def judged(around: Mapping[str, Mapping[str, tuple[str, str]]]) -> dict[str, Examined]:
    seen = {
        name: Surroundings(name, {port: frozenset({Heard(*end)}) for port, end in ports.items()})
        for name, ports in around.items()
    }
    return {one.subject: one for one in judge_uplinks(PLAN, SITE, seen)}


def not_good(found: Mapping[str, Examined]) -> set[str]:
    return {name for name, one in found.items() if one.standing is not Standing.GOOD}


def test_all_tiers_and_planes_of_a_plan_are_compared() -> None:
    # 16 leaves with two uplinks, eight spines with two
    assert len(PLANNED) == 16 * 2 + 8 * 2
    found = judged(cabled())

    assert (set(found), not_good(found)) == (set(SITE), set())
    assert found[SPINE].detail == "6 cables to other switches are as planned"


@pytest.mark.parametrize("tier", [LEAF, SPINE])
def test_two_exchanged_uplinks_are_named_with_what_to_move(tier: str) -> None:
    around = cabled()
    (one, first), (two, second) = [(a, b) for a, b in PLANNED.items() if a[0] == tier]
    around[tier] |= {one[1]: second, two[1]: first}
    around[first[0]][first[1]] = two
    around[second[0]][second[1]] = one

    found = judged(around)

    # each cable is told once, at one of its ends
    assert not_good(found) <= {tier, first[0], second[0]}
    told = " ".join(e.detail + e.remedy for n, e in found.items() if n in not_good(found))
    assert "swapped" in told
    assert f"Exchange the plugs at {'/'.join(second)} and {'/'.join(first)}" in told


def test_a_cable_into_another_plane_is_a_wrong_port() -> None:
    around = cabled()
    low, high = next((a, b) for a, b in PLANNED.items() if a[0] == SPINE)
    other = ("superspine-p1-0", high[1])
    lost = next(a for a, b in PLANNED.items() if b == other)
    del around[high[0]][high[1]], around[lost[0]][lost[1]]
    around[low[0]][low[1]] = other
    around[other[0]][other[1]] = low

    found = judged(around)

    assert f"{'/'.join(low)} should see {'/'.join(high)} and sees {'/'.join(other)}" in (
        found[SPINE].detail
    )
    assert f"Move the plug from {'/'.join(other)} to {'/'.join(high)}." in found[SPINE].remedy


def test_a_missing_cable_is_told_and_a_silent_end_is_another_fault() -> None:
    around = cabled()
    (one, first), (_, second) = [(a, b) for a, b in PLANNED.items() if a[0] == LEAF]
    del around[LEAF][one[1]], around[first[0]][first[1]]
    del around[second[0]][second[1]]

    found = judged(around)

    assert not_good(found) == {LEAF, second[0]}
    assert found[LEAF].detail.startswith("missing: ")
    assert "reports no neighbour" in found[second[0]].remedy


def test_a_switch_that_was_not_read_is_not_looked_at_and_accuses_nobody() -> None:
    around = cabled()
    del around[SPINE]

    found = judged(around)

    assert not_good(found) == {SPINE}
    assert found[SPINE].standing is Standing.NOT_LOOKED
    del around[LEAF]  # its cable to that spine was read by neither end
    assert not_good(judged(around)) == {SPINE, LEAF}


def test_a_switch_with_other_names_of_ports_is_compared_by_hand() -> None:
    around = cabled()
    around[SPINE] = {f"Ethernet{n}": end for n, end in enumerate(around[SPINE].values())}

    found = judged(around)

    assert not_good(found) == {SPINE}
    assert "otherwise" in found[SPINE].remedy


def test_a_name_with_its_domain_and_a_second_device_behind_a_port_are_no_fault() -> None:
    around = cabled()
    low, high = next(iter(PLANNED.items()))
    around[low[0]][low[1]] = (f"{high[0]}.example.com", high[1])
    seen = {
        name: Surroundings(
            name,
            {p: frozenset({Heard(*end), Heard("a-probe", "eth1")}) for p, end in ports.items()},
        )
        for name, ports in around.items()
    }

    assert {e.standing for e in judge_uplinks(PLAN, SITE, seen)} == {Standing.GOOD}


@pytest.mark.parametrize(
    "site",
    [
        frozenset({"tor-a", "tor-b"}),  # no name of the plan
        frozenset(name for name in SITE if "spine" not in name),  # nothing above the leaves
    ],
)
def test_a_site_without_a_planned_cable_is_told_that_nothing_was_compared(
    site: frozenset[str],
) -> None:
    (told,) = judge_uplinks(PLAN, site, {name: Surroundings(name, {}) for name in site})

    assert told.standing is Standing.NOT_LOOKED
    assert "none was compared" in told.detail
