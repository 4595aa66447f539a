"""Ways of a case that take long: a limit of the fleet, alerts that open and end cases.

Only in `make test-long`; the rules behind them are tried alone in tests/planning and tests/api.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from repairing import HOST, HOUR_S, Shop, lived

from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.daemon import Daemon
from provisioner.model.alert import Alert, Classification
from provisioner.model.case import Case, Ending, Service
from provisioner.model.node import Node, State

pytestmark = pytest.mark.long


async def dead_gpu(shop: Shop) -> Case:
    """A GPU that nothing but people can bring back."""
    shop.broken("dead_gpu")
    await shop.report("a GPU is gone")
    _, case = await shop.ended(12 * HOUR_S)
    return case


def test_a_remedy_waits_for_its_turn_in_the_fleet(tmp_path: Path) -> None:
    case, wrong = lived(tmp_path, dead_gpu, wanted=0, repair_remedies_per_hour=1)

    began = [t.started_at for t in case.tries]
    assert [t.remedy.value for t in case.tries] == ["cold_boot", "reflash", "ac_cycle", "replace"]
    assert began[1] - began[0] >= HOUR_S
    assert began[2] - began[1] >= HOUR_S
    assert wrong == []


def test_a_card_whose_firmware_is_broken_is_cured_by_writing_it_again(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[Case, Node, list[tuple[str, str]]]:
        before = len(shop.world.site.machines[HOST].log)
        shop.broken("queue_stuck_until_reflash")
        await shop.report("a rail stands still")
        node, case = await shop.until(lambda _, c: not c.open)
        log = shop.world.site.machines[HOST].log[before:]
        return case, node, [(e.subject, e.detail) for e in log if e.kind == "stage"]

    (case, node, written), wrong = lived(tmp_path, story, wanted=0)

    tried = [(t.remedy.value, t.outcome.value) for t in case.tries]
    assert tried[-2:] == [("cold_boot", "same"), ("reflash", "cured")]
    assert (case.ending, node.state) == (Ending.CURED, State.CERTIFIED)
    assert [subject for subject, _ in written] == ["NIC_2/DPU_NIC"]
    assert wrong == []


def test_an_image_that_the_bmc_skips_is_no_remedy_that_was_tried(tmp_path: Path) -> None:
    case, wrong = lived(tmp_path, dead_gpu, wanted=0)

    (reflash,) = [t for t in case.tries if t.remedy.value == "reflash"]
    assert reflash.outcome.value == "not_done"
    assert "Component image is identical" in reflash.detail
    assert wrong == []


def alert(classification: Classification, now: float, **more: object) -> Alert:
    fields = {"node": HOST, "id": "Seen", "target": "NIC_2", "source": "site", "since": now,
              "last_at": now, "classifications": (classification,), **more}  # fmt: skip
    return Alert.model_validate(fields)


def test_alerts_open_cases_that_keep_a_node_or_cut_it_off(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[Case, Case, list[str], Node]:
        world, book = shop.world, shop.world.store.alerts
        assert shop.daemon is not None
        await shop.daemon.stop()
        watch = WatchParts(book=book, new_secret=lambda: "secret-" + "0" * 40)
        shop.daemon = world.daemon = Daemon(dataclasses.replace(shop.daemon.parts, watch=watch))
        await shop.daemon.start()
        flapping = alert(Classification.LINK, world.clock.now())
        await book.put([flapping], [], world.clock.now())
        node, kept = await shop.until(lambda _, c: c.open)
        await world.clock.sleep(2 * HOUR_S)
        assert (await shop.node()).state is State.RELEASED
        over = flapping.model_copy(update={"cleared_at": world.clock.now(), "cleared_why": "over"})
        await book.put([over], [], world.clock.now())
        node, kept = await shop.until(lambda _, c: not c.open)
        assert node.state is State.RELEASED
        fatal = alert(Classification.FATAL_EVENT, world.clock.now(), target="GPU_SXM_1")
        await book.put([fatal], [], world.clock.now())
        _, cut = await shop.until(lambda n, c: c.open and n.state is State.REPAIRING)
        told = [n.kind for n in await shop.book.list_notices("blue")]
        return kept, cut, told, await shop.node()

    (kept, cut, told, node), _ = lived(tmp_path, story)

    assert (kept.service, kept.ending, kept.by) == (Service.KEEP, Ending.NO_FAULT, "site")
    assert cut.service is Service.CUT_OFF
    assert cut.tenant == "blue"
    assert sorted(set(told)) == ["failure", "returned"]
    assert node.tenant != "blue" or node.state is State.REPAIRING
