"""Everything a simulated site serves, asked through its one door in memory."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.integrations.sim.redfish.bmc import from_files
from provisioner.integrations.sim.redfish.redfish_tree import GONE
from provisioner.integrations.sim.site import fault_presets_bmc
from provisioner.integrations.sim.site.control import ALL, inject_fault
from provisioner.integrations.sim.site.serve import Front
from provisioner.integrations.sim.site.site import (
    HOST_FACTORY_PASSWORD,
    SWITCH_PASSWORD,
    SWITCH_USER,
    Site,
)

NODE = "su0-n00"
BFB = make_image("bluefield.bundle", {"DPU_OS": "bf-bundle-2.10.0-147", "DPU_NIC": "32.44.1036"})
UPDATE = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
TASK = "/redfish/v1/TaskService/Tasks"


class Desk:
    """A client with the right credentials and a clock to move."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.site = Site(nodes=1, clock=self.clock)
        self.front = Front(self.site, from_files({"x.bfb": BFB}))
        for machine in self.site.machines.values():
            for service in self.front.redfish.values():
                for account in service.accounts.accounts.values():
                    account.change_required = False
            machine.faults.clear()

    def __call__(
        self, name: str, method: str, path: str, body: Any = None
    ) -> tuple[int, dict[str, Any]]:
        user, password = SWITCH_USER, SWITCH_PASSWORD
        if "/" in name:
            bmc = self.site.machines[NODE].bmcs[name.partition("/")[2]]
            user, password = bmc.username, bmc.password
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"authorization": f"Basic {basic}", "content-type": "application/json"}
        data = b"" if body is None else json.dumps(body).encode()
        answer = self.front.handle(name, method, path, {}, headers, data)
        try:
            return answer.status, json.loads(answer.body or b"{}")
        except ValueError:
            return answer.status, {}

    def install(self, card: str) -> str:
        """Start a BFB installation; the task's address."""
        body = {
            "TransferProtocol": "HTTP",
            "ImageURI": "10.0.0.9:8080//x.bfb",
            "Targets": ["redfish/v1/UpdateService/FirmwareInventory/DPU_OS"],
        }
        status, task = self(f"{NODE}/{card}", "POST", UPDATE, body)
        assert status == 202, task
        return str(task["@odata.id"])


# tried by tests/faults, with requests that fit them
DRILLED = {"root_needs_login", "busy_as_400", "odd_version"}
DRILLED |= {p.name for p in fault_presets_bmc.ALL}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_every_bmc_and_switch_has_an_address(desk: Desk) -> None:
    assert len(desk.front.list_names()) == 11 + 12
    for name in desk.front.list_names():
        path = "/redfish/v1" if "/" in name else "/nvue_v1/system"
        assert desk(name, "GET", path)[0] == 200


def test_a_bfb_runs_after_its_installation_and_its_nic_firmware_after_a_cold_boot(
    desk: Desk,
) -> None:
    machine = desk.site.machines[NODE]
    task = desk.install("DPU_0")
    for _ in range(40):
        desk.clock.move(60)
        desk(f"{NODE}/DPU_0", "GET", task)
    nic = machine.firmware["DPU_0", "DPU_NIC"]

    assert machine.firmware["DPU_0", "DPU_OS"].running == "bf-bundle-2.10.0-147"
    assert (nic.running, nic.staged) == ("32.43.1014", "32.44.1036")
    machine.power_cycle(desk.clock.now())
    desk.clock.move(3600)
    desk.site.advance()
    assert (nic.running, nic.staged) == ("32.44.1036", None)


def test_a_bfb_that_never_completes_is_running_for_ever_on_that_card_only(desk: Desk) -> None:
    inject_fault(desk.site, "bfb_never_completes", NODE)
    stuck, other = desk.install("DPU_0"), desk.install("DPU_1")
    desk.clock.move(10 * 3600)

    assert desk(f"{NODE}/DPU_0", "GET", stuck)[1]["TaskState"] == "Running"
    assert desk(f"{NODE}/DPU_1", "GET", other)[1]["TaskState"] == "Completed"


def test_a_dead_gpu_is_missing_in_redfish_too(desk: Desk) -> None:
    before = desk(f"{NODE}/host", "GET", "/redfish/v1/UpdateService/FirmwareInventory")[1]
    inject_fault(desk.site, "dead_gpu", NODE)
    after = desk(f"{NODE}/host", "GET", "/redfish/v1/UpdateService/FirmwareInventory")[1]
    gone = {m["@odata.id"] for m in before["Members"]} - {m["@odata.id"] for m in after["Members"]}

    assert gone
    assert all("GPU_SXM_5" in path for path in gone)


def test_a_bmc_that_restarts_does_not_answer_and_faults_do_not_make_it(desk: Desk) -> None:
    inject_fault(desk.site, "gateway_timeout", NODE)
    desk.site.machines[NODE].bmc_reset("host", desk.clock.now())

    assert not desk.front.is_reachable(f"{NODE}/host")
    assert desk.front.handle(f"{NODE}/host", "GET", "/redfish/v1", {}, {}, b"") is GONE


@pytest.mark.parametrize("name", sorted(n for n, p in ALL.items() if p.rules and n not in DRILLED))
def test_every_wire_preset_changes_some_answer_and_only_of_its_bmc(desk: Desk, name: str) -> None:
    inject_fault(desk.site, name, NODE)
    sent = [
        ("GET", "/redfish/v1"),
        ("GET", "/redfish/v1/Systems"),
        ("GET", "/redfish/v1/Systems/1"),
        ("GET", "/redfish/v1/Systems/1/Oem/X"),
        ("GET", "/redfish/v1/Managers/1"),
        ("GET", "/redfish/v1/Chassis/HGX_ERoT_BMC_0"),
        ("GET", "/redfish/v1/Chassis/1/NetworkAdapters"),
        ("GET", "/redfish/v1/UpdateService"),
        ("GET", "/redfish/v1/UpdateService/FirmwareInventory"),
        ("GET", "/redfish/v1/UpdateService/FirmwareInventory/HGX_FW_BMC_0"),
        *[("GET", f"{TASK}/0")] * 4,
        ("PATCH", "/redfish/v1/Systems/1"),
        ("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"),
        ("POST", "/redfish/v1/SessionService/Sessions"),
    ]
    if ALL[name].rules[0].status:
        desk.site.faults.rules[0].status = 0  # there is no task in this test: any answer will do
    if "Update" in ALL[name].rules[0].path:
        sent.append(("POST", UPDATE))
    for method, path in sent:
        desk(f"{NODE}/NIC_0", method, path, {} if method != "GET" else None)
        assert desk.site.faults.rules[0].done == 0
    for method, path in sent:
        desk(f"{NODE}/host", method, path, {} if method != "GET" else None)

    assert desk.site.faults.rules[0].done > 0


def test_the_factory_password_of_the_list_is_the_hosts(desk: Desk) -> None:
    assert desk.site.machines[NODE].bmcs["host"].password == HOST_FACTORY_PASSWORD
    assert desk(f"{NODE}/host", "GET", "/redfish/v1/Systems")[0] == 200
