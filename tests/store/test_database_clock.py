"""The clock that several daemons share: the database's, which never goes back."""

from __future__ import annotations

import pytest

from provisioner.runtime.database_clock import DatabaseClock, Reading, take_reading

NOW = 1_790_000_000.0


class Boot:
    """A machine's boot clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def reading(boot: Boot, ahead_s: float = 0.0, error_s: float = 0.001) -> Reading:
    """What the database would answer now; `ahead_s` of the time that passed by its start."""
    return Reading(NOW + boot.at - 1000.0 + ahead_s, boot.at, error_s, 0.0)


def test_two_daemons_go_by_the_databases_clock_whatever_their_machines_say():
    one, other = Boot(), Boot()
    other.at = 77.0
    clocks = DatabaseClock(boot=one), DatabaseClock(boot=other)
    clocks[0].follow(Reading(NOW, 1000.0, 0.001, NOW + 60.0))
    clocks[1].follow(Reading(NOW, 77.0, 0.001, NOW - 60.0))
    one.at, other.at = one.at + 5.0, other.at + 5.0

    assert [c.now() for c in clocks] == [pytest.approx(NOW + 5.0)] * 2


def test_a_database_that_is_ahead_is_followed_at_once_and_one_behind_by_going_slower():
    boot = Boot()
    clock = DatabaseClock(boot=boot)
    clock.follow(reading(boot))
    clock.follow(reading(boot, ahead_s=4.0))
    assert clock.now() == NOW + 4.0

    clock.follow(reading(boot, ahead_s=1.0))
    told = []
    for _ in range(10):
        boot.at += 1.0
        told.append(clock.now())

    assert told == sorted(told)
    assert told[0] == NOW + 4.5
    assert told[-1] == NOW + 1.0 + 10.0


def test_a_reading_that_took_too_long_is_left_out():
    boot = Boot()
    clock = DatabaseClock(boot=boot)
    clock.follow(reading(boot))
    clock.follow(reading(boot, ahead_s=9.0, error_s=3.0))

    assert clock.now() == NOW


def test_a_simulated_site_runs_as_fast_as_before():
    boot = Boot()
    clock = DatabaseClock(60.0, NOW, boot)
    clock.follow(reading(boot))
    boot.at += 1.0

    assert clock.now() == NOW + 60.0


def test_a_reading_says_how_exact_it_is_and_how_far_this_machine_is_off():
    boot = Boot()

    def ask() -> float:
        boot.at += 0.4
        return NOW

    taken = take_reading(ask, boot, lambda: NOW + 30.2)

    assert (taken.boot_s, taken.error_s) == (pytest.approx(1000.2), pytest.approx(0.2))
    assert taken.difference_s == pytest.approx(30.0)


def test_a_difference_within_the_error_is_none():
    assert Reading(NOW, 1.0, 0.3, NOW + 0.2).difference_s == 0.0
