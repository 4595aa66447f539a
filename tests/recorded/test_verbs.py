"""What the client sends and what it makes of answers, in the shape of each vendor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.model.inventory import Activation, Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, Call, LoginRefused, Reply, Secret, Unreachable, Upload
from provisioner.redfish.client import Redfish, TaskRef, TaskView

HERE = Path(__file__).parent
V1 = "/redfish/v1"
TASK = f"{V1}/TaskService/Tasks/3"
Answer = Callable[[Call], Reply]


class Bmc(TreeTransport):
    """A tree, and answers to what changes it: "METHOD path" -> reply, or a function of the call."""

    def __init__(self, tree: Mapping[str, Any], answers: Mapping[str, Reply | Answer]) -> None:
        super().__init__(tree)
        self.answers = answers
        self.sent: list[Call] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        answer = self.answers.get(f"{call.method} {call.path}")
        if call.method != "GET":
            self.sent.append(call)
        if answer is None:
            return await super().request(bmc, call)
        return answer if isinstance(answer, Reply) else answer(call)


def reply(status: int, body: object = None, **headers: str) -> Reply:
    return Reply(status, headers, b"" if body is None else json.dumps(body).encode())


def said(*keys: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    info = [{"MessageId": key, "Message": key, "MessageArgs": list(args)} for key in keys]
    return {"error": {"@Message.ExtendedInfo": info}}


def bmc_of(
    case: str, answers: Mapping[str, Reply | Answer], **changes: dict[str, Any]
) -> tuple[Bmc, Redfish]:
    """A recorded case with resources changed: keys are paths under /redfish/v1, "_" for "/"."""
    tree: dict[str, Any] = {}
    for path, text in tree_of(HERE / case).items():
        try:
            tree[path] = json.loads(text)
        except ValueError:
            tree[path] = text
    for name, change in changes.items():
        path = f"{V1}/{name.replace('__', '/')}".rstrip("/")
        tree[path] = {**tree.get(path, {}), **change}
    bmc = Bmc(tree, answers)
    return bmc, Redfish(bmc, ADDRESS, quirks.identify(tree[V1]))


def run(work: Awaitable[Any]) -> Any:
    async def whole() -> Any:
        return await work

    return asyncio.run(whole())


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
        "@Redfish.OperationApplyTime": "Immediate",
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


def test_a_bluefield_pulls_its_bundle_with_rshim_and_the_uri_that_its_bmc_understands() -> None:
    simple = f"{V1}/UpdateService/Actions/UpdateService.SimpleUpdate"
    oem = f"{V1}/Managers/Bluefield_BMC/Oem/Nvidia"
    bmc, client = bmc_of(
        "bluefield_in_nic_mode",
        {f"POST {simple}": reply(202, None, location=TASK), f"PATCH {oem}": reply(200)},
        UpdateService={"Actions": {"#UpdateService.SimpleUpdate": {"target": simple}}},
        Managers__Bluefield_BMC={"Oem": {"Nvidia": {"@odata.id": oem}}},
        Managers__Bluefield_BMC__Oem__Nvidia={"BmcRShim": {"BmcRShimEnabled": False}},
    )

    sent = run(client.simple_update("http://10.0.0.9:8080/a/b.bfb", "bluefield.bundle"))

    assert sent == TaskRef(path=TASK)
    assert [(c.method, c.body) for c in bmc.sent] == [
        ("PATCH", {"BmcRShim": {"BmcRShimEnabled": True}}),
        (
            "POST",
            {
                "ImageURI": "10.0.0.9:8080//a/b.bfb",
                "TransferProtocol": "HTTP",
                "Targets": ["redfish/v1/UpdateService/FirmwareInventory/DPU_OS"],
            },
        ),
    ]


def task(state: str, *messages: tuple[str, ...], status: str = "OK", **more: object) -> Reply:
    listed = [
        {
            "MessageId": m[0],
            "Message": m[0],
            "MessageArgs": list(m[1:2]),
            "Severity": "".join(m[2:]),
        }
        for m in messages
    ]
    return reply(200, {"TaskState": state, "TaskStatus": status, "Messages": listed, **more})


ENDS: dict[str, tuple[Reply, bool, bool]] = {  # answer, done, failed
    "runs": (task("Running", PercentComplete=20), False, False),
    "is new right after it was sent (Dell)": (task("New"), False, False),
    "completes": (task("Completed"), True, False),
    "completes with noise as a warning (DGX)": (
        task("Completed", ("UpdateManager.1.0.MessageNil", "ResourceErrorsDetected", "Warning")),
        True,
        False,
    ),
    "completes although no debug token was there": (
        task(
            "Completed",
            ("NvidiaUpdate.1.0.0.DebugTokenEraseFailed", "x", "Critical"),
            status="Critical",
        ),
        True,
        False,
    ),
    "ends as an exception whose status is OK (DGX)": (task("Exception"), True, True),
    "completes, critical (JCP052)": (task("Completed", status="Critical"), True, True),
    "completes, but nothing matched": (
        task("Completed", ("ResourceEvent.1.0.ResourceErrorsDetected", "No Matching Devices")),
        True,
        True,
    ),
    "completes, but a component failed": (
        task("Completed", ("Update.1.0.ApplyFailed", "HGX_FW_GPU_SXM_1")),
        True,
        True,
    ),
    "waits for the host's reset (Dell)": (
        task("UserIntervention", PercentComplete=100),
        True,
        False,
    ),
    "still runs, as its monitor says": (reply(202), False, False),
    "has ended, as its monitor says": (reply(204), True, False),
    "cannot be read now": (reply(503), False, False),
    "is nonsense": (reply(200, ["Completed"]), False, False),
}


@pytest.mark.parametrize(("answer", "done", "failed"), ENDS.values(), ids=ENDS)
def test_a_task_that(answer: Reply, *, done: bool, failed: bool) -> None:
    _, client = bmc_of("tiny_dgx", {f"GET {TASK}": answer})

    view = run(client.task(TaskRef(path=TASK)))

    assert (view.done, view.failed is not None, view.vanished) == (done, failed, False)


def test_a_task_that_is_gone_is_vanished_and_neither_done_nor_failed() -> None:
    _, client = bmc_of("tiny_dgx", {f"GET {TASK}": reply(404)})

    assert run(client.task(TaskRef(path=TASK))) == TaskView(state="vanished", vanished=True)


def test_a_task_names_the_activation_that_its_components_wait_for() -> None:
    messages = [
        {
            "MessageId": "Update.1.0.AwaitToActivate",
            "Resolution": "DC power cycle or AC power cycle",
        },
        {"MessageId": "Update.1.0.AwaitToActivate", "Resolution": "AC power cycle"},
    ]
    _, client = bmc_of(
        "tiny_dgx", {f"GET {TASK}": reply(200, {"TaskState": "Completed", "Messages": messages})}
    )

    assert run(client.task(TaskRef(path=TASK))).awaits is Activation.AC_CYCLE


def test_running_tasks_are_listed_dangling_ones_are_not_and_silence_is_no_empty_list() -> None:
    tasks = f"{V1}/TaskService/Tasks"
    members = {"Members": [{"@odata.id": f"{tasks}/{n}"} for n in range(4)]}
    tree = {
        "TaskService": {"Tasks": {"@odata.id": tasks}},
        "TaskService__Tasks": members,
        "TaskService__Tasks__1": {"TaskState": "Running"},
        "TaskService__Tasks__2": {"TaskState": "Completed"},
        "": {"Tasks": {"@odata.id": f"{V1}/TaskService"}},
    }
    _, client = bmc_of("tiny_dgx", {f"GET {tasks}/3": reply(500)}, **tree)
    _, silent = bmc_of("tiny_dgx", {f"GET {tasks}": reply(503)}, **tree)

    assert run(client.tasks()) == (f"{tasks}/1", f"{tasks}/3")
    with pytest.raises(Unreachable):
        run(silent.tasks())


RESET = {"#ComputerSystem.Reset": {"target": f"{V1}/Systems/DGX/Actions/Reset"}}


def test_a_reset_that_is_refused_because_the_host_is_already_there_is_no_error() -> None:
    answer = {
        f"POST {V1}/Systems/DGX/Actions/Reset": reply(409, said("Base.1.0.ActionNotSupported"))
    }
    _, client = bmc_of("tiny_dgx", answer, Systems__DGX={"Actions": RESET})

    assert run(client.reset_system("On")) is None
    refused = run(client.reset_system("ForceOff"))
    assert isinstance(refused, Blocker)


def test_a_reset_type_that_the_action_info_does_not_list_is_never_sent() -> None:
    info = f"{V1}/Systems/DGX/ResetActionInfo"
    action = {
        "#ComputerSystem.Reset": {**RESET["#ComputerSystem.Reset"], "@Redfish.ActionInfo": info}
    }
    bmc, client = bmc_of(
        "tiny_dgx",
        {},
        Systems__DGX={"Actions": action},
        Systems__DGX__ResetActionInfo={
            "Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceOff"]}]
        },
    )

    refused = run(client.reset_system("PowerCycle"))

    assert refused.reason is Reason.NOT_OFFERED
    assert bmc.sent == []


def test_power_of_a_bmc_that_answers_nothing_is_raised_not_guessed() -> None:
    _, gone = bmc_of("tiny_dgx", {f"GET {V1}/Systems": reply(503)})
    _, closed = bmc_of("tiny_dgx", {f"GET {V1}/Systems": reply(401)})
    _, well = bmc_of("tiny_dgx", {})

    with pytest.raises(Unreachable):
        run(gone.power())
    with pytest.raises(LoginRefused):
        run(closed.power())
    assert run(well.power()) is Power.ON


def test_standby_power_is_only_taken_from_a_host_that_is_off() -> None:
    target = f"{V1}/Chassis/Card1/Actions/Oem/NvidiaChassis.AuxPowerReset"
    actions = {"Actions": {"Oem": {"Nvidia": {"#NvidiaChassis.AuxPowerReset": {"target": target}}}}}
    answers = {f"POST {target}": reply(204)}
    on, running = bmc_of("bluefield_in_nic_mode", answers, Chassis__Card1=actions)
    off, stopped = bmc_of(
        "bluefield_in_nic_mode",
        answers,
        Chassis__Card1=actions,
        Systems__Bluefield={"PowerState": "Off"},
    )

    refused = run(running.ac_cycle())

    assert refused.reason is Reason.PRECONDITION
    assert on.sent == []
    assert run(stopped.ac_cycle()) is None
    assert [c.body for c in off.sent] == [{"ResetType": "AuxPowerCycle"}]


def test_a_dgx_has_no_redfish_action_for_standby_power() -> None:
    _, client = bmc_of("tiny_dgx", {})

    assert run(client.ac_cycle()).reason is Reason.NOT_OFFERED


ACCOUNT = f"{V1}/AccountService/Accounts/1"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "": {"AccountService": {"@odata.id": f"{V1}/AccountService"}},
    "AccountService": {"Accounts": {"@odata.id": f"{V1}/AccountService/Accounts"}},
    "AccountService__Accounts": {"Members": [{"@odata.id": ACCOUNT}]},
    "AccountService__Accounts__1": {"UserName": "root", "@odata.etag": 'W/"12"'},
}


def test_a_password_is_changed_under_the_etag_made_strong() -> None:
    bmc, client = bmc_of("bluefield_in_nic_mode", {f"PATCH {ACCOUNT}": reply(200)}, **ACCOUNTS)

    assert run(client.set_password("root", Secret("new"))) is None
    assert [(c.headers, c.body) for c in bmc.sent] == [({"If-Match": '"12"'}, {"Password": "new"})]


def test_a_refused_etag_is_tried_once_more_as_any() -> None:
    def answer(call: Call) -> Reply:
        return reply(200) if call.headers.get("If-Match") == "*" else reply(412)

    bmc, client = bmc_of("bluefield_in_nic_mode", {f"PATCH {ACCOUNT}": answer}, **ACCOUNTS)

    assert run(client.set_password("root", Secret("new"))) is None
    assert len(bmc.sent) == 2


def test_a_factory_bmc_that_answers_nothing_else_names_the_account_to_change() -> None:
    demand = reply(403, said("Base.1.13.PasswordChangeRequired", args=(ACCOUNT,)))
    bmc, client = bmc_of(
        "bluefield_in_nic_mode",
        {f"GET {V1}/AccountService": demand, f"PATCH {ACCOUNT}": reply(200)},
        **ACCOUNTS,
    )

    assert run(client.set_password("root", Secret("new"))) is None
    assert [c.path for c in bmc.sent] == [ACCOUNT]
