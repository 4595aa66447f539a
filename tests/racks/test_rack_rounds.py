"""What a round over racks does where one of its reads or acts fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rack_rig import TARGETS, make
from test_domains import Two
from typer.testing import CliRunner

from provisioner.integrations.racks import update_commands
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import NOTED, Line, open_log
from provisioner.integrations.racks.update_world import keep_dry, wait_all
from provisioner.integrations.racks.water_file import wait_for_water
from provisioner.ports import Call, Unreachable

TRAY = {"compute-tray": TARGETS["compute-tray"]}


def test_a_leak_counts_and_is_forced_off_where_the_power_state_cannot_be_read(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    tray = rig.tray("t0")
    tray.detectors[next(iter(tray.detectors))] = "Critical"
    silent = True

    def answer(call: Call) -> None:
        if silent and call.method == "GET" and "/Systems" in call.path:
            raise Unreachable("no answer", maybe_executed=True)

    rig.wires.before = lambda _, call: answer(call)
    update = rig.update()

    async def scenario() -> None:
        nonlocal silent
        rack, unit = update.find("t0")
        reading = await update.read_water(unit)
        assert (reading.power, reading.unread) == ("Unknown", "")
        async with wait_for_water(update.water, update.pause) as store:
            racked = update.open_rack(rack, store)
            known = await racked.look(update.read_water)
            assert known["t0"].latched
            silent = False
            await keep_dry(update, racked)
        assert tray.power == "Off"

    asyncio.run(scenario())


def test_a_failed_act_leaves_no_other_one_running_behind_a_closed_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    line = Line("a", NOTED, "late", 1.0)

    async def fail() -> None:
        raise ValueError("first")

    async def note() -> None:
        await asyncio.sleep(0.01)
        log.write(line)
        raise KeyError("second")

    async def scenario() -> None:
        await wait_all([fail(), note()])

    with pytest.raises(ValueError, match="first"), open_log(file) as log:
        asyncio.run(scenario())
    assert log.of("a").noted("late")
    written = file.read_bytes()
    with (
        (tmp_path / "other").open("wb"),
        pytest.raises(OSError, match="descriptor"),
    ):  # it has the same number
        log.write(line)
    assert (file.read_bytes(), (tmp_path / "other").read_bytes()) == (written, b"")


@pytest.mark.parametrize(("slot", "code"), [(11, 0), (17, 1)])
def test_the_command_fails_where_another_domain_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: int, code: int
) -> None:
    rig = Two(tmp_path, targets={"power-shelf": {"pmc": "3.2.4"}}, trays=2, switches=2, shelves=2)
    for unit in (rig.tray("t1"), rig.switch("s1")):
        unit.chassis = "1820002"
    rig.tray("t1").slot = slot
    (tmp_path / "racks.yaml").write_text(rig.plan().model_dump_json())
    (tmp_path / "campaign.yaml").write_text(rig.campaign().model_dump_json())
    made = rig.update()
    monkeypatch.setattr(update_commands, "build_update", lambda *_, **__: made)
    words = ["update", str(tmp_path / "racks.yaml"), str(tmp_path / "campaign.yaml"), "r01", "r02"]
    files = ["--water", str(tmp_path / "water.json"), "--journal", str(tmp_path / "journal")]
    told = CliRunner().invoke(app, [*words, *files, "--yes"])
    assert told.exit_code == code, told.output
    assert "0 left" in told.output
    assert ("held: t1: " in told.output) is bool(code)
