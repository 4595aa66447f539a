"""Several NVLink domains in one update, and what is looked at again before each act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rack_rig import CHASSIS, NEW, TARGETS, Rig, finish, held, make, run

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.sim.racks.rack import Event
from provisioner.ports import Call, Reply

TRAY = {"compute-tray": TARGETS["compute-tray"]}
SWITCH = {"nvlink-switch": TARGETS["nvlink-switch"]}
FLASH = {"power-shelf": {"pmc": "3.2.4"}}


class Two(Rig):
    """Two racks of a tray, a switch and a shelf each; with `joined`, one rack of two domains."""

    joined = False

    def plan(self) -> RackPlan:
        first, second = ([u for u in self.units if u["name"].endswith(n)] for n in "01")
        if self.joined:
            units = [u | {"domain": f"d0{int(u['name'][1]) + 1}"} for u in (*first, *second)]
            rack = {"name": "r01", "chassis_serial": CHASSIS, "units": units}
            return RackPlan.model_validate({"racks": [rack]})
        racks = [("r01", CHASSIS, "d01", first), ("r02", "1820002", "d02", second)]
        keys = ("name", "chassis_serial", "domain", "units")
        return RackPlan.model_validate({"racks": [dict(zip(keys, r, strict=True)) for r in racks]})


def test_two_domains_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    rig = Two(tmp_path, targets=FLASH, trays=2, switches=2, shelves=2)
    for unit in (rig.tray("t1"), rig.switch("s1")):
        unit.chassis = "1820002"
    outcome, hands = run(rig)
    assert outcome.finished, hands.why
    pushed = [e.unit for e in rig.rack.find("push")]
    assert pushed in (["p0", "p0", "p1", "p1"], ["p1", "p1", "p0", "p0"])
    keys = [
        line["key"] for line in map(json.loads, (tmp_path / "journal").read_text().splitlines())
    ]
    first, second = ("d01", "d02") if pushed[0] == "p0" else ("d02", "d01")
    proved = max(n for n, key in enumerate(keys) if key == f"{first}/prove")
    assert keys.index(f"{second}/drain") > proved


def test_each_domain_of_one_rack_has_a_control_plane_of_its_own(tmp_path: Path) -> None:
    rig = Two(tmp_path, targets=SWITCH, trays=2, switches=2, shelves=1)
    rig.joined = True
    outcome, hands = run(rig)
    assert outcome.finished, hands.why
    assert [e.unit for e in rig.rack.find("controller started")] == ["s1"]
    assert rig.switch("s1").active == NEW["switch"]


def test_nothing_is_cut_once_a_tenant_is_in_the_domain_again(tmp_path: Path) -> None:
    rig = make(tmp_path, {"compute-tray": {"host-bundle": "25.08-9"}})
    update = rig.update()

    async def who_uses(*_: object, **__: object) -> dict[str, str | None]:
        return {"t0": rig.tenants.get("t0", "")}

    def come(event: Event) -> None:
        if event.what == "push" and not rounds:
            rig.tenants["t0"] = "acme"

    rounds = 0
    original = rig.pause

    async def pause(seconds: float) -> None:
        nonlocal rounds
        await original(seconds)
        rounds += rig.said[-1:] == ["t0/host-bundle: acme uses t0: reclaim its nodes first"]
        if rounds == 5 and rig.tenants["t0"]:
            assert rig.rack.find("bmc reset") == rig.rack.find("aux") == []
            rig.tenants["t0"] = ""

    rig.rack.watch = come
    update.who_uses = who_uses
    update.pause = pause
    rig.update = lambda: update  # type: ignore[method-assign]
    finish(rig)
    assert rounds >= 5
    assert rig.tray("t0").active["FW_BMC_0"] == NEW["host"]["FW_BMC_0"]


def test_a_tray_that_was_moved_on_the_way_gets_no_further_act(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY)

    def move(event: Event) -> None:
        if event.what == "bmc reset":
            rig.tray("t0").slot = 12

    rig.rack.watch = move
    key, why = held(rig)
    assert key == "t0/hgx-bundle"
    assert "state slot 12, and the plan has 10" in why
    assert [name for _, name in rig.tray("t0").flashed] == ["host.fwpkg"]


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (403, 1), (503, 3)])
def test_what_nvos_refuses_is_not_asked_again_and_a_busy_one_is(
    tmp_path: Path, status: int, asked: int
) -> None:
    rig = make(tmp_path, {"nvlink-switch": {"nvos": "25.02.4317"}})
    request = rig.wires.request
    refused = 0

    async def answer(address: Any, call: Call) -> Reply:
        nonlocal refused
        if call.method == "POST" and "@fetch" in (call.body or {}) and refused < asked:
            refused += 1
            return Reply(status, {}, b"no")
        return await request(address, call)

    rig.wires.request = answer  # type: ignore[method-assign]
    if status == 503:
        finish(rig)
        assert refused == asked
        return
    key, why = held(rig)
    assert (key, refused) == ("s0/nvos", 1)
    assert f"HTTP status {status}" in why


def test_a_package_that_is_another_one_by_its_push_is_not_pushed(tmp_path: Path) -> None:
    """Its digest was right as the update began; hours may lie between."""
    rig = make(tmp_path, TRAY)
    asked = rig.campaign().packages[Kind.COMPUTE_TRAY]
    file = tmp_path / asked["hgx-bundle"].files[0].file

    def change(event: Event) -> None:
        if event.what == "push":  # of the host's bundle, the first one
            file.write_bytes(file.read_bytes() + b"x")

    rig.rack.watch = change
    key, why = held(rig)
    assert key == "t0/hgx-bundle"
    assert "its SHA-256 is another one" in why
    assert len(rig.rack.find("push")) == 1
