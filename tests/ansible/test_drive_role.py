"""nvme_drives by real Ansible over real sshd: written to the right slot, once, and read back.

The stand-in keeps the running revision apart from those in the slots, as drives do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosts import Host
from role_lab import make_drive, play, refresh, state_of

MODEL, OLD, NEW = "MTFDKCC1T9TGP-1BK1DABYY", "E3MQ001", "E3MQ005"
FIRST, SECOND = "032510B842C5", "132510B824CD"
CALL = {
    "drives": [FIRST, SECOND],
    "model": MODEL,
    "version": NEW,
    "image": "new.ubi",
    "url": "file:///srv/new.ubi",
}

pytestmark = pytest.mark.slow


def drives(host: Host, field: str) -> list[object]:
    return [drive[field] for drive in state_of(host)["drives"].values()]


def of_kind(**other: Any) -> dict[str, Any]:
    return {"nvme0": make_drive(FIRST, **other), "nvme1": make_drive(SECOND)}


@pytest.mark.long
def test_firmware_goes_to_a_free_slot_once_and_runs_after_the_next_boot(
    furnished: list[Host], tmp_path: Path
):
    good, single, other = furnished
    alone = {"slots": {"1": OLD}, "active": 1, "frmw": 0x2, "announces": False}
    refresh(good, drives=of_kind(asks="conventional"))  # which is no failure: a cold boot follows
    refresh(single, drives={"nvme0": make_drive(FIRST, **alone)})  # one slot that it runs from
    refresh(other, drives=of_kind(model="SAMSUNG MZWLL1T6HEHP-00003"))
    for host in furnished:
        host.put("/srv/new.ubi", f"{MODEL} {NEW}\n")
    calls = {good: CALL, single: {**CALL, "drives": [FIRST]}, other: CALL}

    tried = play("drive_firmware", {good: CALL}, tmp_path, check=True)
    downloads_by_trying = drives(good, "downloads")
    first = play("drive_firmware", calls, tmp_path)
    second = play("drive_firmware", {good: CALL, single: calls[single]}, tmp_path)
    running = drives(good, "running")
    for host in (good, single):
        host.power_off()
        host.boot()
    third = play("drive_firmware", {good: CALL, single: calls[single]}, tmp_path)

    assert tried["host-1"].ok
    assert downloads_by_trying == [0, 0]
    assert first["host-1"].ok, first["host-1"].message
    assert first["host-1"].result["written"] == {FIRST: NEW, SECOND: NEW}
    assert first["host-1"].result["running"] == {FIRST: OLD, SECOND: OLD}
    assert first["host-1"].result["waiting"] == [FIRST, SECOND]
    assert drives(good, "slots") == [{"1": OLD, "2": OLD, "3": NEW}] * 2
    assert (second["host-1"].changed, running) == (0, [OLD, OLD])
    assert (third["host-1"].changed, third["host-2"].changed) == (0, 0)
    assert third["host-1"].result["waiting"] == []
    # a drive with one slot announces nothing: a second run chooses the slot again, and writes none
    assert (drives(single, "downloads"), drives(single, "running")) == ([1], [NEW])
    message = f"{FIRST} is a SAMSUNG MZWLL1T6HEHP-00003, the image is for {MODEL}"
    assert message in first["host-3"].message
    assert drives(other, "downloads") == [0, 0]


def test_what_a_drive_cannot_do_is_refused_before_anything_is_written(
    furnished: list[Host], tmp_path: Path
):
    deaf, patient, foreign = furnished
    refresh(deaf, drives=of_kind(oacs=0x10))
    refresh(patient, drives=of_kind(frmw=0x0B))
    refresh(foreign)
    for host in furnished:
        host.put("/srv/new.ubi", f"ANOTHER-MODEL {NEW}\n")

    ended = play(
        "drive_firmware",
        {deaf: CALL, patient: {**CALL, "at_once": True}, foreign: CALL},
        tmp_path,
    )

    assert f"{FIRST} has no commands for firmware" in ended["host-1"].message
    assert f"{FIRST} does not activate firmware without a reset" in ended["host-2"].message
    assert "Invalid Firmware Image" in ended["host-3"].message
    assert drives(deaf, "downloads") == drives(patient, "downloads") == [0, 0]
    assert drives(foreign, "slots") == [{"1": OLD, "2": OLD}] * 2


@pytest.mark.long
def test_a_drive_that_can_activates_at_once_and_is_asked_what_runs(
    furnished: list[Host], tmp_path: Path
):
    host, lost, _ = furnished
    refresh(host)
    refresh(lost)
    for each in (host, lost):
        each.put("/srv/new.ubi", f"{MODEL} {NEW}\n")
    call = {**CALL, "at_once": True}

    ended = play(
        "drive_firmware", {host: call, lost: {**call, "drives": [FIRST, "NO-SUCH"]}}, tmp_path
    )

    assert ended["host-1"].result["running"] == {FIRST: NEW, SECOND: NEW}
    assert drives(host, "slots") == [{"1": OLD, "2": OLD, "3": NEW}] * 2
    assert "no NVMe drive has the serial NO-SUCH" in ended["host-2"].message
