"""A new OS for the upper tiers of five stages: no switch below is ever cut off, by its cables.

`make bench NAME=pod` does the same with 4,096 nodes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from bench_pod import Fabric, build, keeps_rails, measure, measure_leaves


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build(pods=1)


def test_all_spines_and_superspines_are_done_one_of_a_plane_at_a_time(fabric: Fabric) -> None:
    seen = measure(fabric)

    assert seen["done"] == seen["switches"] == 8 * 2 + 8 * 2 * 2
    assert (seen["cut_off"], seen["out_of_a_plane"], seen["held"]) == (0, 1, 0)
    assert seen["uplinks_left_percent"] == 50.0  # a spine with one of its two superspines


def test_a_broken_superspine_holds_its_plane_and_the_other_goes_on(fabric: Fabric) -> None:
    seen = measure(fabric, frozenset({"superspine-p0-0"}))

    assert (seen["done"], seen["held"], seen["cut_off"]) == (24, 23, 0)
    assert any("superspines of spine number 0, plane 0" in why for why in seen["held_because"])


def test_the_count_by_cables_sees_a_cut_that_the_groups_would_not(fabric: Fabric) -> None:
    """The checker itself: without groups and planes both superspines above a spine go at once."""
    free = [n.model_copy(update={"groups": (), "planes": ()}) for n in fabric.nodes]

    assert measure(Fabric(tuple(free), fabric.above))["cut_off"] > 0


@pytest.mark.long
def test_leaves_go_one_of_a_plane_at_a_time_and_no_host_serves_without_a_rail() -> None:
    seen = measure_leaves(build(pods=1, leaves=True))

    assert keeps_rails(seen)
    assert (seen["leaves"], seen["held"]) == (8 * 8 * 2, 0)
    assert seen["hosts_serving_percent"] >= 75.0  # two units of eight are below leaves at most


def test_the_count_by_cables_sees_hosts_that_were_not_drained() -> None:
    """The checker itself: a host that the campaign takes for idle is not drained."""
    fabric = build(pods=1, leaves=True)
    free = [n.model_copy(update={"tenant": ""}) if n.leaves else n for n in fabric.nodes]

    assert not keeps_rails(measure_leaves(Fabric(tuple(free), fabric.above)))
