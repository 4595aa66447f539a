"""Ports that are counted at their leaf: what was lost between two looks, and what is forgotten."""

from __future__ import annotations

import pytest

from provisioner.control.watch.alert_keeper import PortReport, PortWatch
from provisioner.integrations.cumulus.services import read_counters
from provisioner.planning.watch.watch_rules import Counters

AT = 1_790_000_000.0


def look(number: int, changes: int, link: str = "up", boot: str = "") -> PortReport:
    """One of the looks, a quarter of an hour after the one before."""
    at = AT + 900 * number
    counters = Counters(at=at, boot=boot, values={"carrier_changes": changes})
    return PortReport(node="n1", port="leaf/swp1", counters=counters, link=link, at=at)


def told(*looks: PortReport, later_s: float = 0) -> list[str]:
    watch = PortWatch()
    for one in looks:
        watch.take(one)
    return [f.id for f in watch.list_standing(looks[-1].at + later_s).get("n1", [])]


@pytest.mark.parametrize(
    ("looks", "ids"),
    [
        ([look(0, 90)], []),  # what was counted before anybody looked
        ([look(0, 0), look(1, 2)], []),  # one loss
        ([look(n, 2 * n) for n in range(5)], []),  # four, one between each two looks
        ([look(n, 2 * n) for n in range(6)], ["LinkFlap"]),  # five within a day
        ([look(0, 0), look(1, 1, "down"), look(2, 2)], []),  # the one loss that was also seen
        ([look(0, 5), look(1, 3), look(2, 3)], []),  # the leaf was restarted
    ],
)
def test_losses_between_two_looks_count_once(looks, ids):
    assert told(*looks) == ids


def test_a_port_that_stays_down_is_told_after_four_minutes():
    down = [look(0, 0), look(1, 1, "down")]

    assert (told(*down, later_s=200), told(*down, later_s=300)) == ([], ["LinkDown"])


def test_what_happened_between_two_tenants_is_forgotten():
    watch = PortWatch()
    watch.take(look(0, 0))
    watch.forget({"n1"})
    watch.take(look(1, 40))  # the leaf was upgraded, the node restarted

    assert watch.list_standing(AT + 1000) == {"n1": []}


@pytest.mark.parametrize(
    ("answer", "changes"),
    [
        ({"carrier-transitions": 7}, 7),
        ({"carrier-transitions": True}, None),
        ({"carrier-transitions": -1}, None),
        ({"carrier-transitions": 2**70}, None),
        ({"carrier-transitions": "7"}, None),
        ({}, None),  # SONiC does not count them
        (None, None),
        ([], None),
    ],
)
def test_a_leaf_that_does_not_count_changes_says_nothing(answer, changes):
    assert read_counters(answer).carrier_changes == changes
