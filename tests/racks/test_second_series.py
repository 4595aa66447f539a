"""The second series of planted faults: a BMC that refuses, a shelf in the midst, other words."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from rack_rig import NEW, TARGETS, Rig, ask_for_power, finish, make

from provisioner.integrations.racks.nvue import read_controller
from provisioner.integrations.sim.racks.rack import ROOT, Tree
from provisioner.ports import Call, Unreachable

TRAY = {"compute-tray": TARGETS["compute-tray"]}


def test_a_bmc_that_refuses_a_further_connection_is_asked_again_and_written_once(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TARGETS)
    refused: Counter[str] = Counter()

    def refuse(url: str, call: Call) -> None:
        """Another client has all of a BMC's connections for some minutes."""
        minute = int(rig.rack.now / 60)
        if rig.rack.now > 1_000.0 and random.Random(f"{url} {minute}").random() < 0.1:
            refused[call.method] += 1
            raise Unreachable("connection refused", maybe_executed=False)

    rig.wires.before = refuse
    finish(rig)
    assert refused["GET"] > 10
    pushed = Counter(event.unit for event in rig.rack.find("push"))
    assert pushed == {"t0": 2, "p0": 4}
    assert len(rig.rack.find("aux")) == 1


def test_what_a_shelf_drops_between_a_push_and_its_cycle_is_no_success_and_its_tray_is_named(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    tray = rig.tray("t0")
    rest = rig.pause
    cut: list[float] = []

    async def pause(seconds: float) -> None:
        await rest(seconds)
        if not cut and len(tray.flashed) == 2 and not tray.tasks.running(rig.rack.now):
            cut.append(rig.rack.now)
            assert tray.staged
            rig.rack.cut()
            rig.rack.advance(rig.rack.times.discharge + 60)
            rig.rack.feed()
            assert not tray.staged

    rig.pause = pause  # type: ignore[method-assign]
    ended = rig.run()

    assert cut
    assert not isinstance(ended, list)
    outcome, hands = ended
    assert list(outcome.held.values()) == ["t0/hgx-bundle"]
    assert "its BMC does not answer" in hands.why["t0/hgx-bundle"]
    rig.rack.advance(900)
    (rig.folder / "journal").unlink()  # a person looked: another campaign
    finish(rig)
    assert tray.active == {**NEW["host"], **NEW["hgx"]}
    assert rig.violations() == []


def bare_cartridge(rig: Rig, name: str) -> None:
    shown = rig.tray(name).shown
    build = shown._build

    def built() -> Tree:
        tree = build()
        del tree[f"{ROOT}/Chassis/CBC_0"]["Oem"]  # its FRU is too old
        return tree

    shown._build = built


def test_a_tray_whose_cartridge_says_nothing_is_placed_by_its_gpus_and_else_gets_no_power(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    bare_cartridge(rig, "t0")
    finish(rig)
    rig.rack.advance(rig.rack.times.copy + rig.rack.times.bmc_back)  # no power while a copy runs

    tray = rig.tray("t0")
    tray.power = "Off"
    assert asyncio.run(ask_for_power(rig, "t0")) == ()
    tray.power = "Off"
    tray.hmc_up = float("inf")  # its GPUs are silent as well
    told = asyncio.run(ask_for_power(rig, "t0"))
    assert "neither a cable cartridge nor a GPU" in told[0].detail
    assert tray.power == "Off"


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("CONTROL_PLANE_STATE_ERROR", "UNHEALTHY_DB_CORRUPTED"),
        ("CONTROL_PLANE_STATE_DEGRADED", "DB_CORRUPTION"),
        ("CONTROL_PLANE_STATE_TIMEOUT", ""),
        ("CONTROL_PLANE_STATE_CONFIGURED", "UNHEALTHY_DB_CORRUPTED"),
    ],
)
def test_a_controller_with_a_damaged_database_is_not_configured(info: str, reason: str) -> None:
    app = {"status": "not ok", "addition-info": info, "reason": reason}
    told = read_controller("s0", 0, {"nmx-controller": app})
    assert told.running
    assert not told.configured
    assert reason in told.said
