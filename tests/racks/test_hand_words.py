"""Words about people's journals are void for good once those changed, and what frees nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from duty_rig import FLASH, Daemon
from test_hand_journals import update_by_hand
from test_rack_holds import vouch

from provisioner.integrations.racks.duty.approval import (
    Vouched,
    keep_vouched,
    read_vouched,
    take_word,
)
from provisioner.integrations.racks.duty.node_holds import read_marks
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.hand_journals import HANDS
from provisioner.integrations.racks.update_log import BEGAN, Line, open_log
from provisioner.model.node import State


def test_a_restart_makes_no_empty_folder_in_the_place_of_one_that_held_all(tmp_path: Path) -> None:
    """The folder's disk is not there at the daemon's next start."""
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    hands = tmp_path / HANDS
    hands.mkdir()
    (hands / "amy.journal").write_text("no line\n")
    looked = asyncio.Event()

    class Watched(RackHolds):
        async def tick(self) -> None:
            await super().tick()
            looked.set()

    async def live() -> list[list[str]]:
        looked.clear()
        running = asyncio.create_task(Watched(site.duty()).run())
        await looked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [list(read_marks(own)) for own in await site.active()]

    async def scenario() -> None:
        assert await live() == [[HANDS]]
        hands.rename(tmp_path / "elsewhere")
        assert await live() == [[HANDS]]
        assert not hands.exists()
        hands.mkdir()  # a person's word that there was nothing
        holds = RackHolds(site.duty())
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("unit", ["t0", "gone"])  # that the plan has, and one that it has not
def test_a_word_on_an_older_journal_is_void_for_good_once_that_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    """An old copy of the journal, which the word was about, is brought back."""
    site = Daemon(tmp_path, FLASH)
    asyncio.run(site.add(state=State.CONVERGING))
    journal = tmp_path / HANDS / "amy.journal"
    update_by_hand(site, monkeypatch, journal, dies=True)
    holds = RackHolds(site.duty())

    async def scenario() -> None:
        await holds.tick()
        ((mark,),) = [read_marks(own) for own in await site.active()]
        older = journal.read_bytes()
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await site.active() == []
        with open_log(journal) as log:
            log.write(Line(f"{unit}/host-bundle", BEGAN, "push", site.parts.clock.now()))
            await log.sync()
        await holds.tick()
        assert len(await site.active()) == 1
        journal.write_bytes(older)
        for _ in range(2):
            await holds.tick()
            assert len(await site.active()) == 1
        fresh = RackHolds(site.duty())  # nor does a restart believe it
        await fresh.tick()
        assert len(await site.active()) == 1
        assert vouch(site, mark) == ""  # a new word, on what is there now
        await fresh.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_word_that_is_given_while_the_daemon_looks_is_not_taken_back(tmp_path: Path) -> None:
    folder, mark = tmp_path, "amy.00000000"
    keep_vouched(folder, mark, Vouched(journal="new", nodes={"n0": "amy: read"}))
    assert take_word(folder, mark, "old") == {}  # the journal is "": it is no more what was read
    assert read_vouched(folder, mark, "new") == {"n0": "amy: read"}
