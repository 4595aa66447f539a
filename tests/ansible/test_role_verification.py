"""`verify` alone passes on a right host and fails on a wrong one: one mutation for every role.

The roles of switches have theirs in `test_switch_roles.py`, host_baseline in
`test_baseline_role.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import Host
from profiles import CONGESTION, ROUTING
from role_lab import ANSIBLE, DPU, NIC_A, NIC_B, play, refresh

DRIVER, NCCL = "535.129.03", "2.21.5-1+cuda12.4"
BOTH = [NIC_A, NIC_B]
DPKG = "cd /srv/mirror && dpkg --force-downgrade -i "
WRITE_NVME = (
    "echo MTFDKCC1T9TGP-1BK1DABYY {revision} >{file} && nvme fw-download /dev/{drive} --fw={file}"
    " && nvme fw-commit /dev/{drive} --slot=3 --action=1"
)


@dataclass(frozen=True)
class Case:
    """One role, how a host becomes right, and the damage that its verification must name."""

    role: str
    play: str
    variables: dict[str, Any]
    damage: str
    message: str
    furnish: str = "true"


FAST = (
    (
        Case(
            "nccl", "host_software", {"packages": {"host.nccl": NCCL}},
            DPKG + "libnccl2_2.29.2-1+cuda13.0.deb", f"libnccl2 is 2.29.2-1+cuda13.0, not {NCCL}",
        ),
        Case(
            "storage_client", "host_software",
            {"packages": {"host.storage_client": "beegfs-client=7.4.5"}},
            DPKG + "beegfs-client_7.4.6.deb", "beegfs-client is 7.4.6, not 7.4.5",
        ),
        Case(
            "gpu_driver", "host_software",
            {"packages": {"host.driver": DRIVER, "host.fabric_manager": DRIVER}},
            "dpkg --purge nvidia-fabricmanager-535", "nvidia-fabricmanager-535 is not installed",
        ),
    ),
    (
        Case(
            "checks", "check_tools",
            {"packages": {"datacenter-gpu-manager-4-core": "4.2.3"}, "services": ["nvidia-dcgm"]},
            "systemctl disable --now nvidia-dcgm", "",
            DPKG + "datacenter-gpu-manager-4-core*.deb && nvidia-smi -pm 1"
            " && systemctl enable --now nvidia-dcgm",
        ),
        Case(
            "checks", "check_tools",
            {"packages": {"datacenter-gpu-manager-4-core": "4.2.3"}, "persistence": False},
            "dpkg --purge datacenter-gpu-manager-4-core",
            "datacenter-gpu-manager-4-core is not installed",
            DPKG + "datacenter-gpu-manager-4-core*.deb",
        ),
    ),
    (
        Case(
            "nvme_drives", "drive_firmware",
            {
                "drives": ["032510B842C5", "132510B824CD"], "model": "MTFDKCC1T9TGP-1BK1DABYY",
                "version": "E3MQ005", "image": "e3mq005.ubi",
            },
            WRITE_NVME.format(file="/tmp/old", revision="E3MQ001", drive="nvme1"),
            "132510B824CD runs E3MQ001, and E3MQ001 after a reset, not E3MQ005",
            " && ".join(
                WRITE_NVME.format(file="/tmp/new", revision="E3MQ005", drive=d)
                for d in ("nvme0", "nvme1")
            ),
        ),
    ),
)  # fmt: skip
SLOW = (
    (
        Case(
            "bluefield", "nic_config", {"devices": BOTH, "parameters": {"SRIOV_EN": "0"}},
            f"mlxconfig -y -d {NIC_B} set SRIOV_EN=1", "",
        ),
    ),
    (
        Case(
            "doca_host", "host_software", {"packages": {"host.doca": "2.10.0-0.5.3"}},
            "dpkg --purge doca-host", "doca-host is not installed",
            DPKG + "doca-host_2.10.0-0.5.3.deb doca-ofed_2.10.0-0.5.3.deb",
        ),
        Case(
            "host_kernel", "host_software",
            {"packages": {"host.kernel": "6.8.0-57-generic=6.8.0-57.59"}},
            "apt-mark unhold linux-image-generic", "linux-image-generic is not on hold",
            DPKG + "linux-*.deb && apt-mark hold 'linux-*' && mkdir -p /etc/default/grub.d && echo"
            " 'GRUB_DEFAULT=gnulinux-advanced-3f6c0d6e-0000-4000-8000-000000000001>gnulinux-"
            "6.8.0-57-generic-advanced-3f6c0d6e-0000-4000-8000-000000000001'"
            " >/etc/default/grub.d/90-provisioner-kernel.cfg && update-grub",
        ),
    ),
    (
        Case(
            "bluefield", "bluefield_bundle",
            {
                "devices": [DPU], "version": "2.9.0-90", "nic_version": "32.43.1014",
                "image": "bf.bfb", "url": "file:///srv/bf.bfb",
                "release_command": ["dpu-release", DPU],
            },
            "sed -i s/bf-bundle-2.9.0-90/bf-bundle-2.8.0-98/g /var/lib/standins/state.json", "",
        ),
    ),
)  # fmt: skip
RUNTIME = {"devices": BOTH, "routing": ROUTING, "congestion": CONGESTION}
ELSEWHERE = {"bluefield_runtime", "host_baseline", "switch_cumulus", "switch_sonic"}

pytestmark = pytest.mark.slow


def test_every_role_has_such_a_test():
    here = {case.role for group in (*FAST, *SLOW) for case in group}

    assert {path.name for path in (ANSIBLE / "roles").iterdir()} == here | ELSEWHERE


def verify(group: tuple[Case, ...], hosts: list[Host], folder: Path) -> None:
    hosts_of = dict(zip(hosts, group, strict=False))
    for host, case in hosts_of.items():
        refresh(host)
        host.run(case.furnish)
    calls = {host: {**case.variables, "phases": ["verify"]} for host, case in hosts_of.items()}

    right = play(group[0].play, calls, folder)
    for host, case in hosts_of.items():
        host.run(case.damage)
    wrong = play(group[0].play, calls, folder)

    for host, case in hosts_of.items():
        assert right[host.name].ok, (case.role, right[host.name].message)
        assert right[host.name].changed == 0
        assert not wrong[host.name].ok, case.role
        assert case.message in wrong[host.name].message


@pytest.mark.parametrize("group", FAST, ids=lambda g: "-".join(c.role for c in g))
def test_verify_alone_fails_on_a_wrong_host(
    furnished: list[Host], tmp_path: Path, group: tuple[Case, ...]
):
    verify(group, furnished, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("group", SLOW, ids=lambda g: g[0].play)
def test_verify_alone_fails_on_a_wrong_card_or_stack(
    furnished: list[Host], tmp_path: Path, group: tuple[Case, ...]
):
    verify(group, furnished, tmp_path)


@pytest.mark.long
def test_verify_alone_fails_where_run_time_settings_were_lost(
    furnished: list[Host], tmp_path: Path
):
    host = furnished[0]
    refresh(host)
    play("bluefield_runtime", {host: RUNTIME}, tmp_path)
    call = {host: {**RUNTIME, "phases": ["verify"]}}

    right = play("bluefield_runtime", call, tmp_path)
    boot = host.boot_id
    host.run("shutdown -r now")
    host.wait(not_boot=boot)
    wrong = play("bluefield_runtime", call, tmp_path)

    assert right["host-1"].ok, right["host-1"].message
    assert not wrong["host-1"].ok
