"""Firmware updates on simulated BMCs: what runs, what is staged, what a task says."""

from __future__ import annotations

import json

import pytest
from bmc_client import ITEMS, TASKS, Client

from provisioner.integrations.sim.hardware.build import make_image

GPU = "96.00.74.00.01"
OLD = "96.00.68.00.01"
TRAY = make_image("hgx.bundle", {"HGX_FW_GPU_SXM_*": GPU, "HGX_FW_ERoT_GPU_*": "00.02.0150"})
HGX = f"{ITEMS}/HGX_0"


def test_a_finished_task_leaves_the_new_version_staged_until_the_right_reset() -> None:
    client = Client()
    told = client.push(TRAY, {"Targets": [HGX]})
    task = json.loads(told.body)["Accepted"]["@Message.ExtendedInfo"][0]["MessageArgs"][0]
    client.later(900)

    assert client.get(task)["TaskState"] == "Completed"
    assert client.version("HGX_FW_GPU_SXM_1") == OLD
    client.machine.restart_host(client.clock.now())
    client.later(600)
    assert client.version("HGX_FW_GPU_SXM_1") == OLD
    client.machine.power_cycle(client.clock.now())
    client.later(600)
    assert client.version("HGX_FW_GPU_SXM_1") == GPU
    assert client.version("HGX_FW_ERoT_GPU_SXM_1") == "00.02.0134.0000_n00"
    client.machine.ac_cycle(client.clock.now())
    client.later(900)
    assert client.version("HGX_FW_ERoT_GPU_SXM_1") == "00.02.0150"


def test_a_task_says_things_in_the_order_of_a_real_one() -> None:
    client = Client()
    client.push(TRAY, {"Targets": [HGX]})
    client.later(900)
    keys = client.keys(f"{TASKS}/1")
    activation = [m for m in client.get(f"{TASKS}/1")["Messages"] if "AwaitTo" in m["MessageId"]]

    assert keys[:2] == ["TaskStarted", "TargetDetermined"]
    assert keys[-2:] == ["TaskProgressChanged", "TaskCompletedOK"]
    assert keys.index("TransferringToComponent") < keys.index("TaskProgressChanged")
    assert keys[keys.index("UpdateSuccessful") + 1] == "AwaitToActivate"
    assert {m["Resolution"] for m in activation} == {
        "DC power cycle or AC power cycle",
        "AC power cycle",
    }


def test_a_background_copy_makes_the_root_of_trust_refuse_the_next_update() -> None:
    client = Client()
    client.push(TRAY, {"Targets": [HGX]})
    client.later(900)
    client.machine.power_cycle(client.clock.now())
    client.later(60)
    chassis = "/redfish/v1/Chassis/HGX_ERoT_GPU_SXM_1"
    oem = client.get(chassis)["Oem"]["Nvidia"]
    client.push(TRAY, {"Targets": [HGX], "ForceUpdate": True})
    client.later(100)

    assert oem["BackgroundCopyStatus"] == "InProgress"
    task = client.get(f"{TASKS}/2")
    assert (task["TaskState"], task["TaskStatus"]) == ("Exception", "Critical")
    assert "ERoT is busy" in json.dumps(task["Messages"])
    client.later(900)
    assert client.get(chassis)["Oem"]["Nvidia"]["BackgroundCopyStatus"] == "Completed"


def test_a_second_update_is_refused_while_one_runs() -> None:
    client = Client()
    client.push(TRAY, {"Targets": [HGX]})
    told = client.push(TRAY, {"Targets": [HGX]})

    assert told.status == 400
    assert b"UpdateInProgress" in told.body


def test_an_identical_image_is_skipped_unless_forced() -> None:
    client = Client()
    same = make_image("hgx.bundle", {"HGX_FW_GPU_SXM_1": OLD})
    client.push(same, {})
    client.later(900)
    client.push(same, {"ForceUpdate": True})
    client.later(900)

    assert "ComponentUpdateSkipped" in client.keys(f"{TASKS}/1")
    assert "UpdateSuccessful" not in client.keys(f"{TASKS}/1")
    assert "UpdateSuccessful" in client.keys(f"{TASKS}/2")


def test_an_older_image_is_refused_unless_forced() -> None:
    client = Client()
    older = make_image("hgx.bundle", {"HGX_FW_GPU_SXM_1": "96.00.61.00.01"})
    client.push(older, {})
    client.later(900)
    client.push(older, {"ForceUpdate": True})
    client.later(900)

    assert client.get(f"{TASKS}/1")["TaskState"] == "Exception"
    assert client.get(f"{TASKS}/2")["TaskState"] == "Completed"


def test_a_package_that_fits_nothing_still_completes() -> None:
    client = Client()
    client.push(make_image("x", {"NO_SUCH_ITEM": "1"}), {})
    client.later(900)

    assert client.get(f"{TASKS}/1")["TaskState"] == "Completed"
    assert "No Matching Devices" in json.dumps(client.get(f"{TASKS}/1")["Messages"])


@pytest.mark.parametrize(
    "junk", [b"", b"MZ\x90\x00", b"[]", b'{"simulated": true}', b"[" * 100_000]
)
def test_what_is_no_image_fails_verification(junk: bytes) -> None:
    client = Client()
    client.push(junk, {})
    client.later(900)

    assert client.get(f"{TASKS}/1")["TaskState"] == "Exception"
    assert "VerificationFailed" in client.keys(f"{TASKS}/1")


def test_a_bmc_reset_loses_the_task_and_the_writing() -> None:
    client = Client()
    client.push(TRAY, {"Targets": [HGX]})
    client.later(100)
    client.machine.bmc_reset("host", client.clock.now())
    client.later(1000)

    assert client.ask("GET", f"{TASKS}/1").status == 404
    assert client.machine.firmware["host", "HGX_FW_GPU_SXM_1"].staged is None
    assert client.push(TRAY, {"Targets": [HGX]}).status == 202
    assert client.ask("GET", f"{TASKS}/1").status == 200, "the counter begins again: another task"


def test_losing_host_power_breaks_the_writing_of_the_tray() -> None:
    client = Client()
    client.push(TRAY, {"Targets": [HGX]})
    client.later(100)
    client.machine.power_off(client.clock.now())
    client.later(1000)

    assert client.get(f"{TASKS}/1")["TaskState"] == "Exception"
    assert client.machine.firmware["host", "HGX_FW_GPU_SXM_1"].staged is None


def test_a_monitor_answers_202_then_204_once_then_404() -> None:
    client = Client("DPU_0")
    told = client.push(make_image("bmc", {"BMC_Firmware": "BF-25.01-1"}), {})
    monitor = told.headers["Location"]
    client.later(30)
    seen = [client.ask("GET", monitor).status]
    client.later(900)
    seen += [client.ask("GET", monitor).status for _ in range(2)]

    assert monitor == "/redfish/v1/TaskService/Tasks/0/Monitor"
    assert seen == [202, 204, 404]


def test_percent_complete_is_a_timer_that_jumps() -> None:
    client = Client()
    client.push(TRAY, {"Targets": [HGX]})
    seen = set()
    for _ in range(40):
        client.later(20)
        seen.add(client.get(f"{TASKS}/1")["PercentComplete"])

    assert seen == {0, 20, 40, 60, 80, 100}


def test_an_update_that_hangs_stays_running_for_ever() -> None:
    client = Client()
    client.machine.bmcs["host"].troubles.add("update_hangs")
    client.push(TRAY, {"Targets": [HGX]})
    client.later(100_000)

    assert client.get(f"{TASKS}/1")["TaskState"] == "Running"
    assert client.get(f"{TASKS}/1")["PercentComplete"] < 100


def test_a_bmc_that_restarts_after_an_update_forgets_the_task_but_not_the_version() -> None:
    client = Client()
    client.machine.bmcs["host"].troubles.add("resets_itself")
    client.push(TRAY, {"Targets": [HGX]})
    client.later(900)

    assert client.ask("GET", f"{TASKS}/1").status == 404
    assert client.machine.firmware["host", "HGX_FW_GPU_SXM_1"].staged == GPU


def test_supermicro_forgets_an_upload_that_nobody_starts() -> None:
    client = Client()
    bios = make_image("host.bios", {"BIOS": "BIOS Date: 03/01/2024 Ver 2.1"})
    asked = {"Targets": ["/redfish/v1/Systems/1/Bios"],
             "@Redfish.OperationApplyTime": "OnStartUpdateRequest"}  # fmt: skip
    client.push(bios, asked)
    client.later(900)
    assert client.get(f"{TASKS}/1")["TaskState"] == "Completed"
    assert client.machine.firmware["host", "BIOS"].staged is None

    start = client.get("/redfish/v1/UpdateService")["Actions"]["#UpdateService.StartUpdate"]
    assert client.ask("POST", start["target"]).status == 202
    client.later(900)
    assert client.get(f"{ITEMS}/Staging_BIOS")["Version"] == "BIOS Date: 03/01/2024 Ver 2.1"


@pytest.mark.parametrize(
    ("vendor", "item", "version"),
    [
        ("ami_dgx", "HostBIOS_0", "01.05.03"),
        ("dell", "Installed-159-*", "2.1.0"),
        ("lenovo", "UEFI", "22J-1.60"),
        ("hpe", "2", "A42 v3.00"),
    ],
)
def test_every_vendor_stages_its_bios_until_the_host_restarts(
    vendor: str, item: str, version: str
) -> None:
    client = Client(vendor=vendor)
    image = make_image("host.bios", {item: version})
    where = {"path": "/cgi-bin/uploadFile", "part": "file"} if vendor == "hpe" else {}
    told = client.push(image, {"Targets": [], "Oem": {}}, **where)
    client.later(900)

    def running() -> list[str]:
        members = [m["@odata.id"] for m in client.get(ITEMS)["Members"]]
        return [str(client.get(m).get("Version", "")) for m in members]

    assert told.status in (200, 202)
    assert version not in [
        v
        for f, v in zip(client.machine.list_items("host"), running(), strict=True)
        if not f.id.endswith("Pending")
    ]
    client.machine.power_cycle(client.clock.now())
    client.later(600)
    assert version in running()
