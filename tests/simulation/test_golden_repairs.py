"""Repairs as stories: what is planted, and everything that is written down until people or the
certificate end it, as a text that a person reads.

Two short ones share a site in CI; each of the others has a site of its own (`make test-long`). All
in virtual time. To record them anew, look at the difference, and keep it or not:

    RECORD_GOLDEN=1 .venv/bin/pytest -m "long or not long" tests/simulation/test_golden_repairs.py
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from repairing import HOST, Shop, lived

from provisioner.integrations.sim.hardware.curable_faults import exchange_part
from provisioner.integrations.sim.site.site import Site
from provisioner.model.case import Case, Ending, Origin, Stage
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.store.rows.evidence_rows import put_inventory

GOLDEN = Path(__file__).parents[1] / "golden" / "repair"
Plant = Callable[[Shop], Awaitable[None]]
# three cards of the same GPU: the vendor's own part numbers do not matter here
SPARE, OTHER = "1659999999999", "1658888888888"
# Between the last change of a case and people at the node, or the end: more than a look of what
# follows cases (the archive, the LED), so that no story depends on which of two loops is first.
WALK_S = 600.0


@dataclass(frozen=True)
class Story:
    """`plant` breaks something; `after` is what people do once they are asked."""

    name: str
    told: str  # what is planted, for the reader
    reason: str
    plant: Plant
    after: Plant | None = None
    origin: Origin = Origin.OPERATOR
    before: Plant | None = None  # what the node went through earlier


def preset(name: str, part: str = "") -> Plant:
    async def plant(shop: Shop) -> None:
        shop.broken(name, part)

    return plant


def blamed(reason: Reason, subject: str, detail: str, fault: str = "", part: str = "") -> Plant:
    """What an earlier state of the node has found, and the fault that is behind it."""

    async def plant(shop: Shop) -> None:
        blocker = Blocker(reason=reason, subject=subject, detail=detail, unblock="Repair it.")
        node = await shop.node()
        await shop.world.store.nodes.save(node.model_copy(update={"blockers": (blocker,)}))
        if fault:
            shop.broken(fault, part)

    return plant


async def settled(shop: Shop) -> None:
    """Until people are asked or the case is closed, and what follows from that is done."""
    await shop.until(lambda _, c: not c.open or c.stage is Stage.HARDWARE)
    await shop.world.clock.sleep(WALK_S)


def put(slot: str, serial: str, also: str = "", **changes: Any) -> Plant:
    """People put a part into a slot, and say that they are done."""

    async def done(shop: Shop) -> None:
        machine = shop.world.site.machines[HOST]
        exchange_part(machine, slot, serial, **changes)
        if also:
            exchange_part(machine, also, OTHER)
        work = f"{slot} replaced"
        answer = await shop.case_service.record_return(await shop.newest(), "technician", work)
        assert isinstance(answer, Case), answer
        await settled(shop)

    return done


def done(work: str, act: Callable[[Shop], None]) -> Plant:
    """People do something else to the node, and say so."""

    async def said(shop: Shop) -> None:
        act(shop)
        answer = await shop.case_service.record_return(await shop.newest(), "technician", work)
        assert isinstance(answer, Case), answer
        await settled(shop)

    return said


def then(*plants: Plant) -> Plant:
    async def all_of_them(shop: Shop) -> None:
        for plant in plants:
            await plant(shop)

    return all_of_them


def trait(slot: str, name: str, value: int) -> Callable[[Shop], None]:
    def put_on(shop: Shop) -> None:
        shop.world.site.machines[HOST].devices[slot].traits[name] = value

    return put_on


def silent(until: float) -> Callable[[Shop], None]:
    def hold_its_tongue(shop: Shop) -> None:
        shop.world.site.machines[HOST].bmcs["host"].gone_until = until

    return hold_its_tongue


def planted(act: Callable[[Shop], None]) -> Plant:
    async def plant(shop: Shop) -> None:
        act(shop)

    return plant


async def power_lost_in_a_bfb(shop: Shop) -> None:
    """A card has the software that it was delivered with; while it is written, power goes away."""
    world, slot = shop.world, "DPU_0"
    machine = world.site.machines[HOST]
    delivered = Site(1, 5, clock=world.clock, sleep=world.clock.sleep).machines[HOST]
    for item, old in zip(machine.list_items(slot), delivered.list_items(slot), strict=True):
        item.running = old.running
    card = machine.bluefields[slot]

    async def cut() -> None:
        while not card.installing:
            await world.clock.sleep(5.0)
        machine.power_cycle(world.clock.now())

    shop.background = asyncio.create_task(cut())


async def earlier(shop: Shop) -> None:
    """A case like this one, that ended well."""
    shop.broken("gpu_lost_until_cold_boot")
    await shop.report("a GPU is gone")
    await shop.until(lambda _, c: not c.open)


STORIES = (
    Story("ecc_threshold", "Row remapping of GPU_SXM_1 has failed.", "a job sees memory errors",
          preset("remap_failure", "GPU_SXM_1")),
    Story("bad_leaf", "Tests with three partners accuse the leaf, not the node.",
          "slow on one rail with every partner",
          blamed(Reason.FABRIC, "leaf-su0-r2", "slow with every partner on rail 2")),
)  # fmt: skip
LONG = (
    Story("dead_gpu", "GPU_SXM_5 is dead, and replaced in the end.", "a GPU is gone",
          preset("dead_gpu"), put("GPU_SXM_5", SPARE)),
    Story("nvlink_fault", "Two NVLinks of GPU_SXM_8 are down, and the GPU is exchanged.",
          "jobs with eight GPUs fail", preset("nvlink_down"), put("GPU_SXM_8", SPARE)),
    Story("flapping_optic", "The module of one rail loses its carrier again and again.",
          "a job is slow now and then", planted(trait("NIC_2", "flaps", 9)),
          done("module cleaned", trait("NIC_2", "flaps", 0))),
    Story("bricked_bluefield", "Power goes away in the middle of a BFB.",
          "its card runs old software", power_lost_in_a_bfb),
    Story("bmc_unreachable", "The BMC says nothing, until its power cords were out.",
          "its BMC is silent", planted(silent(float("inf"))),
          done("power cords were out for a minute", silent(0.0))),
    Story("wrong_part", "A GPU of another make comes back, then the right one.",
          "a job sees memory errors", preset("remap_failure", "GPU_SXM_6"),
          then(put("GPU_SXM_6", OTHER, part="900-00000-0000-000"),
               put("GPU_SXM_6", SPARE, part="2330-885-A1"))),
    Story("swapped_without_notice",
          "GPU_SXM_6 fails and is replaced; GPU_SXM_7 was swapped too, and nobody says so.",
          "a job sees memory errors", preset("remap_failure", "GPU_SXM_6"),
          put("GPU_SXM_6", SPARE, also="GPU_SXM_7")),
    Story("third_time", "The node has its third case.", "a GPU is gone again",
          preset("gpu_lost_until_cold_boot"), before=then(earlier, earlier)),
)  # fmt: skip


def line(kind: str, told: Mapping[str, Any]) -> str:
    """One row of the journal in words; "" for what is nobody's business here."""
    match kind:
        case "case_opened":
            return f"opened ({told['origin']}): {told['reason']}; service: {told['service']}"
        case "state":
            return f"state: {told['from']} -> {told['to']}"
        case "case_diagnosed":
            effect = f"; the remedy's effect: {told['effect']}" if told["effect"] else ""
            sure = f"{told['confidence']:.2f} by rule {told['rule'] or 'none'}"
            return f"suspect: {told['suspect']}, {sure}{effect}"
        case "case_remedy":
            return f"remedy: {told['remedy']}"
        case "case_done":
            problem = f": not done: {str(told['problem'])[:100]}" if told["problem"] else ""
            return f"carried out: {told['remedy']}{problem}"
        case "case_hardware":
            return f"for people: {told['work']}"
        case "case_returned":
            return f"people say: {told['work']}"
        case "parts":
            changed = [f"{c['slot']} {c['before']} -> {c['after']}" for c in told["changes"]]
            named = [f"{k}: {', '.join(told[k])}" for k in ("unexpected", "missing", "wrong")
                     if told[k]]  # fmt: skip
            return "; ".join(["parts: " + (", ".join(changed) or "none changed"), *named])
        case "certified":
            return "certified"
        case "case_closed":
            return f"closed: {told['ending']}: {told['why']}"
    return ""


async def written(shop: Shop, story: Story, after: int) -> str:
    """The story's text."""
    rows = [r for r in await shop.world.store.journal.list(after, 10_000) if r["node"] == HOST]
    lines = [told for r in rows if (told := line(str(r["kind"]), r["detail"]))]
    case = await shop.newest()
    ticket = "none" if case.ticket is None else case.ticket.work
    led = ["on" if r["detail"]["on"] else "off" for r in rows if r["kind"] == "case_led"]
    again = f"score {case.score:.1f}, deeper tests: {'yes' if case.deeper else 'no'}"
    # the LED follows the case in a loop of its own: where in the story is chance, how often is not
    tail = [f"identify LED: {', '.join(led) or 'off'}", f"ticket: {ticket}", f"history: {again}"]
    return "\n".join([f"# {story.told}", *lines, *tail, ""])


async def lived_through(shop: Shop, story: Story) -> str:
    """From the fault until people are asked or all is well; then everything is put right."""
    world = shop.world
    if story.before is not None:
        await story.before(shop)
    machine = world.site.machines[HOST]
    devices = {k: (dict(vars(d)), dict(d.traits)) for k, d in machine.devices.items()}
    seen = await world.store.evidence.get_inventory(HOST)
    assert seen is not None
    rows = await world.store.journal.list(0, 100_000)
    last = int(rows[-1]["seq"])
    await story.plant(shop)
    await shop.report(story.reason, story.origin)
    await settled(shop)
    if story.after is not None:
        await story.after(shop)
    text = await written(shop, story, last)
    if (case := await shop.newest()).open:
        assert isinstance(
            await shop.case_service.close(case, Ending.REPAIRED, "test", "put right"), Case
        )
    for slot, (fields, traits) in devices.items():
        vars(machine.devices[slot]).update(fields)
        machine.devices[slot].traits.clear()
        machine.devices[slot].traits.update(traits)
    node = await shop.node()
    if node.state is State.REPAIRING:  # what was seen of the fault is the next story's no more
        await world.store.nodes.save(node.model_copy(update={"blockers": ()}))
        await world.store.write(partial(put_inventory, inventory=seen, now=world.clock.now()))
    await world.clock.sleep(120.0)  # its identify LED goes off
    if os.environ.get("RECORD_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{story.name}.txt").write_text(text)
    return text


def tell(directory: Path, stories: Sequence[Story]) -> dict[str, str]:
    """The stories' texts, one after the other on one site."""

    async def all_of_them(shop: Shop) -> dict[str, str]:
        return {s.name: await lived_through(shop, s) for s in stories}

    texts, _ = lived(
        directory, all_of_them, wanted=0, repair_resets_per_day=50,
        repair_remedies_per_hour=1000, repair_retire_score=1000.0, certify_gates="ab",
        repair_deeper_limit_s=0.0,
    )  # fmt: skip
    return texts


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tell(tmp_path_factory.mktemp("site"), STORIES)


@pytest.mark.parametrize("name", [s.name for s in STORIES])
def test_a_repair_goes_as_its_golden_text_says(name: str, told: dict[str, str]) -> None:
    file = GOLDEN / f"{name}.txt"
    assert told[name] == file.read_text()


@pytest.mark.long
@pytest.mark.parametrize("story", LONG, ids=[s.name for s in LONG])
def test_a_long_repair_goes_as_its_golden_text_says(story: Story, tmp_path: Path) -> None:
    text = tell(tmp_path, [story])[story.name]

    assert text == (GOLDEN / f"{story.name}.txt").read_text()


def test_no_golden_repair_is_left_over() -> None:
    assert {f.stem for f in GOLDEN.glob("*.txt")} == {s.name for s in (*STORIES, *LONG)}
