"""Clients that others wrote work with the simulated BMCs: sushy and DMTF's redfish-utilities."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redfish
import redfish_utilities
import sushy
from simulated import Served, served, web_server
from sushy import auth

from provisioner.integrations.sim.hardware.build import make_image

TOOLS = Path(sys.executable).parent
GPU = "96.00.74.00.01"
TRAY = make_image("hgx.bundle", {"HGX_FW_GPU_SXM_*": GPU})
BIOS = make_image("host.bios", {"BIOS": "BIOS Date: 03/01/2024 Ver 2.1"})
HOST, DPU = "su0-n00/host", "su0-n00/DPU_0"
ITEMS = "/redfish/v1/UpdateService/FirmwareInventory/"

pytestmark = pytest.mark.filterwarnings("ignore")  # certificates are self-signed, as on real BMCs


def tool(name: str, site: Served, *args: str) -> subprocess.CompletedProcess[str]:
    """Run one of the redfish-utilities on the host's BMC."""
    bmc = site.bmc(HOST)
    command = [TOOLS / name, "-r", site.url(HOST), "-u", bmc.username, "-p", bmc.password, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@contextlib.contextmanager
def sushy_client(site: Served) -> Iterator[sushy.Sushy]:
    """A sushy client with a session; left open, it would be closed ten times after the test."""
    bmc = site.bmc(HOST)
    login = auth.SessionOrBasicAuth(bmc.username, bmc.password)
    yield sushy.Sushy(site.url(HOST), auth=login, verify=False, server_side_retries=0)
    with contextlib.suppress(sushy.exceptions.SushyError):
        login.close()


def wait_for(seen: object, wanted: object, limit_s: float = 30.0) -> object:
    """Ask until it is so; what was seen last."""
    end = time.monotonic() + limit_s
    while (last := seen()) != wanted and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.1)
    return last


def test_sushy_logs_in_reads_the_system_and_its_firmware() -> None:
    with served() as site, sushy_client(site) as client:
        system = client.get_system("/redfish/v1/Systems/1")
        items = client.get_update_service().firmware_inventory.get_members()

        machine = site.site.machines["su0-n00"]
        assert system.serial_number == machine.host.serial
        assert {i.identity: i.version for i in items} == {
            f.id: f.running for f in machine.list_items("host")
        }


def test_sushy_switches_a_host_off_and_on() -> None:
    with served(speed=60) as site, sushy_client(site) as client:
        system = client.get_system("/redfish/v1/Systems/1")

        def power() -> str:
            system.refresh(force=True)
            return str(system.power_state.value)

        system.reset_system(sushy.ResetType.FORCE_OFF)
        assert wait_for(power, "Off") == "Off"
        system.reset_system(sushy.ResetType.ON)
        assert wait_for(power, "On") == "On"


def test_sushy_boots_a_host_from_virtual_media_once() -> None:
    with served(speed=200) as site, sushy_client(site) as client:
        media = client.get_manager("/redfish/v1/Managers/1").virtual_media.get_members()[0]
        media.insert_media("http://images.example/ramdisk.iso")
        system = client.get_system("/redfish/v1/Systems/1")
        system.set_system_boot_options(
            target=sushy.BootSource.CD, enabled=sushy.BootSourceOverrideEnabled.ONCE
        )
        system.reset_system(sushy.ResetType.FORCE_RESTART)
        host = site.site.machines["su0-n00"].host

        assert wait_for(lambda: host.os, "cd") == "cd"
        assert host.override["BootSourceOverrideEnabled"] == "Disabled"


def test_sushy_runs_an_update_task_to_its_end() -> None:
    with (
        served(speed=120) as site,
        web_server({"bios.img": BIOS}) as images,
        sushy_client(site) as client,
    ):
        updates = client.get_update_service()
        monitor = updates.simple_update(
            f"http://{images}/bios.img", targets=["/redfish/v1/Systems/1/Bios"],
            transfer_protocol=sushy.UPDATE_PROTOCOL_HTTP,
        )  # fmt: skip

        def running() -> bool:
            if monitor.is_processing:
                monitor.refresh()
            return bool(monitor.is_processing)

        assert wait_for(running, wanted=False) is False
        bios = site.site.machines["su0-n00"].firmware["host", "BIOS"]
        assert bios.staged == "BIOS Date: 03/01/2024 Ver 2.1"
        assert bios.running == "BIOS Date: 08/04/2023 Ver 1.4"


def test_a_bluefield_asks_for_a_new_password_before_anything_else() -> None:
    with served() as site:
        bmc = site.bmc(DPU)
        client = redfish.redfish_client(site.url(DPU), bmc.username, bmc.password)
        with pytest.raises(redfish.rest.v1.RedfishPasswordChangeRequiredError):
            client.login(auth="session")

        basic = redfish.redfish_client(site.url(DPU), bmc.username, bmc.password)
        basic.login(auth="basic")
        where = "/redfish/v1/AccountService/Accounts/root"
        assert basic.patch(where, body={"Password": "Changed-at-once-1"}).status == 200
        client = redfish.redfish_client(site.url(DPU), "root", "Changed-at-once-1")
        client.login(auth="session")
        assert client.get("/redfish/v1/Systems/Bluefield").status == 200


def test_rf_firmware_inventory_lists_every_item() -> None:
    with served() as site:
        done = tool("rf_firmware_inventory.py", site, "--id")

        assert done.returncode == 0, done.stdout + done.stderr
        for item in site.site.machines["su0-n00"].list_items("host"):
            assert item.id in done.stdout


def test_rf_power_reset_switches_a_host_off() -> None:
    with served(speed=60) as site:
        done = tool("rf_power_reset.py", site, "--system", "1", "--type", "ForceOff")
        host = site.site.machines["su0-n00"].host

        assert done.returncode == 0, done.stdout + done.stderr
        assert wait_for(lambda: host.power, "Off") == "Off"


def test_rf_update_pushes_a_tray_image_and_sees_its_task_end(tmp_path: Path) -> None:
    (tmp_path / "tray.fwpkg").write_bytes(TRAY)
    with served(speed=100) as site:
        image = str(tmp_path / "tray.fwpkg")
        done = tool("rf_update.py", site, "--image", image, "--target", f"{ITEMS}HGX_0")
        gpus = [site.site.machines["su0-n00"].firmware["host", f"HGX_FW_GPU_SXM_{n}"]
                for n in range(1, 9)]  # fmt: skip

        assert done.returncode == 0, done.stdout + done.stderr
        assert "Task is Done" in done.stdout
        assert {g.staged for g in gpus} == {GPU}
        assert GPU not in {g.running for g in gpus}


def test_redfish_utilities_refuse_a_second_update_while_one_runs() -> None:
    with served() as site, web_server({"bios.img": BIOS}) as images:
        bmc = site.bmc(HOST)
        client = redfish.redfish_client(site.url(HOST), bmc.username, bmc.password)
        client.login(auth="session")
        where = f"http://{images}/bios.img"
        redfish_utilities.simple_update(client, where, targets=["/redfish/v1/Systems/1/Bios"])

        with pytest.raises(Exception, match="UpdateInProgress"):
            redfish_utilities.simple_update(client, where, targets=["/redfish/v1/Systems/1/Bios"])
