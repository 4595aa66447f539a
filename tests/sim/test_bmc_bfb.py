"""Installing a BFB on a simulated BlueField: phases, staging, and what breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bmc_client import ITEMS, TASKS, Client

from provisioner.integrations.sim.hardware.build import make_image

BFB = make_image(
    "bluefield.bundle", {"DPU_OS": "bf-bundle-2.10.0-147_25.01", "DPU_NIC": "32.44.1036"}
)


class TestBfb:
    """Installing a BFB on a BlueField."""

    def begin(self, bmc: str, **more: Any) -> Client:
        client = Client(bmc)
        client.files["x.bfb"] = BFB
        body = {"TransferProtocol": "HTTP", "ImageURI": "10.0.0.9:8080//x.bfb",
                "Targets": [f"{ITEMS[1:]}/DPU_OS"], **more}  # fmt: skip
        where = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
        told = client.ask("POST", where, {k: v for k, v in body.items() if v is not None})
        client.answer = told  # type: ignore[attr-defined]
        return client

    def state(self, client: Client) -> str:
        system = client.get("/redfish/v1/Systems/Bluefield")
        return str(system["BootProgress"]["OemLastState"])

    def test_the_task_ends_before_the_installation_does(self) -> None:
        client = self.begin("DPU_0")
        client.later(300)

        assert client.get(f"{TASKS}/0")["TaskState"] == "Completed"
        assert self.state(client) in ("BootRom", "BL2", "BL31")
        assert client.version("DPU_OS").startswith("bf-bundle-2.9.0")
        client.later(900)
        assert self.state(client) == "OsIsRunning"
        assert client.version("DPU_OS").startswith("bf-bundle-2.10.0")

    def test_nic_firmware_waits_for_the_host_to_go_cold(self) -> None:
        client = self.begin("DPU_0")
        client.later(1200)
        assert client.version("DPU_NIC") == "32.43.1014"
        client.machine.restart_host(client.clock.now())
        client.later(600)
        assert client.version("DPU_NIC") == "32.43.1014"
        client.machine.power_cycle(client.clock.now())
        client.later(600)

        assert client.version("DPU_NIC") == "32.44.1036"

    def test_a_supernic_in_nic_mode_shows_no_version_and_ends_in_uefi(self) -> None:
        client = self.begin("NIC_3")
        client.later(1200)

        assert (client.version("DPU_NIC"), client.version("DPU_OS")) == ("", "")
        assert self.state(client) == "UEFI"
        assert client.machine.firmware["NIC_3", "DPU_NIC"].staged == "32.44.1036"

    def test_an_image_that_cannot_be_fetched_fails_the_task(self) -> None:
        client = self.begin("DPU_0", ImageURI="10.0.0.9//gone.bfb")
        client.later(10)

        assert client.get(f"{TASKS}/0")["TaskState"] == "Exception"
        assert "web service" in json.dumps(client.get(f"{TASKS}/0")["Messages"])

    @pytest.mark.parametrize("targets", [None, [], "DPU_OS", [1]])
    def test_targets_are_needed(self, targets: Any) -> None:
        client = self.begin("DPU_0", Targets=targets)

        assert client.answer.status == 400  # type: ignore[attr-defined]

    def test_power_lost_during_the_installation_leaves_nothing_that_boots(self) -> None:
        client = self.begin("DPU_0")
        client.later(400)
        client.machine.power_cycle(client.clock.now())
        client.later(1200)

        assert self.state(client) == "Invalid"
        assert client.machine.firmware["DPU_0", "DPU_NIC"].staged is None
