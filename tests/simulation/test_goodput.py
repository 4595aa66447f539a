"""A small year of `make bench NAME=goodput`: what spares, rates and tests do to a job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from goodput_year import DAY_S, LLAMA, NO_HOST, Policy, Times, list_rates, play_year, repair_s

TIMES = Times(place_s=160.0, restart_s=60.0, write_s=0.5, remedy_s=600.0, people_s=86400.0)
MONTH_S = 30 * DAY_S


def test_the_rates_are_the_published_ones() -> None:
    assert sum(LLAMA.values()) == 419
    assert sum(list_rates("llama").values()) * 54 * DAY_S == pytest.approx(419)
    hours = 1 / (sum(list_rates("rsc").values()) * 3600)
    assert hours == pytest.approx(1.8, rel=0.02)  # the paper's own figure for 16,384 GPUs


def test_spares_turn_waits_for_repairs_into_minutes() -> None:
    years = [
        play_year(
            Policy(spares, 60.0),
            TIMES,
            list_rates("llama"),
            (),
            first_cures=False,
            length_s=MONTH_S,
        )
        for spares in (0, 1, 4)
    ]
    effective = [y.effective for y in years]
    assert effective == sorted(effective)
    assert (years[0].waits > 0, years[2].waits) == (True, 0)
    assert years[2].mttr_s == TIMES.place_s
    assert years[0].mttr_s > 3600


@pytest.mark.parametrize("cause", sorted(LLAMA.keys() - NO_HOST))
def test_every_cause_has_a_repair_and_tests_that_the_planners_choose(cause: str) -> None:
    first = repair_s(cause, "ab", TIMES, first_cures=True)
    people = repair_s(cause, "ab", TIMES, first_cures=False)
    deep = repair_s(cause, "abcd", TIMES, first_cures=False)
    assert 0 < first[1] < first[0] <= people[0] <= deep[0]
    assert people[0] >= TIMES.people_s


def test_a_year_is_played_again_exactly() -> None:
    policy = Policy(1, 300.0)
    first, again = (
        play_year(policy, TIMES, list_rates("rsc"), (3600.0,), first_cures=True, length_s=MONTH_S)
        for _ in range(2)
    )
    assert first == again
