"""Who meets whom: nobody twice in a round, and everybody in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.planning.fault_location import round_robin as rounds


@given(st.integers(1, 70), st.integers(0, 200))
def test_the_circle_method_seats_everybody_once_a_round(count: int, number: int) -> None:
    names = [f"n{i}" for i in range(count)]

    pairs = rounds.pair_by_circle(names, number)

    seated = [n for pair in pairs for n in pair]
    assert len(seated) == len(set(seated)) == count - count % 2


@pytest.mark.parametrize("count", [2, 7, 8, 33])
def test_the_circle_method_lets_everybody_meet(count: int) -> None:
    names = [f"n{i}" for i in range(count)]

    met = {frozenset(p) for r in range(count) for p in rounds.pair_by_circle(names, r)}

    assert len(met) == count * (count - 1) // 2


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 9), st.integers(3, 9))
def test_no_round_seats_anybody_twice(sizes: list[int], number: int, bunch: int) -> None:
    groups = [[f"g{g}n{i}" for i in range(size)] for g, size in enumerate(sizes)]

    for tests in (
        rounds.pair_within(groups, number),
        rounds.pair_across(groups, number),
        rounds.split_into_groups(groups, bunch, number),
    ):
        seated = [n for test in tests for n in test]
        assert len(seated) == len(set(seated))
