"""A person's request to reset a host's GPUs: once, with a proof, and never under a process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_power_requests import HOST, RESTS, SERVES, Bench, with_bench

from provisioner.control.node.requested_acts import is_requested
from provisioner.execution.actions.work import Work
from provisioner.execution.steps.requested_acts import build_reset_work
from provisioner.model.node import Boots, Node, NodeKind, State
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.gpu_requests import WANT, WANT_FOR_TENANT, find_objection

BMC = {"name": "host", "url": "https://10.0.0.9"}
NODE = Node.model_validate({"id": HOST, "kind": "host", "bmcs": (BMC,), **RESTS}, strict=False)


async def ask(bench: Bench, want: str = WANT) -> Operation:
    operation = await bench.world.store.operations.open(HOST, want, bench.world.clock.now())
    assert operation is not None
    return await drive(bench, operation)


async def drive(bench: Bench, operation: Operation) -> Operation:
    await (await bench.world.build()).reconciler.drive(operation.id)
    ended = await bench.world.store.operations.get(operation.id)
    assert ended is not None
    return ended


def count_resets(bench: Bench) -> int:
    return [e.kind for e in bench.world.site.machines[HOST].log].count("gpu_reset")


def test_all_gpus_are_reset_once_and_answer(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        ended = await ask(bench)
        assert (ended.status, ended.note) == (
            OperationStatus.DONE,
            "8 GPUs were reset and answer",
        )
        assert count_resets(bench) == 1
        assert await bench.entries() == [ActionStatus.CONFIRMED]
        rows = await bench.world.store.journal.list()
        assert [r["detail"]["step"] for r in rows if r["kind"] == "step"] == [WANT]

    with_bench(tmp_path, story)


def test_gpus_that_a_process_uses_are_not_reset_and_it_is_named(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.world.site.machines[HOST].faults.add("gpu_process")
        ended = await ask(bench)
        assert ended.status is OperationStatus.PARKED
        assert "8 processes use the GPUs" in ended.note
        assert "/usr/bin/python3" in ended.note
        assert (count_resets(bench), await bench.entries()) == (0, [])

    with_bench(tmp_path, story)


def test_a_reset_that_fails_or_loses_a_gpu_is_no_success(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.world.site.machines[HOST].faults.add("gpu_reset_fails")
        failed = await ask(bench)
        assert failed.status is OperationStatus.PARKED
        assert "in use by another process" in failed.note
        assert await bench.entries() == [ActionStatus.FAILED]

        node = await bench.world.store.nodes.get(HOST)
        assert node is not None
        bench.world.site.machines[HOST].faults.discard("gpu_reset_fails")
        site = (await bench.world.build()).site
        work = build_reset_work(site, node, ("0000:ff:00.0",))
        await work.act.send()
        proof = await finish(work)
        assert isinstance(proof, Blocker)
        assert proof.detail == "no answer of GPU 0000:ff:00.0"

    with_bench(tmp_path, story)


async def finish(work: Work) -> Blocker | None:
    fields = {"operation": "o", "node": HOST, "action": work.act.name, "attempt": 1}
    status = ActionStatus.SENT
    return await work.finish(
        LedgerEntry(**fields, status=status, intended_at=0.0, before=work.act.before)
    )


def test_a_successor_does_not_reset_again(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        now = bench.world.clock.now()
        operation = await bench.world.store.operations.open(HOST, WANT, now)
        assert operation is not None
        first = asyncio.create_task((await bench.world.build()).reconciler.drive(operation.id))
        while not count_resets(bench):
            await bench.world.clock.sleep(0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        ended = await drive(bench, operation)
        assert ended.status is OperationStatus.DONE, ended.note
        assert count_resets(bench) == 1

    with_bench(tmp_path, story)


def test_a_host_that_serves_is_reset_at_its_tenants_wish_alone(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        refused = await ask(bench)
        assert refused.status is OperationStatus.PARKED
        assert "it serves red" in refused.note
        ended = await ask(bench, WANT_FOR_TENANT)
        assert ended.status is OperationStatus.DONE, ended.note
        assert count_resets(bench) == 1

    with_bench(tmp_path, story, **SERVES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"kind": NodeKind.SWITCH}, "no host"),
        ({"state": State.CONVERGING}, "it is converging"),
        ({"boots": Boots.RAMDISK}, "maintenance image"),
        ({"boots": Boots.NOTHING}, "no disk"),
        ({"boots": Boots.HANDED_OVER}, "no login"),
    ],
)
def test_only_a_resting_host_with_a_system_of_ours_is_asked(
    changes: dict[str, Any], words: str | None
) -> None:
    objection = find_objection(NODE.model_copy(update=changes))

    assert (objection is None) if words is None else (words in str(objection))
    assert is_requested(WANT)
