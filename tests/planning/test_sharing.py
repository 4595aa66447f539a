"""Daemons share operations: nothing is left over, and nothing goes to and fro."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.planning.lifecycle.admission import compute_share, has_too_many

COUNTS = st.integers(0, 100_000)


@given(COUNTS, st.integers(1, 9), st.integers(1, 65_536))
def test_all_together_drive_all_or_as_many_as_they_may(
    active: int, daemons: int, most: int
) -> None:
    part = compute_share(active, daemons, most)

    assert 1 <= part <= most
    assert part * daemons >= min(active, most * daemons)


@given(COUNTS, st.integers(1, 9))
def test_who_left_some_to_its_peers_is_not_asked_for_more_and_they_give_none_back(
    active: int, daemons: int
) -> None:
    part = compute_share(active, daemons, 65_536)

    kept = next(n for n in range(active, -1, -1) if not has_too_many(n, part))

    assert kept >= min(part, active)
    assert not has_too_many(part, part)
    assert has_too_many(active, part) == (active > part * 1.25 + 1)


def test_nobody_knows_of_a_daemon_that_lives() -> None:
    assert compute_share(12, 0, 512) == 12
