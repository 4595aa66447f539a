"""A physical action happens at most once per observed absence, whatever is lost, whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from once_device import SETTINGS, Device, operation, statuses
from virtual_time import VirtualClock, run

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import Snapshot, once
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    Fenced,
)
from provisioner.store.sql_store import open_store

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
        found = [
            e for e in await store.operations.list_entries("n") if e.status is ActionStatus.INTENDED
        ]
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

    async def record_intent(self, action: str, before: Snapshot) -> LedgerEntry:
        entry = await super().record_intent(action, before)
        await asyncio.sleep(self.takes_s)
        if self.dies:
            await self._store.operations.take(self.operation.id)
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
