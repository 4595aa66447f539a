"""A reset of GPUs leaves a mark in the host, by which a successor sees whether it happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from leaf_rig import Rig
from repairing import HOST, Shop, lived

from provisioner.execution.actions.once import Act
from provisioner.execution.steps import requested_acts as gpu_reset
from provisioner.model.case import Case
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.repair import remedies as remedy_steps

NODE = "su0-n00"
Result = TypeVar("Result")
STEP = remedy_steps.plan_gpu_reset("a test")


def with_reset(story: Callable[[Rig, Act], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        rig = await Rig().open()
        try:
            return await story(rig, gpu_reset.build_work(rig.effects, rig.nodes[NODE], STEP).act)
        finally:
            await rig.close()

    return asyncio.run(main())


def resets(rig: Rig) -> int:
    return [e.kind for e in rig.site.machines[NODE].log].count("gpu_reset")


def test_the_host_shows_whether_the_reset_happened() -> None:
    async def story(rig: Rig, act: Act) -> tuple[Any, ...]:
        before = await act.look()
        again = await act.look()
        await act.send()
        after = await act.look()
        assert not isinstance(before, Blocker)
        assert not isinstance(again, Blocker)
        assert not isinstance(after, Blocker)
        return act.happened(before, again), act.happened(before, after), resets(rig)

    assert with_reset(story) == (False, True, 1)


def test_a_host_that_restarted_since_has_reset_its_gpus() -> None:
    async def story(rig: Rig, act: Act) -> bool | None:
        before = await act.look()
        rig.site.machines[NODE].host.boot_id = "another"
        after = await act.look()
        assert not isinstance(before, Blocker)
        assert not isinstance(after, Blocker)
        return act.happened(before, after)

    assert with_reset(story) is True


def test_an_intent_of_a_version_without_marks_is_left_to_a_person() -> None:
    async def story(_rig: Rig, act: Act) -> bool | None:
        seen = await act.look()
        assert not isinstance(seen, Blocker)
        return act.happened({"boot_id": seen["boot_id"]}, seen)

    assert with_reset(story) is None


def test_a_host_that_cannot_be_reached_is_not_taken_for_one_without_a_reset() -> None:
    async def story(rig: Rig, act: Act) -> Any:
        rig.site.machines[NODE].faults.add("inband_unreachable")
        return await act.look()

    seen = with_reset(story)

    assert isinstance(seen, Blocker)
    assert seen.reason is Reason.UNREACHABLE


def test_a_reset_that_failed_is_said_by_the_mark_too() -> None:
    async def story(rig: Rig, act: Act) -> Blocker | None:
        rig.site.machines[NODE].faults.add("gpu_reset_fails")
        await act.send()  # the answer is lost
        work = gpu_reset.build_work(rig.effects, rig.nodes[NODE], STEP)
        return await work.finish(entry())

    refused = with_reset(story)

    assert refused is not None
    assert refused.reason is Reason.REFUSED
    assert "ended with 1" in refused.detail


def entry() -> LedgerEntry:
    return LedgerEntry(
        operation="o",
        node=NODE,
        action="gpu_reset",
        attempt=1,
        status=ActionStatus.SENT,
        intended_at=0.0,
        before={},
    )


@pytest.mark.slow
def test_a_daemon_that_dies_after_it_sent_a_reset_does_not_send_it_again(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[int, Case]:
        world = shop.world
        settle, died = world.store.operations.settle, asyncio.Event()

        async def stopping(operation: Any, row: LedgerEntry, status: Any, **rest: Any) -> Any:
            first = row.action.startswith("gpu_reset") and not died.is_set()
            if first and status is ActionStatus.SENT:
                died.set()
                await asyncio.Event().wait()
            return await settle(operation, row, status, **rest)

        world.store.operations.settle = stopping  # type: ignore[method-assign]
        shop.broken("remap_until_reset")
        await shop.report("a GPU remaps rows")
        await died.wait()
        await shop.start()
        _, case = await shop.ended()
        log = world.site.machines[HOST].log
        return [e.kind for e in log].count("gpu_reset"), case

    (count, case), wrong = lived(tmp_path, story, wanted=0)

    assert count == 1
    assert [(t.remedy.value, t.outcome.value) for t in case.tries] == [("gpu_reset", "cured")]
    assert wrong == []
