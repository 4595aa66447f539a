"""The files that an update pushes: hashed beside the water's file, once; a bad read is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rack_rig import TARGETS, Rig, finish, held, make

from provisioner.integrations.racks import rack_update
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.rack import Event

TRAY = {"compute-tray": TARGETS["compute-tray"]}


def test_a_package_is_hashed_once_for_an_act_and_while_nobody_has_the_file_of_the_water(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(tmp_path, TRAY, trays=2)
    hashed: Counter[str] = Counter()
    check = rack_update.check_file

    def watch(where: str, *more: Any) -> None:
        with open_water(tmp_path / "water.json"):  # refused where a round has it
            hashed[where] += 1
        check(where, *more)

    monkeypatch.setattr(rack_update, "check_file", watch)
    finish(rig)
    acts = ("host-bundle", "hgx-bundle")
    assert hashed == {f"t{n}/{act}": 1 for n in range(2) for act in acts}


def lose(rig: Rig, kind: str, rounds: int) -> None:
    """Have the second package be unreadable from the first push on, for so many rounds."""
    file = rig.folder / rig.campaign().packages[Kind.COMPUTE_TRAY]["hgx-bundle"].files[0].file
    content = file.read_bytes()
    pause = rig.pause
    left = [rounds]

    def spoil(event: Event) -> None:
        if event.what == "push" and len(rig.rack.find("push")) == 1:
            file.unlink()
            if kind == "directory":
                file.mkdir()

    async def wait(seconds: float) -> None:
        await pause(seconds)
        if any("it cannot be read" in line for line in rig.said):
            left[0] -= 1
        if left[0] == 0:
            if kind == "directory":
                file.rmdir()
            file.write_bytes(content)

    rig.rack.watch = spoil
    rig.pause = wait  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", ["missing", "directory"])
def test_one_failed_read_of_a_package_ends_no_act_and_pushes_nothing(
    tmp_path: Path, kind: str
) -> None:
    rig = make(tmp_path, TRAY)
    lose(rig, kind, rounds=3)
    finish(rig)
    assert len(rig.rack.find("push")) == 2


def test_a_package_that_stays_unreadable_ends_its_act_by_name_in_bounded_time(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    lose(rig, "missing", rounds=10_000)
    key, why = held(rig)
    assert key == "t0/hgx-bundle"
    assert "it cannot be read (No such file or directory)" in why
    assert "Put it beside the campaign's file." in why
    assert len(rig.rack.find("push")) == 1
