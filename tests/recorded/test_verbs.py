"""What an update sends, and where its task is found, in the shape of each vendor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_bmc import TASK, V1, Bmc, bmc_of, reply, run, said
from tree_transport import ADDRESS

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish, TaskRef
from provisioner.adapters.redfish.tasks import of_task
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Call, Reply, Upload


def pushed(bmc: Bmc) -> dict[str, Any]:
    """UpdateParameters of the only upload."""
    (upload,) = [c.body for c in bmc.sent if isinstance(c.body, Upload)]
    name, kind, body = upload.parts[0]
    assert (name, kind) == ("UpdateParameters", "application/json")
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.fixture
def package(tmp_path: Path) -> Path:
    file = tmp_path / "nvfw_tray.fwpkg"
    file.write_bytes(b"firmware")
    return file


# the task's address, wherever a vendor puts it
HANDLES = {
    "a task in the body, a monitor in Location": reply(
        202, {"@odata.type": "#Task.v1_4_3.Task", "@odata.id": TASK}, location=f"{TASK}/Monitor"
    ),
    "a message argument only (DGX)": reply(
        200, {"Messages": [{"MessageId": "Task.1.0.New", "MessageArgs": [TASK]}]}
    ),
    "under Accepted (Supermicro)": reply(
        202, {"Accepted": {"@Message.ExtendedInfo": [{"MessageId": "x", "MessageArgs": [TASK]}]}}
    ),
    "Location only (Dell)": reply(202, None, location=TASK),
    "an absolute Location on another host": reply(
        202, None, location=f"https://idrac.example{TASK}"
    ),
}


@pytest.mark.parametrize("answer", HANDLES.values(), ids=HANDLES)
def test_the_task_of_a_push_is_found_in_every_shape_of_answer(answer: Reply, package: Path) -> None:
    _, client = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": answer})

    assert run(client.push("hgx.bundle", ("HGX_0",), package)) == TaskRef(path=TASK)


def test_an_accepted_push_without_any_address_is_accepted_all_the_same(package: Path) -> None:
    _, client = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": reply(202)})

    assert run(client.push("hgx.bundle", ("HGX_0",), package)) == TaskRef(path="")


def test_a_dgx_bundle_goes_to_the_target_that_the_inventory_never_lists(package: Path) -> None:
    bmc, client = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": reply(202)})

    run(client.push("hgx.bundle", ("HGX_0",), package))

    assert pushed(bmc) == {"Targets": [f"{V1}/UpdateService/FirmwareInventory/HGX_0"]}


def test_a_dell_push_says_when_and_always_has_an_oem_part(package: Path) -> None:
    bmc, client = bmc_of(
        "dell_with_pages", {f"POST {V1}/UpdateService/MultipartUpload": reply(202)}
    )

    run(client.push("host.bios", ("BIOS.Setup.1-1",), package))

    assert pushed(bmc) == {
        "Targets": [f"{V1}/UpdateService/FirmwareInventory/Installed-159-2.4.4__BIOS.Setup.1-1"],
        "@Redfish.OperationApplyTime": "OnReset",
        "Oem": {},
    }


def test_force_on_a_dgx_is_set_as_an_option_and_taken_back(package: Path) -> None:
    option = {"HttpPushUriOptions": {"ForceUpdate": False}}
    answers = {
        f"POST {V1}/UpdateService/upload": reply(202),
        f"PATCH {V1}/UpdateService": reply(204),
    }
    bmc, client = bmc_of("tiny_dgx", answers, UpdateService=option)
    bmc2, client2 = bmc_of(
        "tiny_dgx", answers, UpdateService={"HttpPushUriOptions": {"ForceUpdate": True}}
    )

    run(client.push("hgx.bundle", ("HGX_0",), package, force=True))
    run(client2.push("hgx.bundle", ("HGX_0",), package))

    assert [c.body for c in bmc.sent if c.method == "PATCH"] == [
        {"HttpPushUriOptions": {"ForceUpdate": True}}
    ]
    assert [c.body for c in bmc2.sent if c.method == "PATCH"] == [
        {"HttpPushUriOptions": {"ForceUpdate": False}}
    ]


def test_an_image_over_the_limit_of_the_bmc_is_never_sent(package: Path) -> None:
    bmc, client = bmc_of("tiny_dgx", {}, UpdateService={"MaxImageSizeBytes": "4"})

    refused = run(client.push("hgx.bundle", ("HGX_0",), package))

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.TOO_LARGE
    assert bmc.sent == []


BUSY = {
    "OpenBMC, as 400": reply(400, said("Update.1.0.UpdateInProgress")),
    "upstream OpenBMC, as 503": reply(503, said("Base.1.13.0.ServiceTemporarilyUnavailable")),
    "HPE in POST": reply(400, said("iLO.2.14.UnableToModifyDuringSystemPOST")),
}


@pytest.mark.parametrize("answer", BUSY.values(), ids=BUSY)
def test_a_busy_service_is_told_from_one_that_refuses(answer: Reply, package: Path) -> None:
    _, client = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": answer})

    refused = run(client.push("hgx.bundle", ("HGX_0",), package))

    assert refused.reason is Reason.BUSY


def test_a_supermicro_push_updates_at_once_and_preserves_the_configuration(package: Path) -> None:
    bmc, _ = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": reply(202)})
    client = Redfish(bmc, ADDRESS, quirks.ALL["supermicro"])

    run(client.push("host.bmc", ("BMC_0",), package))

    sent = pushed(bmc)
    assert sent["Targets"] == [f"{V1}/Managers/BMC"]
    assert sent["@Redfish.OperationApplyTime"] == "Immediate"
    assert sent["Oem"]["Supermicro"]["BMC"]["PreserveCfg"] is True


def bluefield(enabled_after: int) -> tuple[Bmc, Redfish]:
    """A card's BMC that has the rshim after so many requests to enable it."""
    simple = f"{V1}/UpdateService/Actions/UpdateService.SimpleUpdate"
    oem = f"{V1}/Managers/Bluefield_BMC/Oem/Nvidia"
    tries: list[Call] = []

    def patched(call: Call) -> Reply:
        tries.append(call)
        asked = [c for c in tries if c.body["BmcRShim"]["BmcRShimEnabled"]]
        enabled = call.body["BmcRShim"]["BmcRShimEnabled"] and len(asked) >= enabled_after
        bmc.tree = {**bmc.tree, oem: {"BmcRShim": {"BmcRShimEnabled": enabled}}}
        return reply(200)

    bmc, client = bmc_of(
        "bluefield_in_nic_mode",
        {f"POST {simple}": reply(202, None, location=TASK), f"PATCH {oem}": patched},
        UpdateService={"Actions": {"#UpdateService.SimpleUpdate": {"target": simple}}},
        Managers__Bluefield_BMC={"Oem": {"Nvidia": {"@odata.id": oem}}},
        Managers__Bluefield_BMC__Oem__Nvidia={"BmcRShim": {"BmcRShimEnabled": False}},
    )
    return bmc, client


ENABLE, DISABLE = ({"BmcRShim": {"BmcRShimEnabled": on}} for on in (True, False))


@pytest.mark.parametrize(
    ("enabled_after", "first"), [(1, [ENABLE]), (2, [ENABLE, DISABLE, ENABLE])]
)
def test_a_bluefield_pulls_its_bundle_with_rshim_and_the_uri_that_its_bmc_understands(
    enabled_after: int, first: list[dict[str, Any]]
) -> None:
    """source: Mellanox/dpu-update, try_enable_rshim_on_bmc: read back, toggled once."""
    bmc, client = bluefield(enabled_after)

    sent = run(client.simple_update("http://10.0.0.9:8080/a/b.bfb", "bluefield.bundle"))

    assert sent == TaskRef(path=TASK)
    assert [c.body for c in bmc.sent] == [
        *first,
        {
            "ImageURI": "10.0.0.9:8080//a/b.bfb",
            "TransferProtocol": "HTTP",
            "Targets": ["redfish/v1/UpdateService/FirmwareInventory/DPU_OS"],
        },
    ]


def test_a_bundle_is_not_sent_to_a_card_whose_host_holds_the_rshim() -> None:
    bmc, client = bluefield(enabled_after=99)

    refused = run(client.simple_update("http://10.0.0.9:8080/a/b.bfb", "bluefield.bundle"))

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.PRECONDITION
    assert "rshim service on the host" in refused.unblock
    assert [c.method for c in bmc.sent] == ["PATCH"] * 3


SCHEDULED = {"TaskState": "New", "Oem": {"Dell": {"JobState": "Scheduled"}}}


def test_a_scheduled_job_is_written_and_not_installed() -> None:
    """source: docs/sources/redfish.md#dell: Oem.Dell.JobState == Scheduled is not done."""
    view = of_task(SCHEDULED)

    assert view.staged
    assert not view.done


def test_the_job_of_a_task_that_is_gone_is_asked_for() -> None:
    """source: docs/sources/redfish.md#dell.

    After the iDRAC's own update the Task is 404, and its Job is not.
    """
    task, jobs = f"{V1}/TaskService/Tasks/JID_1", f"{V1}/JobService/Jobs"
    _, client = bmc_of(
        "dell_with_pages",
        {},
        **{
            "": {"JobService": {"@odata.id": f"{V1}/JobService"}},
            "JobService": {"Jobs": {"@odata.id": jobs}},
            "JobService__Jobs__JID_1": {"Id": "JID_1", "JobState": "Completed"},
        },
    )

    view = run(client.read_task(TaskRef(path=task)))

    assert (view.state, view.done, view.failed) == ("Completed", True, None)
