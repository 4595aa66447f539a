"""A node whose rack's update began and is not proved: nothing else of the daemon works at it.

The store, the scheduler and the reconciler are the daemon's own; the rack is simulated.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from duty_rig import FLASH, Daemon, read_mark
from rack_rig import TARGETS, Rig
from test_domains import Two
from typer.testing import CliRunner

from provisioner.control.context import Context
from provisioner.control.node.reconciler import Reconciler
from provisioner.control.node.scheduler import Scheduler
from provisioner.integrations.racks.duty.approval import (
    RackCampaignState,
    read_state,
)
from provisioner.integrations.racks.duty.node_holds import build_want
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import BEGAN, Line, open_log
from provisioner.integrations.racks.update_start import find_unproved
from provisioner.model.node import State
from provisioner.model.operation import OperationStatus
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle.explain import Situation, explain
from provisioner.settings import Settings

TRAY = {"compute-tray": {"hgx-bundle": TARGETS["compute-tray"]["hgx-bundle"]}}
SWITCH = {"nvlink-switch": TARGETS["nvlink-switch"]}


async def find_work(site: Daemon) -> list[str]:
    """Return the nodes at which the rest of the daemon begins work in its next tick."""
    clock: Any = site.parts.clock
    context = Context(site.store, clock, site.parts.settings)
    begun: list[str] = []

    async def submit(operation: str) -> None:
        begun.append(operation)

    await Scheduler(context, submit).tick()
    for one in await site.store.operations.list_active():
        if one.id in begun:
            taken = await site.store.operations.take(one.id)
            await site.store.operations.end(taken, OperationStatus.DONE, "")
    return sorted(name.partition("#")[0] for name in begun)


def was_written(site: Daemon) -> bool:
    return any(event.what.startswith(("push", "job ")) for event in site.rig.rack.log)


def stop_at_write(site: Daemon, word: str) -> None:
    """Say a person's word once the simulated rack has seen a write."""
    said: list[str] = []

    def look() -> None:
        if not said and was_written(site):
            said.append(word)
            site.say(word)

    site.each_round(look)


def leave_half_done(folder: Path, targets: Any = FLASH, word: str = "withdraw") -> Daemon:
    """A campaign that was stopped after its first write, and a node that wants to go on."""
    site = Daemon(folder, targets)
    site.approve()
    asyncio.run(site.add(state=State.CONVERGING))
    stop_at_write(site, word)
    asyncio.run(site.turn())
    assert was_written(site)
    assert site.rig.violations() == []
    return site


def approve_anew(site: Daemon, name: str) -> Path:
    """Approve the same campaign once more, in a folder of its own."""
    made = site.folder / "campaigns" / name
    made.mkdir()
    for file in site.campaign.glob("*.*"):
        if file.name not in {"approved.json", "state.json"}:
            (made / file.name).write_bytes(file.read_bytes())
    words = ["approve", str(site.folder), name, "r01", "--who", "amy", "--why", "again"]
    more = ["--user", "admin", "--nvos-user", "admin", "--yes"]
    assert CliRunner().invoke(app, [*words, *more]).exit_code == 0
    return made


def vouch(site: Daemon, name: str) -> str:
    """Vouch for n0; return why it is refused."""
    words = ["vouch", str(site.folder), name, "n0", "--who", "amy", "--why", "read", "--yes"]
    told = CliRunner().invoke(app, words)
    return "" if told.exit_code == 0 else str(told.exception)


@pytest.mark.parametrize("targets", [FLASH, SWITCH, TRAY], ids=["shelf", "switch", "tray"])
@pytest.mark.parametrize("word", ["halt", "withdraw"])
def test_a_domain_that_was_written_in_part_keeps_its_nodes_from_their_journey(
    tmp_path: Path, targets: Any, word: str
) -> None:
    site = leave_half_done(tmp_path, targets, word)

    async def scenario() -> None:
        holds = RackHolds(site.duty())
        for _ in range(3):
            await holds.tick()
            assert await find_work(site) == []
        assert [(one.node, one.want) for one in await site.active()] == [("n0", site.want)]
        site.parts.settings = Settings()  # the integration is off: nobody ticks
        assert await find_work(site) == []
        (held,) = await site.active()
        clock: Any = site.parts.clock
        context = Context(site.store, clock, site.parts.settings)
        nobody: Any = None  # neither observer nor performer is asked
        await Reconciler(context, nobody, nobody).drive(held.id)
        assert (await site.active()) == [held]

    asyncio.run(scenario())


def test_a_failed_act_keeps_the_nodes_of_its_domain_and_those_that_come_later(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()
    site.rig.shelf("p0").faults.wrong_flash = True

    async def scenario() -> None:
        await site.add(state=State.CONVERGING)
        assert (await site.turn()).state is RackCampaignState.HELD
        await site.add(state=State.DISCOVERED, number=1)
        holds = RackHolds(site.duty())
        await holds.tick()
        assert await find_work(site) == []
        assert sorted(one.node for one in await site.active()) == ["n0", "n1"]

    asyncio.run(scenario())


def test_a_held_node_says_what_holds_it_and_what_would_end_it(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)

    async def scenario() -> None:
        node = await site.store.nodes.get("n0")
        assert node is not None
        rows, _ = await site.store.journal.list_page(after=0, limit=50, node="n0", backwards=True)
        told = explain(Situation(node=node, now=site.rig.rack.now, history=tuple(rows)))
        assert any(
            f"{Reason.CANNOT_TELL}: n0: rack campaign {site.mark} may have written" in line
            for line in told.why
        ), told.why
        assert any(
            f"provisioner rack vouch RACKS_FOLDER {site.mark} n0" in one for one in told.unblock
        )

    asyncio.run(scenario())


def test_only_a_persons_word_on_a_withdrawn_campaign_frees_a_node_that_is_not_proved(
    tmp_path: Path,
) -> None:
    site = leave_half_done(tmp_path, word="halt")
    words = ["vouch", str(tmp_path), "winter", "n0", "--who", "amy", "--why", "read", "--yes"]
    early = CliRunner().invoke(app, words)
    assert "it is not withdrawn" in str(early.exception)

    async def scenario() -> None:
        site.say("withdraw")
        site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
        assert (await site.turn()).state is RackCampaignState.WITHDRAWN
        holds = RackHolds(site.duty())
        await holds.tick()
        assert await find_work(site) == []
        site.say("vouch", "n0", "--yes")
        await holds.tick()
        assert await site.active() == []
        assert await find_work(site) == ["n0"]
        node = await site.store.nodes.get("n0")
        assert node is not None
        assert node.note == "a person vouches for it: amy: enough"
        await holds.tick()  # the word lasts
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_campaign_is_withdrawn_and_its_nodes_vouched_for_also_without_racks_update(
    tmp_path: Path,
) -> None:
    site = leave_half_done(tmp_path, word="halt")
    site.parts.settings = Settings(racks_folder=str(tmp_path))

    async def scenario() -> None:
        holds = RackHolds(site.duty())
        await holds.tick()
        state = read_state(site.campaign)
        assert state is not None
        assert state.state is RackCampaignState.HALTED
        site.say("withdraw")
        await holds.tick()
        state = read_state(site.campaign)
        assert state is not None
        assert state.state is RackCampaignState.WITHDRAWN
        assert len(await site.active()) == 1
        site.say("vouch", "n0", "--yes")
        await holds.tick()
        assert await find_work(site) == ["n0"]

    asyncio.run(scenario())


def test_a_withdrawn_domain_is_free_after_two_looks_that_prove_each_version(
    tmp_path: Path,
) -> None:
    site = leave_half_done(tmp_path)

    async def scenario() -> None:
        duty = site.duty()
        holds = RackHolds(duty)
        await holds.tick()
        state = read_state(site.campaign)
        assert state is not None
        assert any("FW_PMC_primary runs 3.2.3" in one for one in state.says), state.says
        site.rig.rack.advance(3_600.0)
        shelf = site.rig.shelf("p0")
        shelf.flash = {"Primary": "3.2.4", "Backup": "3.2.4"}  # a person wrote the rest
        shelf.faults.silent = True
        await holds.tick()  # nobody answers for it: that is no proof
        site.rig.rack.advance(3_600.0)
        shelf.faults.silent = False
        shelf.shown.change()
        await holds.tick()
        assert len(await site.active()) == 1  # one look is none
        await holds.tick()
        await holds.tick()
        assert await site.active() == []
        journal = (site.campaign / "journal").read_text().splitlines()
        assert json.loads(journal[-1])["key"] == "d01/prove"
        assert await find_work(site) == ["n0"]

    asyncio.run(scenario())


@pytest.mark.parametrize("state", [State.DISCOVERED, State.CONVERGING, State.CERTIFIED])
def test_a_node_that_comes_later_is_held_as_well(tmp_path: Path, state: State) -> None:
    """Its tray was no node when it was written: a journey that began meanwhile is ended."""
    site = leave_half_done(tmp_path)

    async def scenario() -> None:
        await site.add(state=state, number=1)
        begun = await site.store.operations.open("n1", state.value, 1_000.0)
        assert begun is not None
        holds = RackHolds(site.duty())
        await holds.tick()
        await holds.tick()
        held = {one.node: one.want for one in await site.active()}
        journeys = state is not State.CERTIFIED  # a release under way is not cut
        assert held == {"n0": site.want, "n1": site.want if journeys else state.value}

    asyncio.run(scenario())


def test_a_lost_database_or_a_lost_journal_frees_nobody(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)

    async def scenario() -> None:
        (held,) = await site.active()
        taken = await site.store.operations.take(held.id)
        await site.store.operations.end(taken, OperationStatus.DONE, "an older backup")
        holds = RackHolds(site.duty())
        await holds.tick()
        assert [one.want for one in await site.active()] == [site.want]
        for journal in ("{damaged\n", "", None):
            (site.campaign / "journal").unlink()
            if journal is not None:
                (site.campaign / "journal").write_text(journal)
            await holds.tick()
        plan = (tmp_path / "racks.yaml").read_text()
        (tmp_path / "racks.yaml").write_text("racks: [")
        await holds.tick()
        (tmp_path / "racks.yaml").write_text(plan)
        mark = site.mark
        site.campaign.rename(tmp_path / "lost")
        await holds.tick()
        assert [one.want for one in await site.active()] == [build_want((mark,))]
        assert "Give its name with its digest" in vouch(site, "winter")
        assert vouch(site, mark) == ""  # there is no approval beside it
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_journal_that_lost_its_last_write_frees_nobody_after_the_withdrawal(
    tmp_path: Path,
) -> None:
    """As an older copy of it does, which is whole in itself."""
    site = leave_half_done(tmp_path)
    journal = site.campaign / "journal"
    lines = journal.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if f'"{BEGAN}"' in line)
    journal.write_text("".join(lines[:first]))

    async def scenario() -> None:
        holds = RackHolds(site.duty())
        for _ in range(3):
            await holds.tick()
            assert [one.want for one in await site.active()] == [site.want]
        assert vouch(site, "winter") == ""
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_proof_counts_for_the_units_that_it_looked_at(tmp_path: Path) -> None:
    """One that was written to in another domain, and moved here since, is not proved by it."""

    def plan(domain: str) -> RackPlan:
        tray = {"kind": "compute-tray", "u": 11, "slot": 11, "tray_index": 0}
        racks = [
            {"name": "r01", "chassis_serial": "1", "domain": "d01"},
            {"name": "r02", "chassis_serial": "2", "domain": "d02"},
        ]
        other = {"name": "t1", **tray, "u": 12, "slot": 12, "tray_index": 1}
        units = [[{"name": "t0", **tray, "domain": domain}], [other]]
        if domain == "d02":  # it was carried over
            units = [[{"name": "t9", **tray}], [units[0][0], other]]
        listed = [{**rack, "units": own} for rack, own in zip(racks, units, strict=True)]
        return RackPlan.model_validate({"racks": listed})

    with open_log(tmp_path / "journal") as log:
        log.write(Line("t0/host-bundle", BEGAN, "push", 1.0))
        log.write(Line("t1/host-bundle", BEGAN, "push", 2.0))
        log.write(Line("d02/prove", "step", "done", 3.0, "t1"))
        assert find_unproved(plan("d01"), log) == {"d01": ["t0"]}
        assert find_unproved(plan("d02"), log) == {"d02": ["t0", "t1"]}
        log.write(Line("d02/prove", "step", "done", 4.0, "t0 t1"))
        assert find_unproved(plan("d02"), log) == {}


def test_a_domain_to_which_nothing_was_written_is_free_with_the_withdrawal(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH, Two, 2)
    for unit in (site.rig.tray("t1"), site.rig.switch("s1")):
        unit.chassis = "1820002"
    site.approve()
    stop_at_write(site, "withdraw")

    async def scenario() -> None:
        site.begin_journal()
        for number in (0, 1):
            await site.add(state=State.CONVERGING, number=number)
            opened = await site.store.operations.open(f"n{number}", site.want, 1_000.0)
            assert opened is not None
        await site.turn()
        await RackHolds(site.duty()).tick()
        (begun,) = {event.unit for event in site.rig.rack.find("push")}
        kept = f"n{begun[1]}"
        other = f"n{1 - int(begun[1])}"
        assert [one.node for one in await site.active()] == [kept]
        assert await find_work(site) == [other]

    asyncio.run(scenario())


def test_a_campaign_may_begin_where_another_one_was_withdrawn(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)
    spring = approve_anew(site, "spring")

    async def scenario() -> None:
        site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
        duty = site.duty()
        await RackHolds(duty).tick()
        wants: list[str] = []

        async def look() -> None:
            wants.extend(one.want for one in await site.active())

        site.each_round(look)
        await duty.tick()
        assert build_want((site.mark, read_mark(spring))) in wants  # both rely on it
        state = read_state(spring)
        assert state is not None
        assert state.state is RackCampaignState.DONE, state.says
        assert [one.want for one in await site.active()] == [site.want]  # no gap between both
        assert await find_work(site) == []
        holds = RackHolds(duty)
        for _ in range(4):
            await holds.tick()  # what the new one proved is read again for the old one
            assert await find_work(site) in ([], ["n0"])
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_campaign_that_is_done_holds_nobody_whatever_becomes_of_the_plan(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()

    async def scenario() -> None:
        await site.add(state=State.CONVERGING)
        assert (await site.turn()).state is RackCampaignState.DONE
        plan = json.loads((tmp_path / "racks.yaml").read_text())
        plan["racks"][0]["units"][0]["domain"] = "d09"  # one job with the rack's other domain now
        (tmp_path / "racks.yaml").write_text(json.dumps(plan))
        await RackHolds(site.duty()).tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_people_are_told_of_each_change_once(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path, word="halt")

    async def scenario() -> None:
        site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
        await site.turn()
        site.say("withdraw")
        await site.turn()
        rows, _ = await site.store.journal.list_page(after=0, limit=100, backwards=False)
        told = [
            (row["detail"]["campaign"], row["detail"]["state"], row["detail"]["by"])
            for row in rows
            if row["kind"] == "campaign"
        ]
        states = ["started", "paused", "aborted"]
        assert told == [("racks/winter", state, "amy") for state in states]

    asyncio.run(scenario())


def test_a_serving_node_is_left_to_its_tenant(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)

    async def scenario() -> None:
        await site.add("acme", State.RELEASED, 1)
        await RackHolds(site.duty()).tick()
        pages = await site.store.operations.list_page(limit=10, node="n1")
        assert pages == ()

    asyncio.run(scenario())
