"""bluefield and bluefield_runtime, by real Ansible over real sshd: burned, configured, reset, set.

Stand-ins keep what is in flash apart from what runs, so that a play which only believes the
tool's last line does not pass here.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hosts import Host
from profiles import CONGESTION, NV_CONFIG, ROUTING
from role_lab import DPU, NIC_A, NIC_B, Ended, play, refresh, start, state_of
from role_lab import ended as verdicts

NEW, OLD = "32.44.1036", "32.43.1014"
FIRMWARE = {"version": NEW, "image": "fw.bin", "url": "file:///srv/fw.bin"}
BOTH = [NIC_A, NIC_B]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def as_new(furnished: list[Host]) -> None:
    for host in furnished:
        refresh(host)
        host.put("/srv/fw.bin", f"{NEW} MT_0000001010\n")
        host.put("/srv/bf.bfb", f"2.10.0-147_25.01 {NEW}\n")


def refused(ended: Ended, words: str) -> bool:
    return not ended.ok and words in ended.message


def cards(host: Host, *path: str) -> list[object]:
    found = []
    for name in BOTH:
        value = state_of(host)["cards"][name]
        for step in path:
            value = value[step]
        found.append(value)
    return found


@pytest.mark.long
def test_firmware_is_burned_once_and_runs_after_the_reset_that_was_asked_for(
    furnished: list[Host], tmp_path: Path
):
    good, wrong, mute = furnished
    refresh(mute, faults={"flint_garbled": True})
    calls = {
        good: {"devices": BOTH, **FIRMWARE},
        wrong: {"devices": [DPU], **FIRMWARE},
        mute: {"devices": BOTH, **FIRMWARE},
    }

    tried = play("nic_firmware", {good: calls[good]}, tmp_path, check=True)
    burned_by_trying = state_of(good)["burns"]
    first = play("nic_firmware", calls, tmp_path)
    second = play("nic_firmware", {good: calls[good]}, tmp_path)
    waiting = state_of(good)["cards"]
    refresh(wrong, faults={"reset_too_weak": True}, cards=waiting, cold=False)
    reset = play("nic_reset", {h: {"devices": BOTH} for h in (good, wrong)}, tmp_path)

    assert tried["host-1"].ok
    assert burned_by_trying == 0
    assert first["host-1"].result["burned"] == dict.fromkeys(BOTH, NEW)
    assert first["host-1"].result["running"] == dict.fromkeys(BOTH, OLD)
    assert first["host-1"].result["waiting"] == BOTH
    assert (second["host-1"].changed, state_of(good)["burns"]) == (0, 2)
    assert reset["host-1"].result["running"] == dict.fromkeys(BOTH, NEW)
    assert cards(good, "running") == [NEW, NEW]
    assert refused(reset["host-2"], f"after mlxfwreset {NIC_A}, {NIC_B} still wait for a stronger")
    assert refused(first["host-2"], "has PSID MT_0000000884, the image is for MT_0000001010")
    assert refused(first["host-3"], "flint printed no version")
    assert [state_of(h)["burns"] for h in (wrong, mute)] == [0, 0]


@pytest.mark.long
def test_firmware_that_is_there_is_burned_again_where_that_is_asked_for(
    furnished: list[Host], tmp_path: Path
):
    host = furnished[0]
    call = {"devices": BOTH, **FIRMWARE}
    play("nic_firmware", {host: call}, tmp_path)

    again = play("nic_firmware", {host: {**call, "again": True}}, tmp_path)

    assert again["host-1"].ok
    assert state_of(host)["burns"] == 4


def test_a_profile_is_current_after_a_cold_boot_and_a_wrong_card_is_left_alone(
    furnished: list[Host], tmp_path: Path
):
    good, wrong, torn = furnished
    profile = {"devices": BOTH, "parameters": NV_CONFIG}
    calls = {
        good: {**profile, "device_type": "BlueField3", "mode": "nic"},
        wrong: {**profile, "device_type": "ConnectX7"},
        torn: {**profile, "mode": "dpu"},
    }
    path = ("config", "INTERNAL_CPU_OFFLOAD_ENGINE")

    tried = play("nic_config", {good: calls[good]}, tmp_path, check=True)
    untouched = cards(good, *path, "next_value")
    first = play("nic_config", calls, tmp_path)
    warm = cards(good, *path, "current_value")
    good.power_off()
    good.boot()
    second = play("nic_config", {good: calls[good]}, tmp_path)

    assert tried["host-1"].changed
    assert untouched == ["ENABLED(0)", "ENABLED(0)"]
    assert first["host-1"].result["next_boot"] == dict.fromkeys(BOTH, NV_CONFIG)
    assert first["host-1"].result["waiting"] == BOTH
    assert warm == untouched
    assert second["host-1"].changed == 0
    assert second["host-1"].result["current"] == dict.fromkeys(BOTH, NV_CONFIG)
    assert second["host-1"].result["waiting"] == []
    assert refused(first["host-2"], "is a BlueField3, not a ConnectX7")
    reason = "mode dpu and the profile differ in INTERNAL_CPU_OFFLOAD_ENGINE"
    assert refused(first["host-3"], reason)
    assert cards(wrong, *path, "next_value") == untouched
    assert cards(torn, *path, "next_value") == untouched


@pytest.mark.long
def test_a_bundle_is_pushed_over_rshim_and_read_back_from_the_card(
    furnished: list[Host], tmp_path: Path
):
    good, failing, _ = furnished
    refresh(failing, faults={"bfb_fails": True})
    bundle = {
        "devices": [DPU],
        "version": "2.10.0-147_25.01",
        "nic_version": NEW,
        "image": "bf.bfb",
        "url": "file:///srv/bf.bfb",
        "release_command": ["dpu-release", DPU],
    }
    calls = {good: bundle, failing: bundle}

    tried = play("bluefield_bundle", {good: bundle}, tmp_path, check=True)
    untouched = state_of(good)["cards"][DPU]["flash"]
    first = play("bluefield_bundle", calls, tmp_path)
    second = play("bluefield_bundle", {good: bundle}, tmp_path)

    assert tried["host-1"].changed
    assert untouched == OLD
    assert first["host-1"].ok
    assert state_of(good)["cards"][DPU]["bundle"].startswith("bf-bundle-2.10.0-147_25.01_")
    assert first["host-1"].result["waiting"] == [DPU]
    assert second["host-1"].changed == 0
    assert refused(first["host-2"], "the card reports: Failed to update NIC firmware")


@pytest.mark.long
def test_run_time_settings_are_lost_at_a_boot_and_applied_and_read_back_again(
    furnished: list[Host], tmp_path: Path
):
    good, forgetful, _ = furnished
    refresh(forgetful, faults={"dms_forgets": True})
    setting = {"devices": BOTH, "routing": ROUTING, "congestion": CONGESTION}
    trust = "/interfaces/interface[name=enp1s0np0]/nvidia/qos/config/trust-mode"

    first = play("bluefield_runtime", {good: setting, forgetful: setting}, tmp_path)
    second = play("bluefield_runtime", {good: setting}, tmp_path)
    seen = good.run("mlnx_qos -i enp2s0np0").stdout
    boot = good.boot_id
    good.run("shutdown -r now")
    good.wait(not_boot=boot)
    lost = cards(good, "runtime")
    tried = play("bluefield_runtime", {good: setting}, tmp_path, check=True)
    unset = cards(good, "runtime")

    assert first["host-1"].result["interfaces"]["enp1s0np0"][trust] == "dscp"
    assert first["host-1"].result["algorithm"] == ["mlx5_0", "mlx5_1"]
    assert second["host-1"].changed == 0
    assert lost == unset == [{}, {}]
    assert tried["host-1"].changed
    assert "Priority trust state: dscp" in seen
    assert not good.runs("dms/dmsd")
    assert refused(first["host-2"], "is still pcp")


@pytest.mark.long
def test_a_host_that_is_gone_slow_or_loses_power_in_a_burn_ends_as_its_own(
    furnished: list[Host], tmp_path: Path
):
    slow, gone, cut = furnished
    refresh(slow, faults={"flint_s": 4})
    refresh(cut, faults={"flint_s": 60})
    gone.power_off()
    call = {"devices": [NIC_A], **FIRMWARE}

    process, events = start("nic_firmware", dict.fromkeys(furnished, call), tmp_path)
    while not cut.runs("-y burn") and process.poll() is None:
        time.sleep(0.2)
    locked = cut.run("flock -n /run/lock/provisioner-tools true", check=False).returncode
    cut.power_off()
    out, _ = process.communicate(timeout=240)
    found = verdicts(events, out.decode(), [h.name for h in furnished])
    gone.boot()
    cut.boot()

    assert locked == 1
    assert found["host-1"].ok
    assert found["host-1"].result["burned"] == {NIC_A: NEW}
    assert [found[n].unreachable for n in ("host-2", "host-3")] == [True, True]
    assert state_of(cut)["burns"] == 0
