"""What a person's command left half done on racks, and what held nodes are kept from."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest
from duty_rig import FLASH, Daemon
from rack_rig import Rig
from test_rack_holds import find_work, leave_half_done, stop_at_write, vouch
from typer.testing import CliRunner

from provisioner.integrations.racks import update_commands
from provisioner.integrations.racks.cold_reboot_run import COLD_REBOOT, OVER
from provisioner.integrations.racks.duty import approve_commands
from provisioner.integrations.racks.duty.approval import RackCampaignState, read_state
from provisioner.integrations.racks.duty.node_holds import read_marks
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.hand_journals import (
    HANDS,
    check_hand_journal,
    is_at_work,
    read_hand_journal,
)
from provisioner.integrations.racks.plan import read_plan
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import BEGAN, NOTED, Line, open_log
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import Phase, Tenant


def command(site: Daemon, journal: Path) -> list[str]:
    files = [site.folder / "racks.yaml", site.campaign / "campaign.yaml"]
    more = ["--water", str(site.folder / "water.json"), "--journal", str(journal), "--yes"]
    return ["update", *map(str, files), "r01", *more]


class Died(Exception):
    """The command's process is gone."""


def update_by_hand(
    site: Daemon, monkeypatch: pytest.MonkeyPatch, journal: Path, *, dies: bool
) -> None:
    """Run `rack update` in the daemon's folder, to its end or to its death after a write."""
    made = site.rig.update()
    monkeypatch.setattr(update_commands, "build_update", lambda *_, **__: made)
    if dies:

        def look() -> None:
            if site.rig.rack.find("push"):
                raise Died

        site.each_round(look)
        made.pause = site.rig.pause
    told = CliRunner().invoke(app, command(site, journal))
    assert isinstance(told.exception, Died) if dies else told.exit_code == 0, told.output


def test_a_command_names_a_journal_that_the_daemon_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    for elsewhere in (tmp_path / "journal", tmp_path / HANDS / "mine", tmp_path / "x.journal"):
        told = CliRunner().invoke(app, command(site, elsewhere))
        assert isinstance(told.exception, InputError)
        assert f"{tmp_path / HANDS}/NAME.journal" in str(told.exception)
    assert site.rig.rack.find("push") == []


@pytest.mark.parametrize("name", ["r01, again", "R01", "-", "a" * 64])
def test_a_journals_name_is_one_that_a_hold_can_have(tmp_path: Path, name: str) -> None:
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    journal = tmp_path / HANDS / f"{name}.journal"
    with pytest.raises(InputError, match=r"NAME\.journal"):
        check_hand_journal(journal, tmp_path / "racks.yaml")
    journal.parent.mkdir()
    begin_cold_reboot(site)
    (journal.parent / "cold.journal").rename(journal)
    holds = RackHolds(site.duty())

    async def scenario() -> None:
        for _ in range(3):
            await holds.tick()
            (own,) = await site.active()
            assert read_marks(own) == [HANDS]

    asyncio.run(scenario())


def test_a_look_whether_a_command_is_at_work_refuses_no_command(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    with journal.open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        ends = threading.Timer(0.1, fcntl.flock, (look, fcntl.LOCK_UN))
        ends.start()
        with (
            open_log(journal),
            pytest.raises(InputError, match="another update"),
            open_log(journal),
        ):
            pass
        ends.join()


def test_a_daemons_folder_is_known_before_it_has_a_campaign(tmp_path: Path) -> None:
    class Stopped(Exception):
        """The test's end of the loop."""

    def stop() -> None:
        raise Stopped

    site = Daemon(tmp_path, FLASH)
    site.each_round(stop)
    shutil.rmtree(tmp_path / "campaigns")
    with pytest.raises(Stopped):
        asyncio.run(RackHolds(site.duty()).run())
    with pytest.raises(InputError, match="a daemon has"):
        check_hand_journal(tmp_path / "journal", tmp_path / "racks.yaml")


def test_what_a_command_left_half_done_holds_its_nodes_until_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    journal = tmp_path / HANDS / "amy.journal"
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, journal, dies=True)
    holds = RackHolds(site.duty())

    async def look(held: int) -> None:
        for _ in range(3):
            await holds.tick()
            assert len(await site.active()) == held
            assert await find_work(site) == ([] if held else ["n0"])

    asyncio.run(look(1))
    site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
    update_by_hand(site, monkeypatch, journal, dies=False)
    asyncio.run(look(0))


def test_a_word_frees_what_a_command_left_and_a_lost_journal_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    journal = tmp_path / HANDS / "amy.journal"
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, journal, dies=True)
    holds = RackHolds(site.duty())

    async def scenario() -> None:
        await holds.tick()
        (own,) = await site.active()
        (mark,) = read_marks(own)
        told = read_hand_journal(
            journal, read_plan(tmp_path / "racks.yaml"), runs=is_at_work(journal)
        )
        assert told is not None
        assert (told.mark, told.runs) == (mark, False)
        content = journal.read_bytes()
        journal.unlink()
        assert not is_at_work(journal)  # as one that goes after it was listed
        await holds.tick()
        assert len(await site.active()) == 1
        journal.write_bytes(content)
        assert vouch(site, mark) == ""
        with open_log(journal):  # the command is at work again: the word is not about that
            await holds.tick()
            assert len(await site.active()) == 1
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_word_is_not_about_what_the_command_writes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    journal = tmp_path / HANDS / "amy.journal"
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, journal, dies=True)
    holds = RackHolds(site.duty())

    async def look(held: int) -> None:
        for _ in range(2):
            await holds.tick()
            assert len(await site.active()) == held

    asyncio.run(look(1))
    (mark,) = read_marks(asyncio.run(site.active())[0])
    assert vouch(site, mark) == ""
    asyncio.run(look(0))
    begun = journal.read_text().count(f'"{BEGAN}"')

    def die_at_the_next_write() -> None:
        if journal.read_text().count(f'"{BEGAN}"') > begun:
            raise Died

    site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
    site.each_round(die_at_the_next_write)
    made = site.rig.update()
    monkeypatch.setattr(update_commands, "build_update", lambda *_, **__: made)
    assert isinstance(CliRunner().invoke(app, command(site, journal)).exception, Died)
    asyncio.run(look(1))
    content = journal.read_bytes()
    journal.unlink()
    asyncio.run(look(1))  # nor is it about what nobody can read any more
    journal.write_bytes(content)
    assert vouch(site, mark) == ""
    asyncio.run(look(0))


def test_a_folder_that_cannot_be_listed_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a file here; a folder of another user's fails alike."""
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, tmp_path / HANDS / "amy.journal", dies=True)
    (tmp_path / HANDS).rename(tmp_path / "elsewhere")
    (tmp_path / HANDS).touch()
    holds = RackHolds(site.duty())

    async def scenario() -> None:
        for _ in range(2):
            await holds.tick()
            (own,) = await site.active()
            assert read_marks(own) == [HANDS]
            assert await find_work(site) == []
        node = await site.store.nodes.get("n0")
        assert node is not None
        assert "not every journal in `by-hand`" in node.note
        (tmp_path / HANDS).unlink()
        (tmp_path / "elsewhere").rename(tmp_path / HANDS)
        await holds.tick()
        (own,) = await site.active()
        assert [mark.partition(".")[0] for mark in read_marks(own)] == ["amy"]
        held = tmp_path / "campaigns"
        held.rename(tmp_path / "elsewhere")
        held.touch()  # this one alike
        await holds.tick()
        assert not holds.duty.judged
        await holds.duty.tick()

    asyncio.run(scenario())


def test_what_is_not_there_to_be_read_frees_nobody_whom_an_unread_journal_holds(
    tmp_path: Path,
) -> None:
    """The folder is of a disk that is gone; a journal is a link to one."""
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    hands = tmp_path / HANDS
    hands.mkdir()
    (hands / "._amy.journal").touch()  # as a copy from elsewhere leaves beside a file
    holds = RackHolds(site.duty())

    async def look() -> list[tuple[str, ...]]:
        await holds.tick()
        return [tuple(read_marks(own)) for own in await site.active()]

    async def scenario() -> None:
        assert await look() == []
        (hands / "amy.journal").write_text("no line\n")
        assert await look() == [(HANDS,)]
        hands.rename(tmp_path / "gone")
        assert await look() == [(HANDS,)]
        assert not holds.duty.judged
        hands.symlink_to(tmp_path / "nowhere")
        assert await look() == [(HANDS,)]
        hands.unlink()
        hands.mkdir()
        (hands / "amy.journal").symlink_to(tmp_path / "nowhere")
        assert await look() == [(HANDS,)]
        assert await find_work(site) == []
        (hands / "amy.journal").unlink()
        assert await look() == []

    asyncio.run(scenario())


def test_a_word_is_kept_where_no_campaign_ever_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, tmp_path / HANDS / "amy.journal", dies=True)
    shutil.rmtree(tmp_path / "campaigns")
    holds = RackHolds(site.duty())

    async def scenario() -> None:
        await holds.tick()
        ((mark,),) = [read_marks(own) for own in await site.active()]
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_word_that_was_asked_for_before_a_write_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    journal = tmp_path / HANDS / "amy.journal"
    update_by_hand(site, monkeypatch, journal, dies=True)
    holds = RackHolds(site.duty())

    def write(_what: str, *, yes: bool) -> None:
        assert yes
        journal.write_text(journal.read_text() * 2)

    monkeypatch.setattr(approve_commands, "ask_person", write)

    async def scenario() -> None:
        await holds.tick()
        ((mark,),) = [read_marks(own) for own in await site.active()]
        assert "while you were asked" in vouch(site, mark)
        await holds.tick()
        assert len(await site.active()) == 1

    asyncio.run(scenario())


def test_a_journal_is_readable_by_the_daemon_whatever_the_umask_was(tmp_path: Path) -> None:
    Daemon(tmp_path, FLASH)
    journal = tmp_path / HANDS / "amy.journal"
    before = os.umask(0o077)
    try:
        mode = check_hand_journal(journal, tmp_path / "racks.yaml")
        with open_log(journal, mode):
            pass
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (journal.parent, journal)] == [0o755, 0o644]


def rename(site: Daemon, *, rack: str = "r01", mark: str = "") -> str:
    """Rename a rack, and each unit by a mark; return what the plan was."""
    file = site.folder / "racks.yaml"
    before = file.read_text()
    plan = json.loads(before)
    plan["racks"][0]["name"] = rack
    for unit in plan["racks"][0]["units"]:
        unit["name"] = mark + unit["name"]
    file.write_text(json.dumps(plan))
    return before


def begin_cold_reboot(site: Daemon, *notes: str) -> None:
    journal = site.folder / HANDS / "cold.journal"
    journal.parent.mkdir(exist_ok=True)

    async def write() -> None:
        with open_log(journal) as log:
            log.write(Line(f"r01/{COLD_REBOOT}", BEGAN, "shelf-Off:p0", 2.0))
            for note in notes:
                log.write(Line(f"r01/{COLD_REBOOT}", NOTED, note, 3.0))
            await log.sync()

    asyncio.run(write())


@pytest.mark.parametrize("known", [True, False], ids=["held", "lost"])
@pytest.mark.parametrize("writes", ["cold-reboot", "update"])
def test_what_a_command_began_at_a_name_that_the_plan_has_no_more_stays_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str, *, known: bool
) -> None:
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    if writes == "update":
        update_by_hand(site, monkeypatch, tmp_path / HANDS / "amy.journal", dies=True)
    else:
        begin_cold_reboot(site)
    holds = RackHolds(site.duty())

    async def look() -> list[str]:
        for _ in range(2):
            await holds.tick()
            assert await find_work(site) == []
        (own,) = await site.active()
        return [mark.partition(".")[0] for mark in read_marks(own)]

    own = "amy" if writes == "update" else "cold"
    if known:
        assert asyncio.run(look()) == [own]
    before = rename(site, rack="r01-new", mark="x")
    assert asyncio.run(look()) == [own, HANDS] if known else [HANDS]
    (tmp_path / "racks.yaml").write_text(before)
    assert asyncio.run(look()) == [own]


def test_what_a_withdrawn_campaign_began_at_a_name_that_is_gone_stays_held_until_a_word(
    tmp_path: Path,
) -> None:
    site = leave_half_done(tmp_path)
    mark = site.mark
    rename(site, rack="r09", mark="x")

    async def scenario() -> None:
        holds = RackHolds(site.duty())
        for _ in range(2):
            await holds.tick()
            assert len(await site.active()) == 1
        site.campaign.rename(tmp_path / "away")
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_commands_journal_that_lost_its_end_frees_nobody_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    journal = tmp_path / HANDS / "amy.journal"
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, journal, dies=True)

    async def scenario() -> None:
        holds = RackHolds(site.duty())
        await holds.tick()
        (own,) = await site.active()
        journal.write_bytes(journal.read_bytes().split(b"\n")[0] + b"\n")
        for _ in range(2):
            await holds.tick()
            assert await site.active() == [own]
        (mark,) = read_marks(own)
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_what_is_proved_or_over_holds_nobody_whatever_becomes_of_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    update_by_hand(site, monkeypatch, tmp_path / HANDS / "amy.journal", dies=False)
    begin_cold_reboot(site, OVER)
    rename(site, rack="r09", mark="x")
    asyncio.run(RackHolds(site.duty()).tick())
    assert asyncio.run(site.active()) == []


def test_an_unreadable_journal_of_a_command_frees_nobody(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)
    (tmp_path / HANDS).mkdir()
    (tmp_path / HANDS / "amy.journal").write_text("no line\n")

    async def scenario() -> None:
        assert vouch(site, "winter") == ""
        holds = RackHolds(site.duty())
        await holds.tick()
        assert len(await site.active()) == 1
        (tmp_path / HANDS / "amy.journal").unlink()
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_cold_reboot_holds_the_domain_of_its_rack_until_it_is_over(tmp_path: Path) -> None:
    Daemon(tmp_path, FLASH)  # its plan
    journal = tmp_path / HANDS / "cold.journal"
    journal.parent.mkdir()
    plan = read_plan(tmp_path / "racks.yaml")
    key = f"r01/{COLD_REBOOT}"

    async def scenario() -> None:
        with open_log(journal) as log:
            log.write(Line(key, NOTED, "dark", 1.0))
            await log.sync()
            told = read_hand_journal(journal, plan, runs=is_at_work(journal))
            assert told is not None
            assert (told.runs, told.unproved) == (True, {})  # nothing was cut
            log.write(Line(key, BEGAN, "host-off:t0", 2.0))
            await log.sync()
        told = read_hand_journal(journal, plan, runs=is_at_work(journal))
        assert told is not None
        assert not told.runs
        assert [list(trays) for trays in told.unproved.values()] == [["t0", "t1"]]
        with open_log(journal) as log:
            log.write(Line(key, NOTED, OVER, 3.0))
            await log.sync()
        told = read_hand_journal(journal, plan, runs=is_at_work(journal))
        assert told is not None
        assert told.unproved == {}

    asyncio.run(scenario())


def test_a_renamed_rack_is_no_rack_that_has_nothing_to_do(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path, word="halt")
    plan = json.loads((tmp_path / "racks.yaml").read_text())
    plan["racks"][0]["name"] = "r01-new"
    (tmp_path / "racks.yaml").write_text(json.dumps(plan))
    site.say("halt", "--go-on")

    async def scenario() -> None:
        for _ in range(3):
            state = await site.turn()
            assert state.state is RackCampaignState.WAITS
            assert "r01" in state.says[0]
            assert await find_work(site) == []

    asyncio.run(scenario())


def test_a_journal_that_lost_its_end_frees_nobody(tmp_path: Path) -> None:
    """As an older copy of it is: it knows of less than the campaign's state."""
    site = Daemon(tmp_path, FLASH)
    site.approve()
    asyncio.run(site.add(state=State.CONVERGING))
    stop_at_write(site, "halt")
    asyncio.run(site.turn())
    state = read_state(site.campaign)
    assert state is not None
    assert state.done
    file = site.campaign / "journal"
    file.write_bytes(file.read_bytes().split(b"\n")[0] + b"\n")
    site.say("withdraw")

    async def scenario() -> None:
        assert (await site.turn()).state is RackCampaignState.WITHDRAWN
        for _ in range(3):
            await site.turn()
            assert len(await site.active()) == 1
            assert await find_work(site) == []
        assert vouch(site, "winter") == ""
        await site.turn()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_held_certified_node_is_given_to_no_tenant(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()
    asyncio.run(site.add(state=State.CERTIFIED))
    stop_at_write(site, "withdraw")
    asyncio.run(site.turn())

    async def scenario() -> None:
        free = Node(
            id="n9", kind=NodeKind.HOST, state=State.CERTIFIED, placement=Placement.MAINTENANCE
        )
        await site.store.nodes.add(free)
        wants = Tenant(name="red", vrf="RED", nodes_wanted=2, phase=Phase.READY)
        await site.store.tenants.put(wants)
        await find_work(site)
        tenants = {node.id: node.tenant for node in await site.store.nodes.list()}
        assert tenants == {"n0": "", "n9": "red"}
        held = await site.store.nodes.get("n0")
        assert held is not None
        assert f"rack campaign {site.mark}" in held.note
        assert vouch(site, "winter") == ""
        await RackHolds(site.duty()).tick()
        await find_work(site)
        given = await site.store.nodes.get("n0")
        assert given is not None
        assert given.tenant == "red"

    asyncio.run(scenario())
