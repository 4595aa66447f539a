"""The machine that the daemon runs on: its disk is full, its clock is set."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import virtual_time
from drill import Drill, step
from given_events import event_of

from provisioner.execution.actions.once import Act, Sent, Snapshot, once
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.plan import StepKind
from provisioner.ports import StoreFailed
from provisioner.runtime.wall_clock import STEP_MAX_S, WallClock
from provisioner.store.sql_store import open_store

DAY_S = 86_400.0


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: as if nothing were left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_stops_the_store_loses_nothing_and_is_forgotten_once_there_is_room(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    file = directory / "fleet.db"

    async def main() -> tuple[bool, list[str], bool]:
        store = open_store(file)
        await store.journal.append(event_of("before"), 1.0)
        wal = file.with_name(file.name + "-wal")
        with full_disk(wal.stat().st_size):
            with pytest.raises(StoreFailed):
                await store.journal.append(event_of("lost", "", {"x": "y" * 100_000}), 2.0)
            readable = bool(await store.journal.list())
        await store.journal.append(event_of("behind"), 3.0)
        rows = [r["kind"] for r in await store.journal.list()]
        chain = await store.journal.verify()
        await store.close()
        return readable, rows, chain.intact

    readable, rows, intact = asyncio.run(main())

    assert readable
    assert rows == ["before", "behind"]
    assert intact


def test_a_clock_that_is_set_back_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, true = WallClock(), time.time
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: true() - DAY_S)

    assert before <= clock.now() < before + 600.0


def test_a_clock_that_is_set_forward_by_little_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, true = WallClock(), time.time
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: true() + STEP_MAX_S / 2)
    ahead = clock.now()
    monkeypatch.setattr(time, "time", true)

    assert ahead >= before + STEP_MAX_S / 2
    assert clock.now() >= ahead


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S, 0.0])
def test_an_open_intent_is_resolved_within_the_longest_request_whatever_its_time_says(
    tmp_path: Path, jump_s: float
) -> None:
    """Whoever wrote the intent had another clock: a day ahead, a day behind, or the same."""
    sent = 0

    async def main() -> tuple[LedgerEntry | object, float]:
        nonlocal sent
        drill = await Drill(tmp_path).open()
        before = {"step": step(StepKind.UPDATE, "1").model_dump(mode="json"), "seen": {}}
        entry = await drill.hold.record_intent("update host.bios", before)
        entry = entry.model_copy(update={"intended_at": entry.intended_at + jump_s})

        async def look() -> Snapshot:
            return {"done": True}

        async def send() -> Sent:
            nonlocal sent
            sent += 1
            return Sent()

        act = Act("update host.bios", before, look, send, lambda _, now: bool(now["done"]))
        began = drill.clock.now()
        return await once(
            drill.hold, drill.clock, drill.effects.settings, act, entry
        ), drill.clock.now() - began

    found, took_s = virtual_time.run(main())

    assert isinstance(found, LedgerEntry)
    assert found.status is not ActionStatus.INTENDED
    assert sent == 0
    assert took_s <= 600.0
