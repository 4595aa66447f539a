"""A physical action happens at most once per observed absence, whatever is lost, whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from virtual_time import EPOCH, VirtualClock, run

from provisioner.execution.hold import Hold
from provisioner.execution.once import Act, Sent, Snapshot, blocked, once
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    AccountLocked,
    CertificateChanged,
    Fenced,
    LoginRefused,
    Malformed,
    PortError,
    Unreachable,
)
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore, open_store

SETTINGS = Settings()


@dataclass
class Device:
    """Counts what it was asked to do; `lose` says what happens to each request."""

    lose: list[str] = field(default_factory=list)  # "", "request", "answer", "refused", "busy"
    flashes: int = 0
    blind: bool = False
    busy_s: float = 0.0

    async def look(self) -> Snapshot | Blocker:
        return {"flashes": None if self.blind else self.flashes}

    async def send(self) -> Sent | Blocker:
        fate = self.lose.pop(0) if self.lose else ""
        await asyncio.sleep(self.busy_s)
        match fate:
            case "request":
                raise Unreachable("connection refused", maybe_executed=False)
            case "lost on the way":
                raise Unreachable("reset", maybe_executed=True)
            case "answer":
                self.flashes += 1
                raise Unreachable("timeout", maybe_executed=True)
            case "garbled":
                self.flashes += 1
                raise Malformed("an answer that cannot be read")
            case "login":
                raise LoginRefused("401")
            case "locked":
                raise AccountLocked("too many logins", 60.0)
            case "certificate":
                raise CertificateChanged("another key")
            case "busy":
                return Blocker(reason=Reason.BUSY, subject="d", detail="busy", unblock="wait")
            case "refused":
                return Blocker(reason=Reason.REFUSED, subject="d", detail="no", unblock="-")
        self.flashes += 1
        return Sent(task="/task/1")

    def act(self) -> Act:
        def happened(before: Snapshot, now: Snapshot) -> bool | None:
            return None if now["flashes"] is None else now["flashes"] > before["flashes"]

        return Act("flash", {"step": {}}, self.look, self.send, happened)


async def statuses(store: SqlStore) -> list[ActionStatus]:
    return [e.status for e in await store.entries("n")]


async def operation(store: SqlStore, clock: VirtualClock | None = None) -> Hold:
    if await store.node("n") is None:
        await store.add_node(Node(id="n", kind=NodeKind.HOST))
    opened = await store.open_operation("n", "test", 0.0)
    active = (await store.active_operations())[0] if opened is None else opened
    return Hold(store, clock or VirtualClock(), await store.take(active.id))


FATES: dict[str, tuple[list[str], int, ActionStatus | Reason]] = {
    "an answered request is sent once": ([""], 1, ActionStatus.SENT),
    "a lost answer is adopted, not repeated": (["answer"], 1, ActionStatus.SENT),
    "a request lost on the way is sent again": (["lost on the way", ""], 1, ActionStatus.SENT),
    "an answer that cannot be read is looked for": (["garbled"], 1, ActionStatus.SENT),
    "a refused connection is a passing blocker": (["request"], 0, Reason.UNREACHABLE),
    "a refused login never counts as sent": (["login"], 0, Reason.LOGIN_REFUSED),
    "a busy device is asked again later": (["busy"], 0, Reason.BUSY),
    "a refusal is final": (["refused"], 0, Reason.REFUSED),
    "three losses are enough": (["lost on the way"] * 9, 0, Reason.ATTEMPTS_EXHAUSTED),
}


@pytest.mark.parametrize("sentence", FATES)
def test_fates(sentence: str) -> None:
    lose, flashes, expected = FATES[sentence]
    device = Device(lose=list(lose))

    async def main() -> LedgerEntry | Blocker:
        store = open_store(":memory:", inline=True)
        hold = await operation(store)
        return await once(hold, VirtualClock(), SETTINGS, device.act(), None)

    result = run(main())

    assert device.flashes == flashes
    got = result.reason if isinstance(result, Blocker) else result.status
    assert got == expected


def test_what_cannot_be_told_is_left_to_a_person() -> None:
    device = Device(lose=["answer"])

    async def main() -> tuple[LedgerEntry | Blocker, list[ActionStatus]]:
        store = open_store(":memory:", inline=True)
        hold = await operation(store)
        act = device.act()

        async def blind() -> Snapshot | Blocker:
            seen = {"flashes": device.flashes if not device.blind else None}
            device.blind = True
            return seen

        act = replace(act, look=blind)
        return await once(hold, VirtualClock(), SETTINGS, act, None), await statuses(store)

    result, rows = run(main())

    assert isinstance(result, Blocker)
    assert (result.reason, rows) == (Reason.CANNOT_TELL, [ActionStatus.UNCLEAR])


def killed_at(kill: Callable[[str], bool], busy_s: float = 1.0) -> tuple[int, ActionStatus]:
    """Run once, killed at a named moment; then a successor takes over and finishes."""
    device = Device(busy_s=busy_s)

    async def main() -> tuple[int, ActionStatus]:
        store = open_store(":memory:", inline=True)
        clock = VirtualClock()
        first = asyncio.create_task(
            once(await operation(store), clock, SETTINGS, device.act(), None)
        )
        await asyncio.sleep(0.5 if kill("sending") else 0.0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        if kill("after"):
            device.flashes += 1  # the request had left: the device did it all the same
        successor = await operation(store)
        found = [e for e in await store.entries("n") if e.status is ActionStatus.INTENDED]
        result = await once(successor, clock, SETTINGS, device.act(), found[0] if found else None)
        assert isinstance(result, LedgerEntry)
        return device.flashes, result.status

    return run(main())


@pytest.mark.parametrize("moment", ["before", "sending", "sending and after"])
def test_a_successor_repeats_only_what_is_provably_absent(moment: str) -> None:
    flashes, status = killed_at(lambda name: name in moment)

    assert flashes == 1
    assert status is ActionStatus.SENT


def test_a_replaced_driver_is_fenced_before_it_can_intend() -> None:
    device = Device()

    async def main() -> None:
        store = open_store(":memory:", inline=True)
        old = await operation(store)
        await operation(store)
        await once(old, VirtualClock(), SETTINGS, device.act(), None)

    with pytest.raises(Fenced):
        run(main())
    assert device.flashes == 0


class Slow(Hold):
    """Its intents take long to be on disk; `dies`: a successor has taken over meanwhile."""

    dies = False
    takes_s = SETTINGS.send_window_s + 1.0

    async def intend(self, action: str, before: Snapshot) -> LedgerEntry:
        entry = await super().intend(action, before)
        await asyncio.sleep(self.takes_s)
        if self.dies:
            await self._store.take(self.operation.id)
        return entry


@pytest.mark.parametrize("dies", [False, True])
def test_an_intent_that_took_too_long_is_not_sent_and_blames_nobody(dies: bool) -> None:
    device = Device()

    async def main() -> tuple[LedgerEntry | Blocker | None, list[ActionStatus]]:
        store = open_store(":memory:", inline=True)
        hold = Slow(store, VirtualClock(), (await operation(store)).operation)
        hold.dies = dies
        result = None
        with contextlib.suppress(Fenced):
            result = await once(hold, VirtualClock(), SETTINGS, device.act(), None)
        return result, await statuses(store)

    result, rows = run(main())

    assert device.flashes == 0
    if dies:  # the row is the successor's to resolve
        assert (result, rows) == (None, [ActionStatus.INTENDED])
    else:
        assert isinstance(result, Blocker)
        assert (result.reason, rows) == (Reason.OVERLOADED, [ActionStatus.ABSENT])


def unreachable() -> Blocker:
    return Blocker(reason=Reason.UNREACHABLE, subject="d", detail="silent", unblock="wait")


async def left_open(
    store: SqlStore, device: Device, clock: VirtualClock
) -> tuple[Hold, LedgerEntry]:
    """An intent of a driver that died, and the hold of its successor."""
    hold = await operation(store, clock)
    entry = await hold.intend("flash", {"seen": dict(await device.look())})
    return await operation(store), entry


class AheadClock(VirtualClock):
    """The clock of another machine, an hour ahead."""

    def now(self) -> float:
        return super().now() + 3600.0


def followed(
    device: Device, *, later_s: float = 0.0, theirs: VirtualClock | None = None, **changed: object
) -> tuple[LedgerEntry | Blocker, list[ActionStatus], float]:
    """What a successor makes of an open intent, the ledger then, and how long it took."""

    async def main() -> tuple[LedgerEntry | Blocker, list[ActionStatus], float]:
        store, clock = open_store(":memory:", inline=True), VirtualClock()
        successor, entry = await left_open(store, device, theirs or clock)
        await clock.sleep(later_s)
        began = clock.now()
        act = replace(device.act(), **changed)
        result = await once(successor, clock, SETTINGS, act, entry)
        return result, await statuses(store), clock.now() - began

    return run(main())


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
        entry = await hold.settle(entry, status)
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
        return result, len(await store.entries("n"))

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
        return list(await store.entries("n"))

    (entry,) = run(main())

    assert entry.status is status
    assert entry.outcome


def test_an_intent_may_take_all_of_the_window() -> None:
    device = Device()

    async def main() -> LedgerEntry | Blocker:
        store = open_store(":memory:", inline=True)
        hold = Slow(store, VirtualClock(), (await operation(store)).operation)
        hold.takes_s = SETTINGS.send_window_s
        return await once(hold, VirtualClock(), SETTINGS, device.act(), None)

    result = run(main())

    assert isinstance(result, LedgerEntry)
    assert (result.status, device.flashes) == (ActionStatus.SENT, 1)
