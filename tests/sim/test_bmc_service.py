"""What a simulated BMC answers: errors, ETags, pages, and how it comes and goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bmc_door import ROOT, SESSIONS, SYSTEM, Door, reason

from provisioner.integrations.sim.hardware.build import HOST_ITEMS


class TestErrors:
    @pytest.mark.parametrize(
        ("method", "path", "body", "status", "key"),
        [
            ("GET", f"{ROOT}/Systems/2", None, 404, "ResourceMissingAtURI"),
            ("POST", SYSTEM, {}, 405, "OperationNotAllowed"),
            ("DELETE", SYSTEM, None, 405, "OperationNotAllowed"),
            ("PATCH", SYSTEM, b"{", 400, "MalformedJSON"),
            ("PATCH", SYSTEM, b"[" * 100_000, 400, "MalformedJSON"),
            ("PATCH", SYSTEM, b"[]", 400, "MalformedJSON"),
            ("PATCH", SYSTEM, {"Bogus": 1}, 400, "PropertyUnknown"),
            ("PATCH", SYSTEM, {"PowerState": "Off"}, 400, "PropertyNotWritable"),
            ("PATCH", SYSTEM, {"Boot": {"BootSourceOverrideTarget": "Moon"}}, 400,
             "PropertyValueNotInList"),
            ("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset", {}, 400, "ActionParameterMissing"),
            ("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "Explode"}, 400,
             "ActionParameterValueNotInList"),
        ],
    )  # fmt: skip
    def test_every_refusal_says_why(
        self, method: str, path: str, body: Any, status: int, key: str
    ) -> None:
        told = Door().ask(method, path, body)

        assert (told.status, reason(told)) == (status, key)

    def test_405_names_what_is_allowed(self) -> None:
        assert Door().ask("DELETE", SYSTEM).headers["Allow"] == "GET, HEAD, PATCH"

    def test_a_patch_with_an_old_etag_changes_nothing(self) -> None:
        door = Door()
        etag = door.ask("GET", SYSTEM).headers["ETag"]
        lit, off = {"IndicatorLED": "Lit"}, {"IndicatorLED": "Off"}
        first = door.ask("PATCH", SYSTEM, lit, {**door.basic(), "if-match": etag})
        second = door.ask("PATCH", SYSTEM, off, {**door.basic(), "if-match": etag})

        assert (first.status, second.status) == (200, 412)
        assert door.get(SYSTEM)["IndicatorLED"] == "Lit"

    def test_a_dgx_wants_if_match(self) -> None:
        door = Door(vendor="ami_dgx")
        path, body = f"{ROOT}/Systems/DGX", {"IndicatorLED": "Lit"}

        assert door.ask("PATCH", path, body).status == 428
        assert door.ask("PATCH", path, body, {**door.basic(), "if-match": "*"}).status == 200


class TestQueries:
    def test_expand_gives_the_members_in_one_answer(self) -> None:
        door = Door()
        items = door.get(f"{ROOT}/UpdateService/FirmwareInventory", expand=".($levels=1)")

        assert {m["Id"]: m["Version"] for m in items["Members"]} == {
            f.id: f.running for f in door.machine.list_items("host")
        }

    def test_a_dgx_says_that_it_expands_and_loses_properties(self) -> None:
        door = Door(vendor="ami_dgx")
        items = door.get(f"{ROOT}/UpdateService/FirmwareInventory", expand="*")

        assert all("Id" not in m for m in items["Members"])

    def test_expand_is_refused_where_the_service_has_none(self) -> None:
        assert Door(vendor="hpe").ask("GET", f"{ROOT}/Systems", expand=".").status == 501

    def test_pages_end_with_the_last_member(self) -> None:
        door, path = Door(), f"{ROOT}/UpdateService/FirmwareInventory"
        found, skip = [], 0
        while True:
            part = door.get(path, skip=str(skip), top="20")
            found += part["Members"]
            skip += 20
            if len(found) >= part["Members@odata.count"]:
                break

        assert found == door.get(path)["Members"]

    @pytest.mark.parametrize("query", [{"top": "x"}, {"skip": "-1"}, {"expand": "everything"}])
    def test_nonsense_is_refused(self, query: dict[str, str]) -> None:
        assert Door().ask("GET", f"{ROOT}/Chassis", **query).status == 400


class TestComingAndGoing:
    def test_a_restarted_bmc_is_gone_then_busy_then_partial_then_whole(self) -> None:
        door = Door()
        door.session()
        reset = f"{ROOT}/Managers/1/Actions/Manager.Reset"
        assert door.ask("POST", reset, {"ResetType": "GracefulRestart"}).status == 200
        seen = []
        for _ in range(130):
            door.clock.move(1)
            status = door.ask("GET", ROOT).status
            items = 0
            if status == 200:
                items = len(door.get(f"{ROOT}/UpdateService/FirmwareInventory")["Members"])
            if (status, items > 0) not in seen:
                seen.append((status, items > 0))

        assert seen == [(0, False), (503, False), (200, False), (200, True)]
        assert door.get(SESSIONS)["Members"] == []

    def test_an_ac_cycle_takes_every_bmc_and_brings_the_host_back(self) -> None:
        door = Door()
        boot_id = door.machine.host.boot_id
        action = door.get(SYSTEM)["Actions"]["Oem"]["#OemSystemExtensions.Reset"]
        assert door.ask("POST", action["target"], {"ResetType": "ACCycle"}).status == 200
        door.clock.move(10)

        assert door.ask("GET", ROOT).status == 0
        assert door.machine.bmcs["DPU_1"].get_phase(door.clock.now()) == "gone"
        door.clock.move(900)
        assert door.get(SYSTEM)["PowerState"] == "On"
        assert door.machine.host.boot_id not in (None, boot_id)

    def test_lenovo_cycles_ac_only_when_the_host_is_off(self) -> None:
        door = Door(vendor="lenovo")
        action = door.get(SYSTEM)["Actions"]["Oem"]["#LenovoComputerSystem.SystemReset"]["target"]
        body = {"ResetType": "ACPowerCycle"}
        early = door.ask("POST", action, body)
        door.ask("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "ForceOff"})
        door.clock.move(30)

        assert (early.status, reason(early)) == (400, "ChassisPowerStateOffRequired")
        assert door.ask("POST", action, body).status == 200

    def test_the_tray_of_a_dgx_is_silent_while_its_host_is_off(self) -> None:
        door = Door(vendor="ami_dgx")
        door.machine.power_off(door.clock.now())
        door.clock.move(30)
        told = door.ask("GET", f"{ROOT}/Systems/HGX_Baseboard_0")

        assert (told.status, reason(told)) == (503, "HMCCommuicationFailed")

    def test_a_power_request_may_be_accepted_and_ignored(self) -> None:
        door = Door()
        door.bmc.troubles.add("ignores_reset")
        reset = f"{SYSTEM}/Actions/ComputerSystem.Reset"

        assert door.ask("POST", reset, {"ResetType": "ForceOff"}).status == 200
        door.clock.move(100)
        assert door.get(SYSTEM)["PowerState"] == "On"

    def test_a_missing_gpu_is_missing_everywhere(self) -> None:
        door = Door()
        door.machine.devices["GPU_SXM_3"].present = False
        board = f"{ROOT}/Systems/HGX_Baseboard_0"

        assert door.ask("GET", f"{board}/Processors/GPU_SXM_3").status == 404
        assert door.ask("GET", f"{ROOT}/Chassis/HGX_GPU_SXM_3").status == 404
        items = f"{ROOT}/UpdateService/FirmwareInventory"
        assert door.ask("GET", f"{items}/HGX_FW_GPU_SXM_3").status == 404
        assert door.get(board)["Status"]["HealthRollup"] == "Critical"


@pytest.mark.parametrize("vendor", [*HOST_ITEMS, "nvidia_openbmc"])
def test_no_link_of_a_tree_leads_nowhere(vendor: str) -> None:
    door = Door() if vendor in HOST_ITEMS else Door("DPU_0")
    if vendor in HOST_ITEMS:
        door = Door(vendor=vendor)
    next(iter(door.service.accounts.accounts.values())).change_required = False
    seen: dict[str, int] = {}
    waiting = [ROOT]
    while waiting:
        path = waiting.pop().partition("#")[0]
        if path in seen:
            continue
        told = door.ask("GET", path)
        seen[path] = told.status
        if told.status == 200:
            waiting += _links(json.loads(told.body))

    missing = {path for path, status in seen.items() if status != 200}
    assert missing == set()
    assert len(seen) > 40


def _links(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for part in value for found in _links(part)]
    if not isinstance(value, dict):
        return []
    own = [value["@odata.id"]] if isinstance(value.get("@odata.id"), str) else []
    return own + [found for part in value.values() for found in _links(part)]
