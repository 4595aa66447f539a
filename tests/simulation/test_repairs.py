"""Repairs end to end: each rung cures what it cures, people do the rest, nothing comes twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from repairing import HOUR_S, Shop, lived

from provisioner.integrations.sim.hardware.curable_faults import RESEAT, cure_faults, exchange_part
from provisioner.model.case import Case, Ending, Origin, Stage
from provisioner.model.node import Node, State
from provisioner.model.operation import ActionStatus


def tried(case: Case) -> list[tuple[str, str]]:
    return [(t.remedy.value, t.outcome.value) for t in case.tries]


def suspect(case: Case) -> tuple[str, str]:
    assert case.suspect is not None
    return case.suspect.kind.value, case.suspect.part


@pytest.mark.long
def test_what_a_rung_cures_is_cured_by_it_and_the_rest_by_people(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[Case, Case, Case, Case, Node, str]:
        shop.broken("gpu_lost_until_cold_boot")
        await shop.report("a GPU is gone")
        _, lost = await shop.ended()
        shop.broken("remap_failure")
        await shop.report("a job sees errors")
        _, asked = await shop.ended()
        machine = shop.world.site.machines["su0-n00"]
        await say_returned(shop, asked)  # nobody has exchanged anything
        _, again = await shop.until(lambda _, c: c.stage is Stage.HARDWARE and "before" in c.note)
        exchange_part(machine, "GPU_SXM_6", "1659999999999")
        await say_returned(shop, again)
        node, back = await shop.until(lambda n, c: not c.open)
        report = await shop.world.store.evidence.get_report(node.id)
        assert report is not None
        return lost, asked, again, back, node, " ".join(report.causes)

    (lost, asked, again, back, node, causes), wrong = lived(tmp_path, story, wanted=0)

    assert (suspect(lost), tried(lost)) == (("gpu", "GPU_SXM_5"), [("cold_boot", "cured")])
    kept = {"check gpu_inventory", "logs host", "dump host 0", "inventory", "last report"}
    assert kept <= set(lost.evidence)
    assert "check:gpu_inventory:GPU_SXM_5" in lost.tries[0].before
    assert tried(asked) == [("replace", "under_way")]
    assert asked.ticket is not None
    assert asked.ticket.work.startswith("Replace GPU GPU_SXM_6")
    assert "GPU_SXM_6" in again.note
    assert (back.ending, node.state) == (Ending.REPAIRED, State.CERTIFIED)
    assert back.difference is not None
    assert [(c.slot, c.after) for c in back.difference.changes] == [("GPU_SXM_6", "1659999999999")]
    assert (back.difference.unexpected, back.difference.missing) == ((), ())
    assert causes == "repaired"  # the smallest set that covers the part, not everything
    assert wrong == []


@pytest.mark.long
def test_a_daemon_that_is_killed_in_the_middle_repairs_no_step_twice(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[Case, list[str], list[str]]:
        shop.broken("link_narrow_until_reseat")
        await shop.report("a GPU is slow")
        log = shop.world.site.machines["su0-n00"].log
        began = len(log)
        while not await at_rest(shop):
            await shop.world.clock.sleep(397.0)  # in every stage, also within a reset
            await shop.start()
        case = await shop.newest()
        cycles = [e.kind for e in log[began:] if e.kind == "ac"]
        rows = await shop.world.store.operations.list_entries("su0-n00")
        resets = [
            r.before["step"]["reason"]
            for r in rows
            if case.id in r.before["step"]["reason"] and r.status is ActionStatus.CONFIRMED
        ]
        cure_faults(shop.world.site.machines["su0-n00"], RESEAT)
        await say_returned(shop, case)
        _, case = await shop.until(lambda _, c: not c.open)
        return case, cycles, resets

    (case, cycles, resets), wrong = lived(tmp_path, story, wanted=0)

    assert [r for r, _ in tried(case)] == ["cold_boot", "ac_cycle", "reseat"]
    assert [o for _, o in tried(case)] == ["same", "same", "cured"]
    assert cycles == ["ac"]
    assert len(resets) == len(set(resets)) == 2
    assert case.ending is Ending.REPAIRED
    assert wrong == []


@pytest.mark.slow
def test_a_tenant_is_told_agrees_and_gets_its_node_back(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[list[str], list[str], Case, Node]:
        shop.broken("remap_until_reset")
        case = await shop.report("jobs fail on one GPU", Origin.TENANT)
        told = [n.kind for n in await shop.book.list_notices("blue")]
        await shop.world.clock.sleep(HOUR_S)
        assert (await shop.node()).state is State.RELEASED  # its notice has not run out
        current = await shop.book.get(case.id)
        assert current is not None
        assert isinstance(await shop.case_service.accept(current, "blue"), Case)
        node, case = await shop.until(lambda n, c: not c.open and n.state is State.RELEASED)
        rows = await shop.world.store.journal.list(0, 1000)
        states = [str(r["detail"]["to"]) for r in rows if r["kind"] == "state"]
        after = states[len(states) - states[::-1].index("repairing") - 1 :]
        return told, after, case, node

    (told, after, case, node), wrong = lived(tmp_path, story, fabric_overlay="pure_l3")

    assert (suspect(case), tried(case)) == (("gpu_memory", "GPU_SXM_6"), [("gpu_reset", "cured")])
    assert told == ["failure"]
    assert after == ["repairing", "converging", "validating", "certified", "released"]
    assert (case.service.value, case.ending, node.tenant) == ("drain", Ending.CURED, "blue")
    assert node.erasure  # policy did not allow to skip it
    assert wrong == []


async def say_returned(shop: Shop, case: Case) -> None:
    current = await shop.book.get(case.id)
    assert current is not None
    answer = await shop.case_service.record_return(current, "technician", "done")
    assert isinstance(answer, Case), answer
    await shop.world.clock.sleep(HOUR_S / 60)


async def at_rest(shop: Shop) -> bool:
    case = await shop.newest()
    return case.stage in (Stage.CLOSED, Stage.HARDWARE)
