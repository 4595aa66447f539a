"""Holds that several rack campaigns rely on, or one whose files are lost."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from duty_rig import FLASH, Daemon, read_mark
from rack_rig import Rig
from test_rack_holds import approve_anew, find_work, leave_half_done, vouch
from typer.testing import CliRunner

from provisioner.integrations.racks.duty import rack_holds
from provisioner.integrations.racks.duty.approval import (
    RackCampaignState,
    keep_state,
    read_state,
)
from provisioner.integrations.racks.duty.node_holds import build_want
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.rack_commands import app
from provisioner.model.node import State


def test_no_word_and_no_proof_of_one_campaign_frees_a_node_that_another_one_needs(
    tmp_path: Path,
) -> None:
    site = leave_half_done(tmp_path)
    spring = tmp_path / "campaigns" / "spring"
    shutil.copytree(site.campaign, spring)  # it was begun as well, and is under way
    state = json.loads((spring / "state.json").read_text()) | {"name": "spring", "state": "halted"}
    (spring / "state.json").write_text(json.dumps(state))

    async def scenario() -> None:
        site.say("vouch", "n0", "--yes")
        duty = site.duty()
        holds = RackHolds(duty)
        await holds.tick()
        wanted = [build_want((read_mark(spring),))]
        await duty.holds.free(site.mark, site.rig.plan(), ())
        assert [one.want for one in await site.active()] == wanted
        assert await find_work(site) == []
        for lose in ("{damaged\n", "", None):
            (spring / "journal").unlink()
            if lose is not None:
                (spring / "journal").write_text(lose)
            await holds.tick()  # nobody can tell what that one needs
            assert [one.want for one in await site.active()] == wanted
        mark = read_mark(spring)
        shutil.rmtree(spring)
        await holds.tick()
        assert [one.want for one in await site.active()] == wanted
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_campaign_under_the_hold_of_another_one_keeps_its_node_without_its_files(
    tmp_path: Path,
) -> None:
    """It wrote firmware, the daemon died, and a person vouched for what the other one had left."""
    site = leave_half_done(tmp_path)
    spring = approve_anew(site, "spring")
    mark = read_mark(spring)
    pushed = len(site.rig.rack.find("push"))

    class Killed(BaseException):
        """The process died here."""

    def look() -> None:
        if len(site.rig.rack.find("push")) > pushed:
            raise Killed

    site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
    site.each_round(look)
    with pytest.raises(Killed):
        asyncio.run(site.duty().tick())
    site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]

    async def scenario() -> None:
        site.say("vouch", "n0", "--yes")
        (spring / "journal").unlink()
        duty = site.duty()
        holds = RackHolds(duty)
        for _ in range(2):
            await holds.tick()
            assert await find_work(site) == []
        both = build_want((site.mark, mark))  # one that cannot be judged frees nobody at all
        assert [one.want for one in await site.active()] == [both]
        await duty.tick()  # it begins nothing anew under an empty journal
        state = read_state(spring)
        assert state is not None
        assert (state.state, state.domains) == (RackCampaignState.WAITS, ("d01",))
        assert "its journal is gone" in state.says[0]
        shutil.rmtree(spring)
        for _ in range(2):
            await holds.tick()
            assert [one.want for one in await site.active()] == [build_want((mark,))]
            assert await find_work(site) == []
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await find_work(site) == ["n0"]

    asyncio.run(scenario())


def test_a_hold_that_another_campaign_has_joined_meanwhile_is_not_ended(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)

    async def scenario() -> None:
        holds = site.duty().holds
        seen = (await holds.list_active())["n0"]
        assert await holds.hold("n0", "spring.00000000") == ""
        await holds.leave(seen, site.mark, "a look from before")
        both = build_want((site.mark, "spring.00000000"))
        assert [one.want for one in await site.active()] == [both]
        assert "operation" in await holds.hold("n0", "autumn.00000000")  # spring is not withdrawn
        for mark in (site.mark, "spring.00000000"):
            assert len(await site.active()) == 1
            await holds.leave((await holds.list_active())["n0"], mark, "proved")
        assert await site.active() == []
        node = await site.store.nodes.get("n0")
        assert node is not None
        assert node.note == "proved"

    asyncio.run(scenario())


def test_a_campaign_of_the_same_name_frees_no_node_of_the_one_before(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)
    mark = site.mark
    state = read_state(site.campaign)
    assert state is not None
    approve_anew(site, "other")
    shutil.rmtree(site.campaign)
    (tmp_path / "campaigns" / "other").rename(site.campaign)
    keep_state(site.campaign, state.model_copy(update={"state": RackCampaignState.DONE}))

    async def scenario() -> None:
        holds = RackHolds(site.duty())
        for _ in range(3):
            await holds.tick()
            assert [one.want for one in await site.active()] == [build_want((mark,))]
        assert site.mark != mark
        assert "it is not withdrawn" in vouch(site, "winter")
        assert vouch(site, mark) == ""
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_a_word_on_an_earlier_approval_frees_no_node_of_a_later_one(tmp_path: Path) -> None:
    site = leave_half_done(tmp_path)
    site.say("vouch", "n0", "--yes")
    asyncio.run(RackHolds(site.duty()).tick())
    assert asyncio.run(site.active()) == []
    kept = {file: (site.campaign / file).read_bytes() for file in ("journal", "state.json")}
    (site.campaign / "journal").unlink()
    words = ["approve", str(tmp_path), "winter", "r01", "--who", "amy", "--why", "again", "--yes"]
    told = CliRunner().invoke(app, words)
    assert "its journal or its state is there" in str(told.exception)
    (site.campaign / "state.json").unlink()
    assert CliRunner().invoke(app, words).exit_code == 0
    for file, content in kept.items():  # it is as far as the first one was
        (site.campaign / file).write_bytes(content)
    asyncio.run(RackHolds(site.duty()).tick())
    assert [one.want for one in asyncio.run(site.active())] == [site.want]


def test_a_campaign_frees_nobody_before_the_first_look_at_all_of_them(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()

    async def scenario() -> None:
        await site.add(state=State.CONVERGING)
        duty = site.duty()
        await duty.tick()
        state = read_state(site.campaign)
        assert state is not None
        assert state.state is RackCampaignState.DONE
        assert [one.want for one in await site.active()] == [site.want]
        await RackHolds(duty).tick()
        assert await site.active() == []

    asyncio.run(scenario())


def test_nobody_is_freed_before_each_campaign_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()
    yule = approve_anew(site, "yule")

    async def scenario() -> None:
        await site.add(state=State.CONVERGING)
        duty = site.duty()
        holds = RackHolds(duty)
        (yule / "journal").write_text("{damaged\n")
        await holds.tick()
        await duty.tick()
        state = read_state(site.campaign)
        assert state is not None
        assert state.state is RackCampaignState.DONE
        assert [one.want for one in await site.active()] == [site.want]
        await holds.tick()
        assert [one.want for one in await site.active()] == [site.want]
        (yule / "journal").unlink()
        monkeypatch.setattr(rack_holds, "CAMPAIGNS_MAX", 1)  # the second one is not looked at
        await holds.tick()
        assert [one.want for one in await site.active()] == [site.want]
        monkeypatch.undo()
        await holds.tick()
        assert await site.active() == []

    asyncio.run(scenario())
