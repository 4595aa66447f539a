"""A cable in the wrong place is named with both true ends, whoever reports it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks.cabling import CableFault, compare

PLAN = {(f"n{n}", f"eth{r}"): (f"leaf{r}", f"swp{n}") for n in range(4) for r in range(3)}


def as_cabled(cables: dict) -> dict:
    """What both ends of every cable report."""
    return {**cables, **{b: a for a, b in cables.items()}}


def faults(seen: dict) -> list[tuple[CableFault, str, str]]:
    return [
        (f.fault, "/".join(f.at), "/".join(f.neighbour) if f.neighbour else "")
        for f in compare(PLAN, seen)
    ]


def test_cables_as_planned_have_no_fault():
    assert compare(PLAN, as_cabled(PLAN)) == ()


def test_two_swapped_rails_of_one_host_are_both_named_with_their_true_ends():
    cables = PLAN | {("n1", "eth0"): ("leaf2", "swp1"), ("n1", "eth2"): ("leaf0", "swp1")}
    found = compare(PLAN, as_cabled(cables))

    assert faults(as_cabled(cables)) == [
        (CableFault.SWAPPED, "n1/eth0", "leaf2/swp1"),
        (CableFault.SWAPPED, "n1/eth2", "leaf0/swp1"),
    ]
    assert "n1/eth0 belongs into leaf0/swp1" in found[0].remedy
    assert "should see leaf0/swp1 and sees leaf2/swp1" in str(found[0])


def test_a_swap_is_seen_by_the_leaves_alone():
    cables = PLAN | {("n1", "eth0"): ("leaf0", "swp2"), ("n2", "eth0"): ("leaf0", "swp1")}
    seen = {b: a for a, b in cables.items()}  # the hosts run no LLDP

    assert {f for f, _, _ in faults(seen)} >= {CableFault.SWAPPED}


def test_what_one_end_does_not_report_is_one_fault():
    seen = as_cabled(PLAN)
    del seen["leaf1", "swp3"]
    assert faults(seen) == [(CableFault.ONE_SIDED, "leaf1/swp3", "")]

    del seen["n3", "eth1"]
    assert faults(seen) == [(CableFault.MISSING, "n3/eth1", "")]


def test_a_cable_in_a_port_of_another_is_to_be_moved_and_the_other_is_missing():
    cables = {a: b for a, b in PLAN.items() if a != ("n3", "eth0")}
    cables["n0", "eth0"] = ("leaf0", "swp3")

    assert faults(as_cabled(cables)) == [
        (CableFault.WRONG_PORT, "n0/eth0", "leaf0/swp3"),
        (CableFault.MISSING, "n3/eth0", ""),
        (CableFault.MISSING, "leaf0/swp0", ""),
    ]


def test_a_stranger_is_named():
    cables = {a: b for a, b in PLAN.items() if a != ("n0", "eth0")}
    cables["laptop", "en0"] = ("leaf0", "swp0")

    assert faults(as_cabled(cables)) == [(CableFault.FOREIGN, "leaf0/swp0", "laptop/en0")]


def test_two_ends_that_tell_different_things_are_not_believed():
    seen = as_cabled(PLAN) | {("n0", "eth0"): ("leaf0", "swp2")}

    assert CableFault.DISAGREE in {f for f, _, _ in faults(seen)}


@given(st.permutations(sorted(PLAN.values())))
def test_every_moved_cable_is_named_and_no_other(order):
    cables = dict(zip(sorted(PLAN), order, strict=True))
    moved = {a for a, b in cables.items() if PLAN[a] != b}
    found = compare(PLAN, as_cabled(cables))

    assert {f.at for f in found} == moved
    assert all(f.neighbour == cables[f.at] and f.planned == PLAN[f.at] for f in found)
    assert all(f.fault in (CableFault.SWAPPED, CableFault.WRONG_PORT) for f in found)


@pytest.mark.parametrize("silent", ["host", "leaf"])
def test_one_silent_side_is_never_no_fault(silent):
    seen = {a: b for a, b in as_cabled(PLAN).items() if a[0].startswith("n") == (silent == "leaf")}

    assert len(compare(PLAN, seen)) == len(PLAN)
