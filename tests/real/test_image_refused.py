"""What a deployment refuses, told by the real agent: the reason is named, the node stays fenced."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "agent_lab"))

from image_bench import DISKS, IMAGE_BYTES, RIGHT, Machine, ledger, machine, stored
from lab import NOBODY, why_not
from test_image_killed import Drivers, drivers_of, image, wait

from provisioner.model.node import Placement
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.history import OPEN

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "possible")

REFUSED = 3
SERIALS = ["SCRATCH0", "SCRATCH1", "SCRATCH2"]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """One machine for all: nothing that is refused takes it away from the next."""
    folder = tmp_path_factory.mktemp("refused")
    with machine(folder, 0.02) as (built, asked), drivers_of(built, asked) as made:
        yield made


def refused(drivers: Drivers, asked: dict[str, Any]) -> Blocker:
    """Why the driver did not write it. Wherever it stopped, the node is fenced, nothing is open."""
    folder = drivers.machine.folder
    drivers.begin(asked)

    assert drivers.ended() == REFUSED, drivers.errors()
    assert asyncio.run(stored(folder)).placement is Placement.MAINTENANCE
    assert [row for row in ledger(folder) if row.status in OPEN] == []
    assert drivers.machine.runs == "agent"  # never what is on the disk
    return Blocker.model_validate_json((folder / "problem").read_text())


def disks(built: Machine) -> list[bytes]:
    return [built.disk(number) for number in range(DISKS)]


def test_an_agent_of_another_machine_gets_no_command(drivers: Drivers) -> None:
    before = disks(drivers.machine)
    asked = {**image(drivers.machine.folder, 1), "mac": "52:54:00:aa:00:99"}
    problem = refused(drivers, {**asked, "turns": 1, "settings": {"maintenance_boot_limit_s": 8.0}})

    assert problem.reason is Reason.UNREACHABLE
    assert "the agent of the maintenance image did not call" in problem.detail
    assert drivers.machine.acts("disks", "read", "write") == []
    assert disks(drivers.machine) == before


@pytest.mark.parametrize(
    ("os_disk", "lists", "reason", "detail"),
    [
        ("SCRATCH9", [SERIALS], Reason.NOT_EXPECTED, "is not among the node's"),
        ("TWICE", [["TWICE", "TWICE", "SCRATCH2"]], Reason.DUPLICATE, "two disks have this serial"),
        (
            "SCRATCH1",
            [SERIALS, ["SCRATCH0", "SWAPPED", "SCRATCH2"]],
            Reason.BILL_OF_MATERIALS,
            "SCRATCH1",
        ),
    ],
)
def test_a_disk_that_is_not_surely_the_right_one_is_not_written(
    drivers: Drivers, os_disk: str, lists: list[list[str]], reason: Reason, detail: str
) -> None:
    before, writes = disks(drivers.machine), drivers.machine.acts("write")
    file = drivers.machine.state / "lists.json"
    file.write_text(json.dumps(lists))
    os.chown(file, NOBODY, NOBODY)
    try:
        asked = {**image(drivers.machine.folder, 2), "os_disk": os_disk}
        problem = refused(drivers, asked)
    finally:
        file.unlink()

    assert problem.reason is reason
    assert detail in problem.detail
    assert drivers.machine.acts("write") == writes
    assert disks(drivers.machine) == before


def test_a_disk_that_the_agent_does_not_find_again_is_not_written(drivers: Drivers) -> None:
    """Our hint names one disk, and the agent takes none instead of it."""
    before = disks(drivers.machine)
    file = drivers.machine.state / "lists.json"
    file.write_text(json.dumps([["SCRATCH0", "GONE", "SCRATCH2"]]))
    os.chown(file, NOBODY, NOBODY)
    try:
        problem = refused(drivers, {**image(drivers.machine.folder, 3), "os_disk": "GONE"})
    finally:
        file.unlink()

    assert problem.reason is Reason.UPDATE_FAILED
    assert "0 disks have the serial GONE" in problem.detail
    assert disks(drivers.machine) == before


@pytest.mark.parametrize(
    "spoil", [lambda whole: whole[:-1] + b"?", lambda whole: whole[: IMAGE_BYTES // 2]]
)
def test_an_image_that_is_not_what_was_verified_is_refused_by_the_agent(
    drivers: Drivers, spoil: Callable[[bytes], bytes]
) -> None:
    """It changes after we verified it, before the agent fetches it."""
    built, before = drivers.machine, disks(drivers.machine)
    asked = image(built.folder, 4)
    file, looks = built.folder / "images" / asked["artifact"], len(built.acts("disks"))

    def change() -> None:
        wait(lambda: len(built.acts("disks")) > looks)
        file.write_bytes(spoil(file.read_bytes()))

    changing = threading.Thread(target=change)
    changing.start()
    problem = refused(drivers, asked)
    changing.join()

    assert problem.reason is Reason.DIGEST_MISMATCH
    assert "checksum" in problem.detail
    assert disks(built)[0::2] == before[0::2]
    assert built.acts("written") == []


def test_after_all_that_the_right_image_is_written(drivers: Drivers) -> None:
    built, before = drivers.machine, disks(drivers.machine)
    boots_before = built.boots  # 0 where no test before this one ran in the same process
    drivers.begin(image(built.folder, 5))

    assert drivers.ended() == 0, drivers.errors()
    wanted = (built.folder / "images" / "os-5.raw").read_bytes()
    assert disks(built)[RIGHT][:IMAGE_BYTES] == wanted
    assert disks(built)[0::2] == before[0::2]
    assert [row for row in ledger(built.folder) if row.status in OPEN] == []
    assert built.boots - boots_before <= 1
