"""Racks by the API: elevations out of files, and null for what no file says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rack_trees import Tree, tray
from served import Served, run
from test_racks import PLAN, judge
from typer.testing import CliRunner

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.looks import keep_look
from provisioner.integrations.racks.water import UnitWater, WaterState
from provisioner.integrations.racks.water_file import WaterFile
from provisioner.model.input_error import InputError

LOOKED_AT = 1_799_999_000.0


def site(folder: Path, water: Mapping[str, UnitWater] | None = None, **trees: Tree) -> Path:
    """Write the plan, a look at r01 where trees are given, and the latch."""
    (folder / "racks.yaml").write_text(json.dumps(PLAN.model_dump(mode="json")))
    if trees:
        keep_look(folder / "looks", judge(**trees), LOOKED_AT)
    if water is not None:
        (folder / "water.json").write_text(WaterFile(units=water).model_dump_json())
    return folder


def ask(folder: Path | str, path: str, who: str = "viewer") -> tuple[int, Any]:
    answers: list[tuple[int, Any]] = []

    async def scenario(served: Served) -> None:
        answers.append(await served.ask(who, "GET", path))

    run(scenario, racks_folder=str(folder))
    return answers[0]


def test_a_rack_nobody_looked_at_is_drawn_and_all_else_of_it_is_null(tmp_path: Path) -> None:
    status, told = ask(site(tmp_path), "/racks/r01")

    assert (status, told["proved"], told["looked_at"], told["unread"]) == (200, None, None, [])
    assert [(u["name"], u["u"]) for u in told["items"]] == [("t2", 13), ("t1", 12), ("p1", 6)]
    for unit in told["items"]:
        known = {unit[name] for name in ("member", "power", "serial", "water", "water_at")}
        assert known == {None}
    assert (told["wet"], told["unknown"]) == (0, 2)


def test_a_look_that_is_kept_tells_membership_power_and_water(tmp_path: Path) -> None:
    _, told = ask(site(tmp_path, t2=tray(14, 3)), "/racks/r01")

    by_name = {unit["name"]: unit for unit in told["items"]}
    assert told["proved"] is False
    assert told["looked_at"] is not None
    assert {name: unit["member"] for name, unit in by_name.items()} == {
        "t1": True,
        "t2": False,
        "p1": True,
    }
    assert (by_name["t1"]["power"], by_name["t1"]["serial"]) == ("On", "T12")
    assert (by_name["t1"]["water"], by_name["p1"]["water"]) == ("dry", None)
    assert "state slot 14" in by_name["t2"]["findings"][0]["detail"]


def test_the_latch_is_believed_before_a_look_and_a_wet_look_before_a_dry_latch(
    tmp_path: Path,
) -> None:
    dry = UnitWater(state=WaterState.DRY, because="4 detectors are dry", since=LOOKED_AT - 500)
    held = UnitWater(state=WaterState.WET, latched=True, because="LeakA", since=LOOKED_AT - 900)
    building = UnitWater(state=WaterState.UNKNOWN)
    latch = {"t1": dry, "t2": held, "building:r01": building}
    folder = site(tmp_path, latch, t1=tray(), t2=tray(13, 2))

    _, told = ask(folder, "/racks/r01")
    by_name = {unit["name"]: unit for unit in told["items"]}
    assert (by_name["t2"]["water"], by_name["t2"]["latched"]) == ("wet", True)
    assert (by_name["t1"]["water"], told["building"]) == ("warn", "unknown")  # below a wet one

    keep_look(folder / "looks", judge(t1=tray(wet="Critical")), LOOKED_AT + 60)
    _, told = ask(folder, "/racks/r01")
    lower = told["items"][1]
    assert (lower["name"], lower["water"], lower["latched"], told["wet"]) == ("t1", "wet", False, 2)


def test_a_look_at_another_plan_proves_nothing_and_a_wet_unit_stays_wet(tmp_path: Path) -> None:
    folder = site(tmp_path, t2=tray(13, 2, wet="Critical"))
    moved = PLAN.model_dump(mode="json")
    moved["racks"][0]["chassis_serial"] = "1829999"
    (folder / "racks.yaml").write_text(json.dumps(moved))

    _, told = ask(folder, "/racks/r01")

    assert told["proved"] is None
    assert {unit["member"] for unit in told["items"]} == {None}
    assert told["items"][0]["water"] == "wet"
    assert "plan has changed" in told["unread"][0]


def test_racks_are_listed_and_only_the_staff_sees_them(tmp_path: Path) -> None:
    folder = site(tmp_path, t2=tray(13, 2))

    status, told = ask(folder, "/racks")

    assert status == 200
    assert [(r["name"], r["units"], r["proved"], r["unknown"]) for r in told["items"]] == [
        ("r01", 3, True, 0),
        ("r02", 1, None, 1),
    ]
    assert ask(folder, "/racks", "red")[0] == 403
    assert ask(folder, "/racks/r01", "red")[0] == 403
    assert ask(folder, "/racks/r09")[0] == 404


def test_a_site_without_a_plan_and_one_with_a_broken_one_are_told_what_to_do(
    tmp_path: Path,
) -> None:
    status, none = ask("", "/racks")
    assert (status, "racks_folder" in none["unblock"]) == (409, True)
    status, empty = ask(tmp_path, "/racks/r01")
    assert (status, "racks.yaml" in empty["detail"]) == (409, True)
    (tmp_path / "racks.yaml").write_text("racks: [{name: r01}]")
    status, broken = ask(tmp_path, "/racks/r01")
    assert (status, "racks.0.chassis_serial" in broken["detail"]) == (409, True)


@pytest.mark.parametrize("written", ["{", '{"units": 7}', "\x00", "[" * 5000])
def test_a_damaged_file_is_named_and_what_it_held_is_unknown(tmp_path: Path, written: str) -> None:
    folder = site(tmp_path, {}, t2=tray(13, 2))
    (folder / "water.json").write_text(written)
    (folder / "looks" / "r01.json").write_text(written)

    status, told = ask(folder, "/racks/r01")

    assert (status, told["proved"], told["unknown"]) == (200, None, 2)
    assert ["water.json" in told["unread"][0], "r01.json" in told["unread"][1]] == [True, True]


def test_a_file_is_read_again_once_it_changes(tmp_path: Path) -> None:
    folder, displaced = site(tmp_path, t2=tray(13, 2)), judge(t2=tray(14, 3))

    async def scenario(served: Served) -> None:
        _, first = await served.ask("viewer", "GET", "/racks/r01")
        keep_look(folder / "looks", displaced, LOOKED_AT + 60)
        _, second = await served.ask("viewer", "GET", "/racks/r01")
        assert (first["proved"], second["proved"]) == (True, False)

    run(scenario, racks_folder=str(folder))


def test_show_keeps_its_look_for_the_daemon(tmp_path: Path) -> None:
    folder = site(tmp_path)
    shown = ["show", str(folder / "racks.yaml"), "r01", "--keep", str(folder / "looks")]

    assert CliRunner().invoke(rack_commands.app, shown).exit_code == 1

    _, told = ask(folder, "/racks/r01")
    assert (told["proved"], told["looked_at"] is not None) == (False, True)
    assert {unit["member"] for unit in told["items"]} == {None}  # none of them has an address
    assert all(unit["findings"] for unit in told["items"])


def test_a_long_serial_is_kept_short_and_a_folder_that_cannot_be_made_is_refused(
    tmp_path: Path,
) -> None:
    verdict = judge()
    first = verdict.units[0]
    assert first.reading is not None
    long = replace(first, reading=replace(first.reading, serial="9" * 5000))
    folder = site(tmp_path)
    keep_look(folder / "looks", replace(verdict, units=(long, *verdict.units[1:])), LOOKED_AT)

    _, told = ask(folder, "/racks/r01")
    assert told["items"][1]["serial"] == "9" * 200
    with pytest.raises(InputError, match="cannot be written"):
        keep_look(folder / "racks.yaml", verdict, LOOKED_AT)
