"""A part that vanishes from a serving node is a fault: an alert, a case and a notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import virtual_time
from serving import HOST, Serving, world
from test_rules import certificate, seen

from provisioner.model.inventory import Device, DeviceKind, Inventory, Power
from provisioner.model.node import State
from provisioner.model.outcome import Gap, Reason
from provisioner.planning.repair import case_joining as lost_parts

HOUR_S = 3600.0
MISSING = ("PartMissing", "gpu/GPU_SXM_5")


def gpu(slot: str, serial: str | None) -> Device:
    return Device(kind=DeviceKind.GPU, slot=slot, serial=serial)


CERTIFIED = certificate(serials=("bmc/host=B1", "gpu/GPU_0=G0", "gpu/GPU_1=G1", "nic/NIC_0=N0"))
LOST = {
    "all are there": ((gpu("GPU_0", "G0"), gpu("GPU_1", "G1")), ()),
    "one is not": ((gpu("GPU_0", "G0"),), ("gpu/GPU_1=G1",)),
    "one gives no serial now": ((gpu("GPU_0", "G0"), gpu("GPU_1", None)), ()),
    "one is in another slot": ((gpu("GPU_0", "G0"), gpu("GPU_7", "G1")), ()),
    "one was exchanged, which is a swap": ((gpu("GPU_0", "G0"), gpu("GPU_1", "X")), ()),
}


@pytest.mark.parametrize("sentence", LOST)
def test_a_part_is_lost_where_neither_its_slot_nor_its_serial_is_shown(sentence: str) -> None:
    devices, lost = LOST[sentence]

    assert lost_parts.find_lost(CERTIFIED, seen(devices=devices)) == frozenset(lost)


def test_a_host_that_is_off_and_an_answer_with_holes_prove_nothing() -> None:
    whole = Inventory(node="n", vendor="v", power=Power.ON)
    silent = Gap(reason=Reason.UNREACHABLE, source="/Systems", detail="503")

    assert lost_parts.is_whole(whole)
    assert not lost_parts.is_whole(whole.model_copy(update={"power": Power.OFF}))
    assert not lost_parts.is_whole(whole.model_copy(update={"gaps": (silent,)}))


def test_only_a_second_look_confirms_that_a_part_is_lost() -> None:
    lost = frozenset({"gpu/GPU_1=G1"})

    assert lost_parts.confirm_losses(lost, {"gpu/GPU_1=G1": 1000.0}, 1100.0) == ((), True)
    (found,), pending = lost_parts.confirm_losses(lost, {"gpu/GPU_1=G1": 1000.0}, 1300.0)
    assert (found.id, found.target, pending) == ("PartMissing", "gpu/GPU_1", False)
    assert lost_parts.confirm_losses(frozenset(), {}, 1300.0) == ((), False)


@pytest.mark.slow
def test_a_gpu_that_vanishes_raises_an_alert_opens_a_case_and_informs_the_tenant(
    tmp_path: Path,
) -> None:
    async def main() -> tuple[Any, ...]:
        serving = Serving(world(tmp_path))
        book = serving.world.cases = serving.world.store.cases
        await serving.release()
        await serving.start()
        try:
            await serving.world.clock.sleep(HOUR_S)
            before = await serving.standing()
            gone = serving.world.site.machines[HOST].devices["GPU_SXM_5"]
            gone.present = False
            came = await serving.until(lambda s: MISSING in s, HOUR_S)
            await serving.world.clock.sleep(300)
            node, revoked = (
                await serving.node(),
                await serving.world.store.evidence.is_revoked("c1"),
            )
            cases, notices = await book.list(HOST), await book.list_notices("red")
            await serving.stop()
            await serving.start()  # its successor keeps the alert, without a flap
            await serving.world.clock.sleep(2 * HOUR_S)
            kept = [a for a in await serving.book.list(HOST) if a.key[1:] == MISSING]
            return before, came, node, revoked, cases, notices, kept
        finally:
            await serving.stop()
            await serving.world.store.close()

    before, came, node, revoked, cases, notices, kept = virtual_time.run(main())

    assert before == {}
    assert came
    assert node.state is State.RELEASED
    assert revoked
    (blocker,) = node.blockers
    assert (blocker.reason, blocker.subject) == (Reason.CHECK_FAILED, "PartMissing/gpu/GPU_SXM_5")
    assert [(c.service, c.origin) for c in cases] == [("drain", "event")]
    assert "gpu/GPU_SXM_5" in cases[0].reason
    assert [n.kind for n in notices] == ["failure"]
    assert [(a.active, len(a.raises)) for a in kept] == [(True, 1)]


def test_a_gpu_that_is_back_at_the_second_look_raises_nothing(tmp_path: Path) -> None:
    async def main() -> tuple[Any, ...]:
        serving = Serving(world(tmp_path))
        await serving.release()
        await serving.start()
        try:
            await serving.world.clock.sleep(HOUR_S)
            turns = serving.watcher._turns[HOST]
            gone = serving.world.site.machines[HOST].devices["GPU_SXM_5"]
            gone.present = False
            for _ in range(2000):
                if not turns.lost:
                    await serving.world.clock.sleep(1.0)
            assert turns.lost
            gone.present = True
            came = await serving.until(lambda s: MISSING in s, 3 * HOUR_S)
            return came, await serving.world.store.evidence.is_revoked("c1")
        finally:
            await serving.stop()
            await serving.world.store.close()

    assert virtual_time.run(main()) == (False, False)
