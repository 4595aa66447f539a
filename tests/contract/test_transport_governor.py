"""The login governor: fewer failures than any lockout threshold, restarts included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.adapters.redfish.governor import FAILURES_MAX, WINDOW_S, LoginGovernor
from provisioner.ports import AccountLocked, Secret

URL = "https://10.0.0.9"


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def credential(word: str, username: str = "admin") -> tuple[str, Secret]:
    return username, Secret(word)


def admitted(governor: LoginGovernor, what: tuple[str, Secret]) -> bool:
    try:
        governor.admit(URL, what)
    except AccountLocked as error:
        return error.retry_after_s <= 0
    return True


def test_a_refused_credential_rests_and_another_may_try() -> None:
    clock = Time()
    governor = LoginGovernor(clock=clock)
    governor.note_failure(URL, credential("wrong"))

    assert not admitted(governor, credential("wrong"))
    assert admitted(governor, credential("other"))
    clock.now += 61
    assert admitted(governor, credential("wrong"))


def test_after_two_failures_the_wait_is_the_rest_of_the_window() -> None:
    clock = Time()
    governor = LoginGovernor(clock=clock)
    governor.note_failure(URL, credential("one"))
    clock.now += 100
    governor.note_failure(URL, credential("two"))
    with pytest.raises(AccountLocked) as caught:
        governor.admit(URL, credential("three"))

    assert caught.value.retry_after_s == WINDOW_S - 100
    assert admitted(LoginGovernor(clock=clock), credential("three"))


def test_a_credential_that_was_good_is_admitted_until_it_is_refused() -> None:
    governor = LoginGovernor(clock=Time())
    governor.note_success(URL, credential("good", "us"))
    governor.note_failure(URL, credential("bad", "factory"))
    governor.note_failure(URL, credential("worse", "factory"))

    assert admitted(governor, credential("good", "us"))
    governor.note_silence(URL, credential("good", "us"))
    assert admitted(governor, credential("good", "us"))
    governor.note_failure(URL, credential("good", "us"))
    assert not admitted(governor, credential("good", "us"))


def test_silence_counts_as_a_failure_of_an_unproved_credential() -> None:
    governor = LoginGovernor(clock=Time())
    for word in ("one", "two"):
        governor.note_silence(URL, credential(word))

    assert not admitted(governor, credential("three"))


def test_a_device_that_asks_for_a_pause_gets_a_bounded_one() -> None:
    clock = Time()
    governor = LoginGovernor(clock=clock)
    governor.hold(URL, 1e9)

    assert not admitted(governor, credential("good"))
    clock.now += 3601
    assert admitted(governor, credential("good"))


def test_a_restart_forgets_no_failure_and_keeps_no_secret(tmp_path) -> None:
    clock, memory = Time(), tmp_path / "logins"
    governor = LoginGovernor(clock=clock, memory=memory)
    for word in ("one", "two"):
        governor.note_failure(URL, credential(word))
    again = LoginGovernor(clock=clock, memory=memory)

    assert not admitted(again, credential("three"))
    assert "one" not in memory.read_text()
    clock.now += WINDOW_S
    assert admitted(LoginGovernor(clock=clock, memory=memory), credential("three"))
    assert memory.read_text() == ""


@pytest.mark.parametrize("text", ["{", '["x", 1, 2]\n[]\nnull', "\0\ufffd", '[1e999, "u", "n"]'])
def test_a_damaged_memory_is_as_good_as_none(tmp_path, text) -> None:
    memory = tmp_path / "logins"
    memory.write_text(text)

    assert admitted(LoginGovernor(clock=Time(), memory=memory), credential("good"))


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 4000), st.booleans()), max_size=60
    )
)
def test_no_window_ever_holds_more_failures_than_allowed(tries) -> None:
    """Whatever is tried when: in any window there are at most FAILURES_MAX failed logins."""
    clock, failures = Time(), []
    governor = LoginGovernor(clock=clock)
    for word, pause_s, silent in tries:
        clock.now += pause_s
        if admitted(governor, credential(word)):
            (governor.note_silence if silent else governor.note_failure)(URL, credential(word))
            failures.append(clock.now)

    for start in failures:
        assert sum(start <= when < start + WINDOW_S for when in failures) <= FAILURES_MAX
