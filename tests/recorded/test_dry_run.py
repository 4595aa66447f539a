"""The requests of each action at each vendor, as the dry run shows them on reduced real trees.

Each tree of `writes/` names its source; docs/hardware-writes.md names the source of each rule.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import verdicts
from golden_requests import IMAGE, TREES, golden_of, put_supplies, read_tree, record, run_dry

from provisioner.integrations.recordings.bmc_commands import ACTIONS, Request

V1 = "/redfish/v1"
BOOT = Request("boot-maintenance", image=IMAGE)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    file = tmp_path / "firmware.fwpkg"
    file.write_bytes(b"firmware")
    return file


def sent(result: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [(w["method"], w["path"].removeprefix(V1), w["body"]) for w in result["writes"]]


@pytest.mark.parametrize("name", TREES)
def test_the_requests_of_every_action_are_the_recorded_ones(name: str, tmp_path: Path) -> None:
    assert record(name, tmp_path) == json.loads(golden_of(name).read_text())


@pytest.mark.parametrize("name", TREES)
def test_every_action_is_recorded_and_a_refusal_says_what_would_unblock_it(name: str) -> None:
    recorded = json.loads(golden_of(name).read_text())
    host = name != "bluefield3"
    boots = {f"boot-maintenance {way}" for way in ("virtual_media", "http", "http_dhcp", "pxe")}
    power = {f"power {what}" for what in ("on", "off", "cycle")}
    pushes = (
        {"push host.bios", "push host.bmc", "push hgx.bundle"}
        if host
        else {"push bluefield.bmc", "push bluefield.bundle"}
    )
    # a clock is set by NetworkProtocol, which these reduced trees do not have (test_bmc_time.py);
    # settings have trees of their own (test_settings_writes.py)
    others = set(ACTIONS) - {"power", "push", "set-time", "set-bios", "set-bmc"}

    assert boots | power | pushes | others <= set(recorded)
    refusals = [result["refused"] for result in recorded.values() if result["refused"]]
    assert all(r["reason"] and r["detail"] and r["unblock"] for r in refusals)


def test_the_page_has_a_verdict_of_each_recorded_request() -> None:
    page = verdicts.build_verdicts()

    assert set(verdicts.ROWS) == set(TREES)
    for name, title in verdicts.ROWS.items():
        for action in json.loads(golden_of(name).read_text()):
            assert f"| {title} | {action} | " in page


@pytest.mark.parametrize("name", TREES)
def test_no_recorded_request_holds_a_secret(name: str, tmp_path: Path) -> None:
    tree = read_tree(name)

    changed = run_dry(tree, Request("change-password"), "admin" if name == "dgx_h100" else "root")

    assert [w["body"] for w in changed["writes"]] == [{"Password": "***"}]
    assert not {"X-Auth-Token", "Authorization"} & set(changed["writes"][0]["headers"])


def test_without_a_user_the_account_of_a_person_is_changed_not_the_firmwares_own() -> None:
    """source: captured tree of a BlueField-3, AccountService/Accounts."""
    tree = read_tree("bluefield3")
    accounts = f"{V1}/AccountService/Accounts"
    own = f"{accounts}/NvBluefieldUefi0"
    tree[own] = {"UserName": "NvBluefieldUefi0", "RoleId": "Administrator", "Enabled": True}
    tree[accounts]["Members"].insert(0, {"@odata.id": own})

    changed = run_dry(tree, Request("change-password"), user="")

    assert [w["path"] for w in changed["writes"]] == [f"{accounts}/root"]


def test_a_push_to_one_of_several_components_has_to_name_it(package: Path) -> None:
    refused = run_dry(read_tree("dgx_h100"), Request("push", "host.psu", file=package))

    assert refused["writes"] == []
    assert refused["refused"]["unblock"] == "Name one, as host.psu/PSU_0."


def test_an_upload_is_described_by_name_size_digest_and_parts(package: Path) -> None:
    result = run_dry(read_tree("dgx_h100"), Request("push", "host.bmc", file=package))

    (write,) = result["writes"]
    assert write["body"] is None
    assert write["upload"]["name"] == "firmware.fwpkg"
    assert write["upload"]["size"] == 8
    assert write["upload"]["sha256"] == hashlib.sha256(b"firmware").hexdigest()
    assert [part["name"] for part in write["upload"]["parts"]] == ["UpdateParameters", "UpdateFile"]


# --- boot of the virtual CD


def test_a_host_that_lists_no_usbcd_boots_cd() -> None:
    tree = read_tree("supermicro_x13")
    boot = tree[f"{V1}/Systems/1"]["Boot"]
    boot["BootSourceOverrideTarget@Redfish.AllowableValues"].remove("UsbCd")

    (target,) = [b["Boot"] for m, _, b in sent(run_dry(tree, BOOT)) if m == "PATCH"]

    assert target["BootSourceOverrideTarget"] == "Cd"


def test_an_idrac_without_the_boot_attributes_imports_them() -> None:
    """source: dell/iDRAC-Redfish-Scripting SetNextOneTimeBootVirtualMediaDeviceOemREDFISH."""
    tree = read_tree("dell_idrac9")
    manager = f"{V1}/Managers/iDRAC.Embedded.1"
    for path, resource in tree.items():
        if "DellAttributes" in path:
            resource["Attributes"] = {}

    requests = sent(run_dry(tree, BOOT))

    imports = [(p, b) for _, p, b in requests if p.endswith("ImportSystemConfiguration")]
    assert [p for p, _ in imports] == [
        f"{manager.removeprefix(V1)}/Actions/Oem/EID_674_Manager.ImportSystemConfiguration"
    ]
    assert "vCD-DVD" in imports[0][1]["ImportBuffer"]


def test_attributes_that_still_choose_the_virtual_cd_are_reset_before_the_disk() -> None:
    tree = read_tree("dell_idrac9")
    for path, resource in tree.items():
        if path.endswith("DellAttributes/iDRAC.Embedded.1"):
            resource["Attributes"]["ServerBoot.1.FirstBootDevice"] = "VCD-DVD"

    bodies = [b for m, _, b in sent(run_dry(tree, Request("boot-disk"))) if m == "PATCH"]

    assert bodies[0] == {"Attributes": {"ServerBoot.1.FirstBootDevice": "Normal"}}
    assert bodies[1]["Boot"]["BootSourceOverrideTarget"] == "Hdd"


def test_an_image_that_lenovo_holds_is_ejected_by_patch() -> None:
    tree = read_tree("lenovo_xcc")
    drive = f"{V1}/Managers/1/VirtualMedia/EXT1"
    tree[drive] |= {"Inserted": True, "Image": "http://192.0.2.9/other.iso"}

    first = sent(run_dry(tree, BOOT))[:2]

    assert [(p, b.get("Image"), b.get("Inserted")) for _, p, b in first] == [
        (drive.removeprefix(V1), None, False),
        (drive.removeprefix(V1), IMAGE, True),
    ]


def test_drives_that_serve_the_console_only_are_refused_with_the_other_ways() -> None:
    way = Request("boot-maintenance", image=IMAGE, way="virtual_media")

    refused = run_dry(read_tree("gb200"), way)

    assert refused["writes"] == []
    assert "maintenance_boot" in refused["refused"]["unblock"]


# --- pushes


def test_a_baseboard_asked_directly_takes_the_whole_package(package: Path) -> None:
    """source: docs/sources/redfish.md#bmcweb.

    Target Chassis/HGX_Chassis_0 is 400 InvalidObject there.
    """
    tree = read_tree("gb200")
    managers = tree[f"{V1}/Managers"]
    managers["Members"] = [m for m in managers["Members"] if "HGX_" in m["@odata.id"]]

    result = run_dry(tree, Request("push", "hgx.bundle", file=package))

    assert [w["upload"]["parts"][0]["body"] for w in result["writes"]] == [{}]


def test_the_baseboard_of_another_maker_s_host_has_no_assumed_target(package: Path) -> None:
    tree = read_tree("dgx_h100")
    tree[f"{V1}/Systems/Self"] = tree.pop(f"{V1}/Systems/DGX") | {
        "@odata.id": f"{V1}/Systems/Self",
        "Id": "Self",
        "Manufacturer": "GIGABYTE",
    }
    tree[f"{V1}/Systems"]["Members"][0] = {"@odata.id": f"{V1}/Systems/Self"}

    refused = run_dry(tree, Request("push", "hgx.bundle", file=package))

    assert refused["writes"] == []
    assert refused["refused"]["reason"] == "not_offered"


def test_a_claim_that_stands_while_no_task_runs_is_taken_over(package: Path) -> None:
    tree = read_tree("lenovo_xcc")
    tree[f"{V1}/UpdateService"]["HttpPushUriTargetsBusy"] = True
    tree[V1].pop("Tasks", None)

    requests = sent(run_dry(tree, Request("push", "host.bios", file=package)))

    assert [(m, p, b) for m, p, b in requests if m == "PATCH"] == [
        ("PATCH", "/UpdateService", {"HttpPushUriTargetsBusy": False})
    ]


def test_a_claim_of_another_client_whose_task_runs_is_waited_for(package: Path) -> None:
    tree = read_tree("lenovo_xcc")
    tree[f"{V1}/UpdateService"]["HttpPushUriTargetsBusy"] = True
    tasks, task = f"{V1}/TaskService/Tasks", f"{V1}/TaskService/Tasks/7"
    tree |= {
        f"{V1}/TaskService": {"Id": "TaskService", "Tasks": {"@odata.id": tasks}},
        tasks: {"Members": [{"@odata.id": task}], "Members@odata.count": 1},
        task: {"Id": "7", "TaskState": "Running"},
    }

    refused = run_dry(tree, Request("push", "host.bios", file=package))

    assert refused["writes"] == []
    assert refused["refused"]["reason"] == "busy"


# --- power


def test_a_host_whose_bmc_cannot_remove_standby_power_is_not_switched_off() -> None:
    refused = run_dry(read_tree("dgx_h100"), Request("ac-cycle"))

    assert refused["writes"] == []
    assert "outlets" in refused["refused"]["unblock"]


def test_no_supply_is_written_while_another_one_reports_a_fault(package: Path) -> None:
    """source: docs/sources/redfish.md#psu.

    One power supply at a time, with a look at the redundancy.
    """
    power = f"{V1}/Chassis/DGX/Power"
    whole = put_supplies(read_tree("dgx_h100"), "OK", "OK", "OK")
    refused = {
        "1 is Critical": put_supplies(whole, "OK", "Critical", "OK"),
        "HTTP status": {path: body for path, body in whole.items() if path != power},
        "none is listed": put_supplies(whole),
    }
    push = Request("push", "host.psu/PSU_0", file=package)

    assert len(run_dry(whole, push)["writes"]) == 1
    for words, tree in refused.items():
        told = run_dry(tree, push)
        assert told["writes"] == []
        assert words in told["refused"]["detail"]


# --- BlueField's rshim


def test_the_rshim_is_taken_from_the_host_and_given_to_the_bmc(package: Path) -> None:
    """source: Mellanox/dpu-update; captured tree (HostRshim.Set)."""
    tree = read_tree("bluefield3")
    tree[f"{V1}/Managers/Bluefield_BMC/Oem/Nvidia"] = {"BmcRShim": {"BmcRShimEnabled": False}}
    tree[f"{V1}/Systems/Bluefield/Oem/Nvidia"] = {
        "@odata.id": f"{V1}/Systems/Bluefield/Oem/Nvidia",
        "HostRshim": "Enabled",
        "Actions": {
            "#HostRshim.Set": {"target": f"{V1}/Systems/Bluefield/Oem/Nvidia/Actions/HostRshim.Set"}
        },
    }

    requests = sent(run_dry(tree, Request("push", "bluefield.bundle", file=package)))

    assert requests[:2] == [
        (
            "POST",
            "/Systems/Bluefield/Oem/Nvidia/Actions/HostRshim.Set",
            {"HostRshim": "Disabled"},
        ),
        (
            "PATCH",
            "/Managers/Bluefield_BMC/Oem/Nvidia",
            {"BmcRShim": {"BmcRShimEnabled": True}},
        ),
    ]
    assert requests[2][1].endswith("UpdateService.SimpleUpdate")
