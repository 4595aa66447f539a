"""The daemon's loop over approved campaigns: on the simulated rack, with a real store of nodes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from duty_rig import FLASH, LOGINS, Daemon
from rack_rig import Rig
from sqlalchemy import text
from test_domains import Two
from typer.testing import CliRunner

from provisioner.control.context import Context
from provisioner.control.node.reconciler import Reconciler
from provisioner.integrations.racks.duty import approve_commands
from provisioner.integrations.racks.duty.approval import (
    Approval,
    RackCampaign,
    RackCampaignState,
    read_approval,
    read_state,
)
from provisioner.integrations.racks.duty.loops import build_loops
from provisioner.integrations.racks.duty.rack_duty import USER, RackDuty
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.duty.rack_water import SUBJECT, RackWater
from provisioner.integrations.racks.rack_commands import app
from provisioner.model.node import State
from provisioner.ports import Call, Secret
from provisioner.runtime import permit
from provisioner.runtime.integrations import list_loops
from provisioner.settings import Settings


def test_an_approved_campaign_is_carried_out_and_its_nodes_are_held_meanwhile(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH)

    async def scenario() -> None:
        await site.add()
        assert read_state(site.campaign) is None
        held: list[tuple[str, str]] = []
        seen: list[RackCampaign | None] = []

        async def look() -> None:
            held.extend((one.node, one.want) for one in await site.active())
            seen.append(read_state(site.campaign))

        site.each_round(look)
        state = await site.turn()
        assert (state.state, state.left, state.racks) == (RackCampaignState.DONE, 0, ("r01",)), (
            state
        )
        assert set(held) == {("n0", site.want)}
        assert {one.domains for one in seen if one is not None} == {("d01",)}
        assert await site.active() == []
        assert site.rig.shelf("p0").flash == {"Primary": "3.2.4", "Backup": "3.2.4"}
        site.check_certificate()
        calls = site.rig.wires.calls
        assert (await site.turn()).state is RackCampaignState.DONE  # it is over
        assert site.rig.wires.calls == calls

    site.approve()
    asyncio.run(scenario())


def test_nothing_is_sent_that_nobody_approved_or_that_changed_since(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)

    async def scenario() -> None:
        parts: Any = site.parts
        await RackDuty(parts, switches=site.rig.wires, environ=LOGINS).tick()
        assert site.rig.wires.calls == 0
        site.approve()
        (site.campaign / "campaign.yaml").write_text("targets: {power-shelf: {pmc: '9'}}\n")
        state = await site.turn()
        assert (state.state, site.rig.wires.calls) == (RackCampaignState.WAITS, 0)
        assert "another one than the approved one" in state.says[0]

    asyncio.run(scenario())


def test_a_tenant_gets_its_grace_and_its_domain_is_held_after_it(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve("--grace-h", "1")

    async def scenario() -> None:
        await site.add("acme", State.RELEASED)
        await site.add(number=1)
        began = site.rig.rack.now
        state = await site.turn()
        assert (state.state, state.domains) == (RackCampaignState.HELD, ("d01",))
        assert "acme uses t0: reclaim its nodes first" in state.says[0]
        assert site.rig.rack.now - began >= 3_600.0
        assert site.rig.rack.find("push") == []
        assert await site.active() == []  # nothing was sent to the domain: n1 is not kept, either
        node = await site.store.nodes.get("n0")
        assert node is not None
        left = node.model_copy(update={"state": State.CERTIFIED, "tenant": ""})
        await site.store.nodes.save(left)
        assert (await site.turn()).state is RackCampaignState.HELD  # it was looked at just now
        site.rig.rack.advance(3_600.0)
        assert (await site.turn()).state is RackCampaignState.DONE

    asyncio.run(scenario())


def test_a_node_at_which_the_daemon_works_is_waited_for(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()

    async def scenario() -> None:
        await site.add()
        other = await site.store.operations.open("n0", "validating", 1_000.0)
        assert other is not None
        rounds = 0

        async def look() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 5:
                assert site.rig.rack.find("push") == []
                state = read_state(site.campaign)
                assert state is not None
                assert f"operation {other.id} (validating) uses t0" in state.says[0]
                taken = await site.store.operations.take(other.id)
                await site.store.operations.end(taken, "done", "")  # type: ignore[arg-type]

        site.each_round(look)
        assert (await site.turn()).state is RackCampaignState.DONE

    asyncio.run(scenario())


def test_a_node_is_held_only_by_an_operation_of_the_campaign_and_while_no_tenant_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()
    parts: Any = site.parts
    duty = RackDuty(parts, switches=site.rig.wires, environ=LOGINS)

    async def ask() -> str | None:
        plan, asked = site.rig.plan(), site.rig.campaign()
        return (await duty._ask(plan, asked, site.mark, ["t0"], hold=True))["t0"]

    async def scenario() -> None:
        await site.add()
        with monkeypatch.context() as patch:  # another operation ends while ours is opened
            patch.setattr(type(site.store.operations), "open", _open_none)
            assert await ask() == "an operation that has just ended"
        assert await ask() == await ask() == ""
        node = await site.store.nodes.get("n0")
        assert node is not None
        served = node.model_copy(update={"state": State.RELEASED, "tenant": "acme"})
        await site.store.nodes.save(served)
        assert await duty.holds.hold("n0", site.mark) == "acme"
        assert [one.want for one in await site.active()] == [site.want]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "others"), [("replace(body, 'released', 'gone')", ""), ("'{not json'", None)]
)
def test_whose_host_a_node_with_a_damaged_row_is_nobody_can_tell(
    tmp_path: Path, body: str, others: str | None
) -> None:
    site = Daemon(tmp_path, FLASH)
    parts: Any = site.parts
    duty = RackDuty(parts, switches=site.rig.wires, environ=LOGINS)

    async def scenario() -> None:
        await site.add("acme", State.RELEASED)
        change = text(f"UPDATE nodes SET body = {body}")
        await site.store.write(lambda c: c.execute(change))
        asked = await duty._ask(
            site.rig.plan(), site.rig.campaign(), "winter", ["t0", "t1"], hold=True
        )
        assert asked == {"t0": None, "t1": others}

    asyncio.run(scenario())


async def _open_none(*_: object) -> None:
    return None


def test_the_reconciler_leaves_what_holds_a_node_alone(tmp_path: Path) -> None:
    """At its start a daemon drives every active operation again, but not the racks' own."""
    site = Daemon(tmp_path, FLASH)
    site.approve()
    nobody: Any = None  # neither an observer nor a performer is asked

    async def scenario() -> None:
        await site.add()
        held = await site.store.operations.open("n0", site.want, 1_000.0)
        assert held is not None
        clock: Any = site.parts.clock
        context = Context(site.store, clock, site.parts.settings)
        await Reconciler(context, nobody, nobody).drive(held.id)
        assert await site.store.operations.get(held.id) == held  # not even taken over

    asyncio.run(scenario())


class Killed(BaseException):
    """The process died here."""


def test_deaths_of_the_daemon_at_its_writes_change_neither_the_end_nor_what_is_written(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()
    seen = deaths = 0

    def die(call: Call) -> None:
        nonlocal seen, deaths
        if call.method != "GET":
            seen += 1
            if seen % 2 and deaths < 10:
                deaths += 1
                raise Killed

    site.rig.wires.before = lambda _, call: die(call)
    site.rig.wires.after = lambda _, call: die(call)

    async def live() -> RackCampaignState:
        return (await site.turn()).state

    asyncio.run(site.add())
    while True:
        try:
            assert asyncio.run(live()) is RackCampaignState.DONE
            break
        except Killed:
            assert [one.want for one in asyncio.run(site.active())] == [site.want]  # it stays held
            site.rig.wires.at_once.clear()
    assert deaths >= 5
    assert site.rig.violations() == []
    assert asyncio.run(site.active()) == []
    assert site.rig.shelf("p0").flash == {"Primary": "3.2.4", "Backup": "3.2.4"}


def test_neither_a_halt_nor_a_withdrawal_gives_a_half_updated_domain_back(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()

    async def scenario() -> None:
        await site.add()

        def look() -> None:
            if site.rig.rack.find("push"):
                site.say("halt")

        site.each_round(look)
        state = await site.turn()
        assert (state.state, state.says) == (RackCampaignState.HALTED, ("amy: enough",))
        assert len(site.rig.rack.find("push")) == 1  # the other flash is another act
        assert site.rig.shelf("p0").selector == "Primary"
        assert [one.want for one in await site.active()] == [site.want]
        site.say("withdraw")
        assert (await site.turn()).state is RackCampaignState.WITHDRAWN
        await RackHolds(site.duty()).tick()
        assert [one.want for one in await site.active()] == [site.want]

    asyncio.run(scenario())


def make_two(folder: Path, *options: str, at_once: int = 1, tenant: str = "") -> Daemon:
    """Two domains of a rack each, and a node in each of them; `tenant`: of the first one."""
    site = Daemon(folder, FLASH, Two, 2)
    asked = json.loads((site.campaign / "campaign.yaml").read_text())
    asked["limits"]["at_once"] = at_once
    (site.campaign / "campaign.yaml").write_text(json.dumps(asked))
    for unit in (site.rig.tray("t1"), site.rig.switch("s1")):
        unit.chassis = "1820002"
    site.approve(*options)
    asyncio.run(site.add(tenant, State.RELEASED if tenant else State.CERTIFIED))
    asyncio.run(site.add(number=1))
    return site


def test_a_campaign_keeps_others_from_the_bmcs_of_the_domains_that_are_out_alone(
    tmp_path: Path,
) -> None:
    """The other racks' streams of events stay open while it runs: a leak there is off at once."""
    site = make_two(tmp_path)
    duty = site.duty()
    busy: list[frozenset[str]] = []
    written: list[tuple[str, bool]] = []
    duty.on_busy = lambda units: busy.append(frozenset(units))
    site.rig.rack.watch = lambda event: written.append((event.unit, event.unit in duty.busy))

    async def scenario() -> None:
        await RackHolds(duty).tick()
        await duty.tick()

    asyncio.run(scenario())
    assert {unit for unit, _ in written} >= {"p0", "p1"}
    assert all(kept for _, kept in written)
    first, second = (frozenset({f"t{n}", f"s{n}", f"p{n}"}) for n in range(2))
    assert busy[0] == busy[-1] == first | second  # all is read before and after
    assert {first, second} <= set(busy[1:-1]) <= {first, second, frozenset()}
    assert duty.busy == ()


def test_a_domain_that_is_held_from_the_begin_is_not_called_proved(tmp_path: Path) -> None:
    site = make_two(tmp_path)
    site.rig.tray("t1").slot = 17
    state = asyncio.run(site.turn())
    assert (state.state, state.left) == (RackCampaignState.HELD, 0)
    assert any("t1: it is not proved to be where the plan has it" in one for one in state.says)
    assert site.rig.shelf("p0").flash["Primary"] == "3.2.4"
    assert site.rig.shelf("p1").flash["Primary"] == "3.2.3"
    assert asyncio.run(site.active()) == []  # nothing was sent to the one that is held


def test_a_half_updated_domain_that_the_plan_holds_now_keeps_its_nodes(tmp_path: Path) -> None:
    site = make_two(tmp_path)

    def look() -> None:
        if site.rig.rack.find("push"):
            site.say("halt")

    site.each_round(look)
    assert asyncio.run(site.turn()).state is RackCampaignState.HALTED
    (begun,) = {event.unit for event in site.rig.rack.find("push")}
    number = int(begun[1])
    kept = json.loads((site.campaign / "approved.json").read_text()) | {"halted": ""}
    (site.campaign / "approved.json").write_text(json.dumps(kept))
    plan = json.loads((tmp_path / "racks.yaml").read_text())
    new = {"name": "p9", "kind": "power-shelf", "u": 9, "bmc": "https://10.0.3.9", "supplies": 2}
    plan["racks"][number]["units"].append(new)
    (tmp_path / "racks.yaml").write_text(json.dumps(plan))
    site.rig.pause = Rig.pause.__get__(site.rig)  # type: ignore[method-assign]
    state = asyncio.run(site.turn())
    assert (state.state, state.left) == (RackCampaignState.HELD, 0)
    assert state.says[0].startswith("p9: nothing is said of it")
    assert [one.node for one in asyncio.run(site.active())] == [f"n{number}"]


def test_a_drain_that_ends_as_held_frees_no_other_domain_that_is_half_done(tmp_path: Path) -> None:
    site = make_two(tmp_path, "--grace-h", "1", at_once=2, tenant="acme")

    def look() -> None:
        if site.rig.rack.find("push"):
            site.say("halt")

    site.each_round(look)
    state = asyncio.run(site.turn())
    assert (state.state, state.domains) == (RackCampaignState.HELD, ("d01", "d02"))
    assert "acme uses t0: reclaim its nodes first" in state.says[0]
    assert {event.unit for event in site.rig.rack.find("push")} == {"p1"}
    assert [one.node for one in asyncio.run(site.active())] == ["n1"]


@pytest.mark.parametrize("how", ["held", "bug", "done"])
def test_a_campaign_that_wrote_nothing_gives_the_nodes_back_once_it_is_over(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()

    async def fail(*_: object) -> None:
        raise AssertionError

    async def scenario() -> None:
        await site.add()
        if how != "bug":
            site.begin_journal()
        assert await site.store.operations.open("n0", site.want, 1_000.0) is not None
        if how == "done":
            site.rig.shelf("p0").flash = {"Primary": "3.2.4", "Backup": "3.2.4"}
        else:
            site.rig.tray("t1").slot = 17
            if how == "bug":
                monkeypatch.setattr(RackDuty, "_carry", fail)
            assert (await site.turn()).state is RackCampaignState.HELD
            assert [one.want for one in await site.active()] == [site.want]
            site.say("withdraw")
        state = (await site.turn()).state
        over = RackCampaignState.DONE if how == "done" else RackCampaignState.WITHDRAWN
        assert state is over
        await RackHolds(site.duty()).tick()
        kept = [site.want] if how == "bug" else []  # what was written nobody can tell
        assert [one.want for one in await site.active()] == kept

    asyncio.run(scenario())


class Enough(Exception):
    """Seen, and no more time is needed."""


def test_a_leak_is_found_and_its_tray_off_within_a_poll_and_five_seconds(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    duty = RackDuty(
        site.parts,  # type: ignore[arg-type]
        switches=site.rig.wires,
        environ={**LOGINS, USER: "admin"},
    )
    watch = RackWater(duty)
    tray = site.rig.tray("t1")
    leaked: list[float] = []

    def look() -> None:
        if site.rig.rack.now > 1_130.0 and not leaked:
            leaked.append(site.rig.rack.now)
            tray.detectors[next(iter(tray.detectors))] = "Critical"
        if tray.power == "Off":
            raise Enough
        assert site.rig.rack.now < 2_000.0

    site.each_round(look)
    with pytest.raises(Enough):
        asyncio.run(watch.run())
    (off,) = [e for e in site.rig.rack.find("reset") if e.detail == "ForceOff"]
    assert off.unit == "t1"
    assert off.at - leaked[0] <= watch.poll_s + 5.0
    latch = json.loads((tmp_path / "water.json").read_text())["units"]
    assert [name for name, one in latch.items() if one["latched"]] == ["t1"]


def test_a_unit_without_a_login_is_unknown_and_told_and_the_others_of_its_rack_are_read(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH)
    permit.get_scope().notices.pop(SUBJECT, None)
    parts: Any = site.parts
    watch = RackWater(RackDuty(parts, switches=site.rig.wires, environ=LOGINS))

    def read_latch() -> dict[str, dict[str, Any]]:
        units: dict[str, dict[str, Any]]
        units = json.loads((tmp_path / "water.json").read_text())["units"]
        return units

    async def scenario() -> None:
        await site.add(number=1)  # the one node of it: a login of no other BMC is known
        await site.parts.credentials.put("n1/host", "admin", Secret("p"))
        tray = site.rig.tray("t1")
        tray.detectors[next(iter(tray.detectors))] = "Critical"
        await watch.tick()
        assert tray.power == "Off"
        assert {name: one["state"] for name, one in read_latch().items()} == {
            "t0": "unknown",
            "t1": "wet",
            "s0": "unknown",
        }
        (told,) = permit.get_scope().notices[SUBJECT]
        assert told.startswith("r01: the water of t0, s0 is unknown for want of a login")
        before = read_latch()["t0"] | {"state": "dry", "dry_looks": 2}  # looked at by a command
        units = json.dumps({"units": {**read_latch(), "t0": before}})
        (tmp_path / "water.json").write_text(units)
        await watch.tick()
        assert (read_latch()["t0"]["state"], read_latch()["t0"]["dry_looks"]) == ("unknown", 2)
        watch.duty.environ = {**LOGINS, USER: "admin"}
        await watch.tick()
        assert read_latch()["t0"]["state"] == "dry"
        assert permit.get_scope().notices[SUBJECT] == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("on", [False, True])
def test_without_racks_update_only_what_holds_nodes_is_brought(tmp_path: Path, on: bool) -> None:
    site = Daemon(tmp_path, FLASH)
    site.parts.settings = Settings(racks_folder=str(tmp_path), racks_update=on)
    more = ["rack updates", "rack water"] if on else []
    loops = list(build_loops(site.parts))  # type: ignore[arg-type]
    assert loops == ["rack holds", "rack certificates", *more]
    assert "rack holds" in list_loops(site.parts)
    site.parts.settings = Settings()
    assert "rack holds" not in list_loops(site.parts)


def test_what_is_approved_is_what_was_shown_and_no_word_of_two_at_one_time_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Daemon(tmp_path, FLASH)
    file = site.campaign / "campaign.yaml"
    whole = file.read_text()
    say = ["--who", "amy", "--why", "x"]
    words = ["approve", str(tmp_path), "winter", "r01", *say, "--user", "admin"]

    def change(*_: object, **__: object) -> None:
        file.write_text(whole + "\n")

    monkeypatch.setattr(approve_commands, "ask_person", change)
    told = CliRunner().invoke(app, words)
    assert "its file changed while you were asked" in f"{told.output}{told.exception}"
    assert not (site.campaign / "approved.json").exists()

    file.write_text(whole)

    def be_faster(*_: object, **__: object) -> None:
        monkeypatch.setattr(approve_commands, "ask_person", lambda *_, **__: None)
        site.approve()

    monkeypatch.setattr(approve_commands, "ask_person", be_faster)
    told = CliRunner().invoke(app, words)
    assert "it is approved already" in f"{told.output}{told.exception}"

    keep = approve_commands.keep_approval

    def beside(campaign: Path, approval: Approval) -> None:
        monkeypatch.setattr(approve_commands, "keep_approval", keep)
        monkeypatch.setattr(approve_commands, "TRIES", 2)
        second = CliRunner().invoke(app, ["withdraw", str(tmp_path), "winter", *say])
        assert "another command writes it" in f"{second.output}{second.exception}"
        keep(campaign, approval)

    monkeypatch.setattr(approve_commands, "keep_approval", beside)
    assert CliRunner().invoke(app, ["halt", str(tmp_path), "winter", *say]).exit_code == 0
    assert CliRunner().invoke(app, ["withdraw", str(tmp_path), "winter", *say]).exit_code == 0
    approval = read_approval(site.campaign)
    assert approval.halted
    assert approval.withdrawn


def test_a_second_approval_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    site = Daemon(tmp_path, FLASH)
    site.approve()
    words = ["approve", str(tmp_path), "winter", "r01", "--who", "a", "--why", "b", "--yes"]
    again = CliRunner().invoke(app, words)
    assert again.exit_code != 0
    assert "approved already" in str(again.exception)
    digest = hashlib.sha256((site.campaign / "campaign.yaml").read_bytes()).hexdigest()
    kept = json.loads((site.campaign / "approved.json").read_text())
    assert (kept["campaign_sha256"], kept["who"]) == (digest, "amy")
