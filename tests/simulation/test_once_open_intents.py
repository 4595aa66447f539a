"""What becomes of an intent whose answer nobody has: asked for, looked for, or left open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from once_device import (
    SETTINGS,
    AheadClock,
    Device,
    followed,
    left_open,
    operation,
    unreachable,
)
from virtual_time import EPOCH, VirtualClock, run

from provisioner.execution.actions.once import Sent, Snapshot, blocked, once
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    AccountLocked,
    CertificateChanged,
    CertificateUntrusted,
    LoginRefused,
    PortError,
    Unreachable,
)
from provisioner.store.sql_store import open_store


def test_an_open_intent_stays_open_while_its_device_cannot_be_looked_at() -> None:
    device = Device()

    async def silent() -> Snapshot | Blocker:
        return unreachable()

    result, rows, _ = followed(device, look=silent)

    assert isinstance(result, Blocker)
    assert result.reason is Reason.UNREACHABLE
    assert (rows, device.flashes) == ([ActionStatus.INTENDED], 0)


def test_a_device_that_is_silent_for_one_look_only_is_not_acted_on_blindly() -> None:
    device, looks = Device(), []

    async def blinking() -> Snapshot | Blocker:
        looks.append(1)
        return unreachable() if len(looks) == 1 else await device.look()

    result, rows, _ = followed(device, look=blinking)

    assert result == unreachable()
    assert (rows, device.flashes) == ([ActionStatus.INTENDED], 0)


@pytest.mark.parametrize("status", [ActionStatus.SENT, ActionStatus.CONFIRMED])
def test_an_action_that_was_sent_is_not_sent_again(status: ActionStatus) -> None:
    device = Device()

    async def main() -> LedgerEntry | Blocker:
        store = open_store(":memory:", inline=True)
        hold, entry = await left_open(store, device, VirtualClock())
        entry = await hold.settle_entry(entry, status)
        return await once(hold, VirtualClock(), SETTINGS, device.act(), entry)

    result = run(main())

    assert isinstance(result, LedgerEntry)
    assert (result.status, device.flashes) == (status, 0)


def test_an_intent_keeps_the_step_and_what_was_seen_before() -> None:
    device = Device()

    async def main() -> LedgerEntry | Blocker:
        store = open_store(":memory:", inline=True)
        act = replace(device.act(), before={"slots": ["GPU_1"]})
        return await once(await operation(store), VirtualClock(), SETTINGS, act, None)

    result = run(main())

    assert isinstance(result, LedgerEntry)
    assert result.before == {"slots": ["GPU_1"], "seen": {"flashes": 0}}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LoginRefused("401"), "credentials"),
        (CertificateChanged("another key"), "pin the new one"),
        (CertificateUntrusted("signed by nobody"), "--ca-file"),
        (AccountLocked("locked", 60.0), "lockout"),
        (Unreachable("silent", maybe_executed=False), "by itself"),
    ],
)
def test_the_exception_of_a_port_becomes_a_blocker_that_says_what_to_do(
    error: PortError, words: str
) -> None:
    blocker = blocked(error, "n/bios")

    assert (blocker.reason, blocker.subject) == (error.reason, "n/bios")
    assert blocker.detail == str(error)
    assert words in blocker.unblock


def test_an_exception_without_words_is_named_by_its_reason() -> None:
    assert blocked(LoginRefused(""), "n").detail == "login_refused"


def test_nothing_is_intended_for_a_device_that_cannot_be_looked_at() -> None:
    device = Device()

    async def silent() -> Snapshot | Blocker:
        return unreachable()

    async def main() -> tuple[LedgerEntry | Blocker, int]:
        store = open_store(":memory:", inline=True)
        hold = await operation(store)
        act = replace(device.act(), look=silent)
        result = await once(hold, VirtualClock(), SETTINGS, act, None)
        return result, len(await store.operations.list_entries("n"))

    result, rows = run(main())

    assert isinstance(result, Blocker)
    assert (result.reason, rows, device.flashes) == (Reason.UNREACHABLE, 0, 0)


@pytest.mark.parametrize(
    ("answer", "flashes", "rows"),
    [
        (Sent(task="/task/7"), 0, [ActionStatus.SENT]),
        (unreachable(), 0, [ActionStatus.FAILED]),
        (
            Blocker(reason=Reason.BUSY, subject="d", detail="busy", unblock="wait"),
            0,
            [ActionStatus.ABSENT],
        ),
        (None, 1, [ActionStatus.ABSENT, ActionStatus.SENT]),
    ],
    ids=["it was taken", "it failed", "it never began", "nothing is known of it"],
)
def test_a_request_that_outlives_its_driver_is_asked_for_before_its_device_is_looked_at(
    answer: Sent | Blocker | None, flashes: int, rows: list[ActionStatus]
) -> None:
    device, asked_since = Device(), []

    async def recall(since: float) -> Sent | Blocker | None:
        asked_since.append(since)
        return answer

    result, left, took_s = followed(device, later_s=5.0, recall=recall)

    assert (device.flashes, left) == (flashes, rows)
    assert (asked_since, took_s) == ([EPOCH], 0.0)  # since the intent; and nothing is waited for
    if isinstance(answer, Blocker):
        assert result == answer
    else:
        assert isinstance(result, LedgerEntry)
        assert result.task == (answer.task if answer else "/task/1")


LONGEST_S = SETTINGS.send_window_s + SETTINGS.request_max_s


@pytest.mark.parametrize(
    ("later_s", "request_max_s", "waits_s"),
    [
        (0.0, 0.0, LONGEST_S),
        (10.0, 0.0, LONGEST_S - 10.0),
        (LONGEST_S - 0.5, 0.0, 0.5),
        (LONGEST_S + 1.0, 0.0, 0.0),
        (0.0, 7.0, SETTINGS.send_window_s + 7.0),
    ],
)
def test_a_successor_looks_only_when_the_request_can_no_longer_be_under_way(
    later_s: float, request_max_s: float, waits_s: float
) -> None:
    device = Device()

    _, rows, took_s = followed(device, later_s=later_s, request_max_s=request_max_s)

    assert took_s == pytest.approx(waits_s)
    assert (rows, device.flashes) == ([ActionStatus.ABSENT, ActionStatus.SENT], 1)


def test_an_intent_from_a_clock_that_is_ahead_is_not_waited_for_longer_than_any_other() -> None:
    _, _, took_s = followed(Device(), theirs=AheadClock())

    assert took_s == pytest.approx(LONGEST_S)


@pytest.mark.parametrize(
    ("fate", "status"),
    [
        ("request", ActionStatus.ABSENT),
        ("login", ActionStatus.ABSENT),
        ("locked", ActionStatus.ABSENT),
        ("certificate", ActionStatus.ABSENT),
        ("untrusted", ActionStatus.ABSENT),
        ("host key", ActionStatus.ABSENT),
        ("look only", ActionStatus.ABSENT),
        ("not granted", ActionStatus.ABSENT),
        ("busy", ActionStatus.ABSENT),
        ("refused", ActionStatus.FAILED),
    ],
)
def test_an_action_that_certainly_did_not_begin_is_settled_at_once(
    fate: str, status: ActionStatus
) -> None:
    device = Device(lose=[fate])

    async def main() -> list[LedgerEntry]:
        store = open_store(":memory:", inline=True)
        await once(await operation(store), VirtualClock(), SETTINGS, device.act(), None)
        return list(await store.operations.list_entries("n"))

    (entry,) = run(main())

    assert entry.status is status
    assert entry.outcome
