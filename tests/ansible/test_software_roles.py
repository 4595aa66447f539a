"""gpu_driver, doca_host, nccl, storage_client and checks, by real Ansible over real sshd.

One run serves three hosts, each in another case: what happens on one must not show on another.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import Host
from role_lab import Ended, play, refresh, state_of, versions_of

NEW = "550.90.07"
DRIVER = {"packages": {"host.driver": NEW, "host.fabric_manager": NEW}}
OTHERS = {
    "packages": {
        "host.doca": "2.10.0-0.5.3",
        "host.spcx_cc": "2.10.0",
        "host.nccl": "2.29.2-1+cuda13.0",
        "host.storage_client": "beegfs-client=7.4.6",
    }
}
MIXED = {"packages": {"host.driver": NEW, "host.fabric_manager": "550.54.15"}}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def as_new(furnished: list[Host]) -> None:
    for host in furnished:
        refresh(host)


def truth(hosts: list[Host]) -> list[object]:
    return [(versions_of(h), state_of(h), h.run("ls -R /etc/modules-load.d").stdout) for h in hosts]


@pytest.mark.long
def test_pinned_software_is_installed_once_and_runs_after_a_reboot(
    furnished: list[Host], tmp_path: Path
):
    calls = dict(zip(furnished, (DRIVER, OTHERS, MIXED), strict=True))
    before = truth(furnished)

    tried = play("host_software", calls, tmp_path, check=True)
    untouched = truth(furnished)
    first = play("host_software", calls, tmp_path)
    driver, others, _ = furnished
    boot = driver.boot_id
    driver.run("shutdown -r now")
    driver.wait(not_boot=boot)
    second = play("host_software", {h: calls[h] for h in (driver, others)}, tmp_path)

    assert untouched == before
    assert [tried[h.name].ok for h in furnished] == [True, True, False]
    assert tried["host-1"].changed
    assert tried["host-2"].changed
    assert first["host-1"].result == {
        "installed": {"host.driver": NEW, "host.fabric_manager": NEW},
        "removed": ["nvidia-driver-535-server", "nvidia-fabricmanager-535"],
        "configured": [],
        "reboot_required": True,
    }
    assert first["host-2"].result["installed"] == OTHERS["packages"]
    assert [second[n].changed for n in ("host-1", "host-2")] == [0, 0]
    assert second["host-1"].result["reboot_required"] is False
    assert versions_of(driver)["nvidia-fabricmanager-550"].startswith(NEW)
    assert "nvidia-fabricmanager-535" not in versions_of(driver)
    assert "nvidia-peermem" in state_of(driver)["modules"]
    assert {"nvidia-fabricmanager", "nvidia-persistenced"} <= set(state_of(driver)["units_running"])
    assert versions_of(others)["doca-ofed"]
    assert refused(first["host-3"], "does not start beside")
    assert versions_of(furnished[2]) == versions_of_before(before[2])


def versions_of_before(entry: object) -> object:
    assert isinstance(entry, tuple)
    return entry[0]


def refused(ended: Ended, words: str) -> bool:
    return not ended.ok and words in ended.message


def test_what_would_break_a_host_is_refused_with_nothing_changed(
    furnished: list[Host], tmp_path: Path
):
    refresh(furnished[0], ofed="MLNX_OFED_LINUX-23.10-0.5.5.0")
    before = truth(furnished)
    cases = (
        {"packages": {"host.doca": "2.10.0-0.5.3"}},
        {"packages": {"host.fabric_manager": NEW}},
        {"packages": {"host.nccl": "2.29.2"}},
    )

    found = play("host_software", dict(zip(furnished, cases, strict=True)), tmp_path)

    assert refused(found["host-1"], "MLNX_OFED_LINUX-23.10-0.5.5.0 is installed")
    assert refused(found["host-2"], "these must have one version")
    assert refused(found["host-3"], "may be any of 2.29.2-1+cuda13.0, 2.29.2-1+cuda12.9")
    assert truth(furnished) == before


@pytest.mark.long
def test_migration_from_ofed_a_dependency_and_a_full_disk_each_end_as_their_own_hosts(
    furnished: list[Host], tmp_path: Path
):
    migrated, bound, full = furnished
    refresh(migrated, ofed="MLNX_OFED_LINUX-23.10-0.5.5.0")
    bound.run("apt-get -qq update && apt-get -qq -y install site-agent")
    full.run("dd if=/dev/zero of=/srv/fill bs=64k 2>/dev/null; true")
    before = [versions_of(bound), versions_of(full)]
    calls = {
        migrated: {"packages": {"host.doca": "2.10.0-0.5.3"}, "ofed_removal_allowed": True},
        bound: {"packages": {"host.nccl": "2.29.2-1+cuda13.0"}},
        full: DRIVER,
    }

    found = play("host_software", calls, tmp_path)
    full.run("rm /srv/fill")

    assert found["host-1"].ok
    assert (state_of(migrated)["ofed"], state_of(migrated)["ofed_removals"]) == ("", 1)
    assert versions_of(migrated)["doca-host"] == "2.10.0-0.5.3"
    assert refused(found["host-2"], "apt would remove site-agent")
    assert not found["host-3"].ok
    assert "pace" in found["host-3"].message
    assert [versions_of(bound), versions_of(full)] == before


@pytest.mark.long
def test_the_pinned_stack_and_no_newer_one_is_installed_after_nvidias_uninstall(
    furnished: list[Host], tmp_path: Path
):
    moved, unbuilt, inbox = furnished
    refresh(unbuilt, dkms=["mlnx-ofed-kernel/24.10.OFED.24.10.0.7.0.1: added"])
    refresh(inbox, inbox=["mlx5_core"])
    older = {"packages": {"host.doca": "2.9.0-0.4.7"}}
    newer = {"host.doca": "2.10.0-0.5.3", "host.doca_ofed": "doca-ofed=2.10.0-0.5.3"}
    torn = {"packages": {**newer, "host.doca_ofed": "doca-ofed=2.9.0-0.4.7"}}

    first = play("host_software", dict.fromkeys(furnished, older), tmp_path)
    pinned = versions_of(moved)["doca-ofed"]
    refused_call = play("host_software", {moved: torn}, tmp_path)["host-1"]
    kernel = moved.run("uname -r").stdout.strip()
    refresh_dkms = f"nvidia/535.129.03, {kernel}, x86_64: installed"
    moved.run(f'sed -i \'1s|^{{|{{"dkms": ["{refresh_dkms}"], |\' /var/lib/standins/state.json')
    second = play("host_software", {moved: {"packages": newer}}, tmp_path)["host-1"]
    third = play("host_software", {moved: {"packages": newer}}, tmp_path)["host-1"]

    assert first["host-1"].ok, first["host-1"].message
    assert pinned == "2.9.0-0.4.7"
    assert "DKMS has not built mlnx-ofed-kernel for" in first["host-2"].message
    assert "mlx5_core would be the kernel's own" in first["host-3"].message
    assert "are not one release" in refused_call.message
    assert second.ok, second.message
    assert second.result["installed"] == newer
    assert second.result["removed"] == ["doca-host", "doca-ofed"]
    assert state_of(moved)["ofed_removals"] == 1
    assert [run.split()[:3] for run in state_of(moved)["dkms_runs"]] == [
        ["build", "-m", "nvidia"],
        ["install", "-m", "nvidia"],
    ]
    assert (third.ok, third.changed) == (True, 0)


@pytest.mark.long
def test_a_storage_client_is_whole_for_the_next_kernel_or_refused_by_name(
    furnished: list[Host], tmp_path: Path
):
    foreign, unbuilt, whole = furnished
    refresh(unbuilt, unbuilt=["lustre"])
    lustre = {"packages": {"host.storage_client": "lustre-client-utils=2.15.5"}}
    scale = {"packages": {"host.storage_client": "gpfs.base=5.2.1-0"}}
    weka = {"packages": {"host.storage_client": "weka=4.3.1"}}

    first = play("host_software", {foreign: scale, unbuilt: lustre, whole: lustre}, tmp_path)
    second = play("host_software", {foreign: weka}, tmp_path)

    assert refused(first["host-1"], "gpfs.base is not installed by a play: IBM Storage Scale")
    assert refused(first["host-2"], "there is no module lustre for")
    assert first["host-3"].result["installed"] == lustre["packages"]
    assert refused(second["host-1"], "WEKA's own cluster installs its agent")


@pytest.mark.long
def test_the_tools_of_the_checks_are_installed_and_running(furnished: list[Host], tmp_path: Path):
    wanted = {"packages": {"datacenter-gpu-manager-4-core": "4.2.3"}, "services": ["nvidia-dcgm"]}
    loose = {"packages": {"dcgm": "*"}}

    tried = play("check_tools", {furnished[0]: wanted}, tmp_path, check=True)
    untouched = state_of(furnished[0])
    first = play("check_tools", {furnished[0]: wanted, furnished[1]: loose}, tmp_path)
    second = play("check_tools", {furnished[0]: wanted}, tmp_path)

    assert tried["host-1"].changed
    assert not untouched["persistence"]
    assert first["host-1"].result == {"installed": wanted["packages"]}
    assert state_of(furnished[0])["persistence"]
    assert "nvidia-dcgm" in state_of(furnished[0])["units_running"]
    assert (second["host-1"].ok, second["host-1"].changed) == (True, 0)
    assert refused(first["host-2"], "every package of the checks needs a pinned version")
