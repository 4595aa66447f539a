"""The requests that set BIOS and BMC settings on reduced real trees, and what refuses them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from settings_trees import (
    TREES,
    find_bios,
    find_pending,
    read_settings_tree,
    record_settings,
    run_on,
    run_settings,
    settings_golden_of,
)

from provisioner import quirks
from provisioner.execution.observe.rotation import PASSWORD_LENGTH
from provisioner.model.outcome import Reason
from provisioner.quirks.meaning import VOCABULARY

ATTRIBUTE_GROUPS = ("bios", "card_boot")  # attributes of a vendor's registry, which a row names


@pytest.mark.parametrize("name", TREES)
def test_the_requests_are_the_recorded_ones(name: str) -> None:
    assert record_settings(name) == json.loads(settings_golden_of(name).read_text())


def sent(result: dict[str, Any]) -> list[Any]:
    assert result["refused"] is None, result["refused"]
    return [write["body"] for write in result["writes"]]


def refused(result: dict[str, Any]) -> tuple[str, str]:
    assert result["writes"] == []
    assert result["refused"]["unblock"]
    return result["refused"]["reason"], result["refused"]["detail"]


def test_nothing_is_sent_when_everything_runs_already() -> None:
    running = {"iommu": "on", "sr_iov": "on", "boot_mode": "uefi", "secure_boot": "off"}

    assert sent(run_settings("dell_idrac9", "set-bios", running)) == []


def test_what_waits_already_is_not_sent_again() -> None:
    tree = read_settings_tree("dell_idrac9")
    find_pending(tree)["Attributes"] = {"ProcX2Apic": "Enabled"}

    assert sent(run_on(tree, "set-bios", {"x2apic": "on"})) == []


def test_a_change_of_somebody_else_that_waits_is_never_carried_out_with_ours() -> None:
    tree = read_settings_tree("dell_idrac9")
    find_pending(tree)["Attributes"] = {"BootMode": "Bios"}

    reason, detail = refused(run_on(tree, "set-bios", {"x2apic": "on"}))

    assert (reason, "BootMode = Bios" in detail) == (Reason.PRECONDITION, True)


def test_apply_time_is_sent_to_dell_though_the_service_lists_none() -> None:
    """source: terraform-provider-redfish 231: without it the values wait for ever."""
    tree = read_settings_tree("dell_idrac9")
    del find_bios(tree)["@Redfish.Settings"]["SupportedApplyTimes"]

    (body,) = sent(run_on(tree, "set-bios", {"x2apic": "on"}))

    assert body["@Redfish.SettingsApplyTime"] == {"ApplyTime": "OnReset"}


def test_an_attribute_that_a_profile_locks_is_refused_with_the_way_in_two_boots() -> None:
    _, alone = refused(run_settings("dell_idrac9", "set-bios", {"c_states": "on"}))
    both = run_settings("dell_idrac9", "set-bios", {"power_profile": "custom", "c_states": "on"})

    assert alone == "it is read-only while SysProfile is PerfOptimized"
    assert refused(both)[0] == Reason.CONSTRAINT
    assert "via" in both["refused"]["unblock"]


def test_what_a_profile_sets_by_itself_is_not_sent() -> None:
    tree = read_settings_tree("dell_idrac9")
    find_bios(tree)["Attributes"] |= {
        "SysProfile": "PerfPerWattOptimizedOs",
        "ProcCStates": "Enabled",
    }
    pinned = {"power_profile": "performance", "c_states": "off"}

    (body,) = sent(run_on(tree, "set-bios", pinned))

    assert body["Attributes"] == {"SysProfile": "PerfOptimized"}


def test_a_profile_that_overwrites_a_pinned_attribute_is_refused() -> None:
    """HPE: HighPerformanceCompute(HPC) switches IOMMU and SR-IOV off, and locks both."""
    pinned = {"attribute:WorkloadProfile": "HighPerformanceCompute(HPC)", "iommu": "on"}

    reason, detail = refused(run_settings("hpe_ilo5", "set-bios", pinned))

    assert reason == Reason.CONSTRAINT
    assert detail == (
        "WorkloadProfile = HighPerformanceCompute(HPC) sets it to Disabled, and the set has Enabled"
    )


def test_supermicros_names_are_found_again_after_their_suffix_changed() -> None:
    tree = json.loads(json.dumps(read_settings_tree("supermicro_x13")).replace("_1DD1", "_2A07"))

    (body,) = sent(run_on(tree, "set-bios", {"relaxed_ordering": "on"}))

    assert body["Attributes"] == {"RelaxedOrdering_2A07": "Yes"}


def test_each_twin_is_spelled_as_its_own_attribute_has_it() -> None:
    """One machine has Enable and Enabled (libredfish, supermicro.rs)."""
    (body,) = sent(run_settings("supermicro_x13", "set-bios", {"iommu": "off", "sr_iov": "off"}))

    assert body["Attributes"] == {
        "IntelVTforDirectedI_O_VT_d__1E32": "Disable",
        "SR_IOVSupport_0047": "Disabled",
    }


def test_without_a_registry_a_value_is_spelled_as_the_one_that_shows() -> None:
    (body,) = sent(run_settings("dgx_h100", "set-bios", {"sr_iov": "off"}))

    assert body["Attributes"] == {"SRIOVEnable": "Disable", "SriovSupport": "Disabled"}


def test_without_a_registry_a_value_that_was_never_read_is_refused() -> None:
    raw = {"attribute:ApplicationProfile": "HPC"}

    reason, detail = refused(run_settings("dgx_h100", "set-bios", raw))

    assert (reason, "registry" in detail) == (Reason.NOT_OFFERED, True)


def test_secure_boot_is_not_switched_on_without_keys_and_nothing_else_is_sent() -> None:
    pinned = {"relaxed_ordering": "on", "secure_boot": "on"}

    reason, detail = refused(run_settings("supermicro_x13", "set-bios", pinned))

    assert (reason, "setup mode" in detail) == (Reason.PRECONDITION, True)


@pytest.mark.parametrize(
    ("name", "settings", "part"),
    [
        ("dgx_h100", {"smt": "off"}, "no attribute of this vendor is declared"),
        ("lenovo_xcc", {"numa_per_socket": "2"}, "declared are 1"),
        ("dell_idrac9", {"attribute:NoSuch": "1"}, "shows no such attribute"),
        ("dell_idrac9", {"attribute:ProcX2Apic": "On"}, "this machine has Enabled, Disabled"),
        ("dell_idrac9", {"attribute:SystemBiosVersion": "2.0"}, "cannot be written"),
        ("dell_idrac9", {"attribute:AcPwrRcvryUserDelay": "9999"}, "a number from 120 to 600"),
        ("dell_idrac9", {"attribute:AcPwrRcvryUserDelay": "soon"}, "a whole number"),
        ("gb200", {"attribute:Socket0Pcie6AdvertiseACS": "Off"}, "true or false"),
        ("hpe_ilo5", {"attribute:Sriov": "Disabled", "sr_iov": "on"}, "another setting"),
    ],
)
def test_a_setting_that_this_machine_cannot_have_is_refused_by_name(
    name: str, settings: dict[str, str], part: str
) -> None:
    assert part in refused(run_settings(name, "set-bios", settings))[1]


def test_a_machine_that_shows_no_attributes_yet_is_unknown() -> None:
    tree = read_settings_tree("dgx_h100")
    find_bios(tree)["Attributes"] = None

    reason, _ = refused(run_on(tree, "set-bios", {"iommu": "on"}))

    assert reason == Reason.VERSION_MISSING


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("BIOS.Setup.1-1", "Pending"),  # of another tool, which waits for a boot for ever
        ("Firmware Update: BIOS", "Starting"),
        ("Firmware Update: iDRAC", "Running"),
    ],
)
def test_an_open_task_is_waited_for_and_never_cleared(name: str, state: str) -> None:
    tree = read_settings_tree("dell_idrac9")
    tasks = tree["/redfish/v1"]["Tasks"]["@odata.id"]
    job = f"{tasks}/Tasks/JID_1"
    tree[tasks] = {"@odata.id": tasks, "Tasks": {"@odata.id": f"{tasks}/Tasks"}}
    tree[f"{tasks}/Tasks"] = {"Members": [{"@odata.id": job}], "Members@odata.count": 1}
    task = {"@odata.type": "#Task.v1_5_1.Task", "Name": name, "TaskState": state}
    tree[job] = {"@odata.id": job, **task}

    reason, detail = refused(run_on(tree, "set-bios", {"x2apic": "on"}))

    assert (reason, "JID_1" in detail) == (Reason.BUSY, True)


def test_lockdown_refuses_settings_before_anything_is_sent() -> None:
    tree = read_settings_tree("dell_idrac9")
    for path, resource in tree.items():
        if path.endswith("DellAttributes/iDRAC.Embedded.1"):
            resource["Attributes"]["Lockdown.1.SystemLockdown"] = "Enabled"

    reason, detail = refused(run_on(tree, "set-bios", {"x2apic": "on"}))

    assert (reason, "System Lockdown Mode" in detail) == (Reason.REFUSED, True)


def test_a_bmc_that_shows_no_such_setting_refuses_all_of_them() -> None:
    reason, detail = refused(run_settings("gb200", "set-bmc", {"ssh": "off", "snmp": "off"}))

    assert (reason, "SNMP" in detail) == (Reason.NOT_OFFERED, True)


def test_every_meaning_has_a_title_and_each_of_a_bios_a_vendor_that_declares_it() -> None:
    declared = {row.meaning for quirk in quirks.ALL.values() for row in quirk.meanings}

    assert [name for name, meaning in VOCABULARY.items() if not meaning.title] == []
    assert {n for n, meaning in VOCABULARY.items() if meaning.group == "bios"} <= declared


@pytest.mark.parametrize("quirk", quirks.ALL.values(), ids=lambda q: q.name)
def test_every_row_has_a_known_meaning_its_values_and_a_source(quirk: quirks.Quirk) -> None:
    for row in quirk.meanings:
        meaning = VOCABULARY[row.meaning]
        assert meaning.group in ATTRIBUTE_GROUPS
        assert set(row.values) <= set(meaning.values)
        assert row.source
        re.compile(row.attribute)


@pytest.mark.parametrize("name", TREES)
def test_the_account_policy_is_set_in_one_request_where_it_differs(name: str) -> None:
    shown = run_settings(name, "set-bmc", {"password_length": "14"})

    (write,) = shown["writes"]
    assert (write["method"], write["path"]) == ("PATCH", "/redfish/v1/AccountService")
    assert write["body"] == {"MinPasswordLength": 14}


def test_a_bmc_never_wants_longer_passwords_than_the_daemon_makes() -> None:
    rule = re.compile(VOCABULARY["password_length"].pattern)

    assert rule.fullmatch(str(PASSWORD_LENGTH))
    assert not rule.fullmatch(str(PASSWORD_LENGTH + 1))


def test_a_policy_that_a_bmc_does_not_show_is_refused_by_name() -> None:
    reason, detail = refused(run_settings("hpe_ilo5", "set-bmc", {"lockout_reset": "60"}))

    assert reason == Reason.NOT_OFFERED
    assert "AccountLockoutCounterResetAfter" in detail
