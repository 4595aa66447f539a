"""A latch whose file was deleted: what was wet nobody knows, until a person looked at each unit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from test_water import ONE, PLAN, RACK, T1, TWO, Trays, give, invoke, no_pause, trays
from typer.testing import CliRunner

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.isolation_commands import find_isolation_refusal
from provisioner.integrations.racks.water import UnitWater, WaterState
from provisioner.integrations.racks.water_commands import Racked, switch_wet_off
from provisioner.integrations.racks.water_file import open_water
from provisioner.model.outcome import Blocker
from provisioner.ports import BmcAddress


def test_no_unit_is_dry_by_its_detectors_alone_once_the_file_of_the_latch_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, file = tmp_path / "racks.json", tmp_path / "w.json"
    plan.write_text(PLAN.model_dump_json())
    made = trays(t1="Critical")
    water = ["--water", str(file)]
    look = ["water", str(plan), "r01", *water]
    assert invoke(monkeypatch, made, *look).exit_code == 1
    made.states[ONE] = "OK"  # it ran off, and is still in the chassis
    file.unlink()
    on = ["power", str(plan), "t1", "on", *water, "--yes"]
    for _ in range(2):
        looked = invoke(monkeypatch, made, *look, "--json")
        assert looked.exit_code == 1
        said = {name: one["state"] for name, one in json.loads(looked.stdout)["units"].items()}
        assert said == {"t1": "unknown", "t2": "unknown"}
        refused = invoke(monkeypatch, made, *on)
        assert refused.exit_code == 1
        assert "the file that kept whether it was wet was lost" in refused.stderr
        assert "`rack dry`" in refused.stderr
    with open_water(file) as store:
        held = find_isolation_refusal(RACK, store.units, isolate=False)
    assert held is not None
    assert made.resets == []  # nothing that runs is forced off for that
    for name in ("t1", "t2"):
        words = ["dry", str(plan), name, *water, "--who", "amy", "--why", "no coolant in it"]
        told = CliRunner().invoke(rack_commands.app, words)
        assert told.exit_code == 0, told.output
    assert invoke(monkeypatch, made, *look).exit_code == 0
    assert invoke(monkeypatch, made, *on).exit_code == 0
    assert made.resets == [(ONE, "On")]


def test_what_is_wet_goes_off_and_units_that_are_added_are_unknown_after_such_a_loss(
    tmp_path: Path,
) -> None:
    file = tmp_path / "w.json"
    with open_water(file) as store:
        store.save()
    file.unlink()
    made = trays(t2="Critical")
    made.power[TWO] = "On"
    both = {"t1": BmcAddress(url=ONE), "t2": BmcAddress(url=TWO)}

    async def run() -> list[Blocker]:
        with open_water(file) as store:
            racked = Racked(RACK, made, both, store, pause=no_pause)
            return await switch_wet_off(racked, await racked.look())

    assert asyncio.run(run()) == []
    assert made.resets == [(TWO, "ForceOff")]
    with open_water(file) as store:  # the file that was made since does not make it new
        assert store.find("t9") == UnitWater(lost=True)
        assert store.find("t1").state is WaterState.UNKNOWN


def test_a_folder_that_never_had_such_a_file_begins_with_a_look(tmp_path: Path) -> None:
    made = Trays({ONE: "OK", TWO: "OK"})
    with open_water(tmp_path / "w.json"):
        pass  # a command that died before it looked
    assert asyncio.run(give(made, tmp_path / "w.json", T1)) == ()
