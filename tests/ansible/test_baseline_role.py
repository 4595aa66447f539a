"""host_baseline by real Ansible over real sshd: set, read back, kept for the next boot, verified.

The look of the daemon runs on the same hosts: the set that it names and the settings that the
role reads back are two readings of one truth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosts import Host
from role_lab import NIC_A, NIC_B, play, refresh, state_of

from provisioner.model.cohort import Evidence
from provisioner.planning.intake import host_tools as host_look

SETTINGS = {
    "rails": "on",
    "roce_trust": "dscp",
    "roce_pfc": "00010000",
    "roce_ecn": "3",
    "roce_cma_tos": "106",
    "relaxed_ordering": "on",
    "acs": "off",
    "hugepages_2m": "1024",
    "fabric_manager": "nvswitch",
    "service:nvidia-dcgm": "on",
    "package:datacenter-gpu-manager-4-core": "1:4.2.3-2",
}
OWN, LEAF = "172.0.0.0", "172.0.0.1"
OTHER_LEAF = "172.0.1.1"  # beyond the rail's own link: reached by the rule of the rail alone
FILES = {
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
    **{
        f"/sys/class/net/enp{n}s0np0/ecn/{end}/enable/{p}": "0"
        for n in (1, 2)
        for end in ("roce_np", "roce_rp")
        for p in range(8)
    },
    **{f"/sys/kernel/config/rdma_cm/mlx5_{n}/ports/1/default_roce_tos": "0" for n in (0, 1)},
}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def as_new(furnished: list[Host]) -> None:
    for host in furnished:
        refresh(host)
        lines = [
            f"mkdir -p {path.rpartition('/')[0]} && echo {text} >{path}"
            for path, text in FILES.items()
        ]
        for number, card in enumerate((NIC_A, NIC_B)):
            place = f"/sys/class/infiniband/mlx5_{number}"
            lines.append(f"mkdir -p {place} && ln -sfn /sys/bus/pci/devices/{card} {place}/device")
        lines.append("mkdir -p /etc/netplan; rm -f /etc/netplan/70* /usr/local/sbin/provisioner-*")
        lines.append("ip rule delete priority 3000; ip address delete 172.0.0.0/31 dev eth0; true")
        host.run("; ".join(lines))


def call(host: Host, **more: Any) -> dict[str, Any]:
    """The variables that the daemon gives, with the host's one interface as its rail."""
    (interface,) = json.loads(host.run("ip -j link show eth0").stdout)
    rail = {
        "rail": 0, "mac": interface["address"], "address": f"{OWN}/31", "gateway": LEAF,
        "mtu": interface["mtu"], "table": 100, "priority": 3000, "networks": ["172.0.0.0/8"],
    }  # fmt: skip
    packages = {"datacenter-gpu-manager-4-core": "1:4.2.3-2"}
    return {
        "settings": SETTINGS, "packages": packages, "devices": [NIC_A, NIC_B], "rails": [rail],
        "netplan": {"rail0": {"addresses": [f"{OWN}/31"]}}, **more,
    }  # fmt: skip


def named(host: Host) -> str | None:
    """The set that the daemon's look finds in force."""
    sets = {"host.baseline": {"roce-1": SETTINGS}}
    look = host_look.build_look(sets, [(OWN, OTHER_LEAF)])
    assert look is not None
    ran = host.run(look[1])
    evidence = Evidence(source="", exit_code=ran.returncode, text=ran.stdout)
    mtu = int(json.loads(host.run("ip -j link show eth0").stdout)[0]["mtu"])
    (component,) = host_look.read_sets(evidence, sets, [NIC_A, NIC_B], mtu)
    return component.version


@pytest.mark.long
def test_a_baseline_is_set_read_back_and_kept_for_the_next_boot(
    furnished: list[Host], tmp_path: Path
) -> None:
    host, bare, deaf = furnished
    refresh(deaf, faults={"qos_forgets": True})
    alone = {"devices": [NIC_A], "rails": [], "packages": {}}
    without = {"settings": {"fabric_manager": "nvswitch"}, **alone}
    refresh(bare, fabric_state="[N/A]", units_running=["nvidia-fabricmanager"])

    tried = play("host_baseline", {host: call(host)}, tmp_path, check=True)
    untouched = named(host)
    calls = {
        host: call(host),
        bare: call(bare, **without),
        deaf: call(deaf, settings={"roce_trust": "dscp"}, **alone),
    }
    first = play("host_baseline", calls, tmp_path)
    second = play("host_baseline", {host: call(host)}, tmp_path)

    assert tried["host-1"].ok, tried["host-1"].message
    assert untouched == "none"
    assert first["host-1"].ok, first["host-1"].message
    assert first["host-1"].result["settings"] == SETTINGS
    assert named(host) == "roce-1"
    assert second["host-1"].changed == 0
    assert "provisioner-baseline.service" in str(state_of(host)["units_enabled"]) or (
        "provisioner-baseline" in state_of(host)["units_enabled"]
    )
    assert "mlnx_qos -i enp1s0np0 --trust=dscp" in host.get("/usr/local/sbin/provisioner-baseline")
    assert "nvidia-fabricmanager" not in state_of(bare)["units_running"]
    assert not first["host-3"].ok
    assert "roce_trust is pcp, not dscp" in first["host-3"].message


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("mlnx_qos -i enp2s0np0 --trust=pcp", "roce_trust"),
        ("setpci -s 0000:00:01.0 ECAP_ACS+6.w=001d", "acs"),
        ("systemctl disable --now nvidia-dcgm", "service:nvidia-dcgm"),
        ("ip rule delete priority 3000", ""),
        ("dpkg --purge --force-depends datacenter-gpu-manager-4-core", ""),
        ("rm /usr/local/sbin/provisioner-baseline", ""),
    ],
)
@pytest.mark.long
def test_verify_alone_fails_on_a_host_that_differs(
    furnished: list[Host], tmp_path: Path, damage: str, words: str
) -> None:
    host = furnished[0]
    play("host_baseline", {host: call(host)}, tmp_path)
    host.run(damage)

    verified = play("host_baseline", {host: call(host, phases=["verify"])}, tmp_path)

    assert not verified["host-1"].ok
    assert damage.startswith("rm ") or named(host) == "none"


def test_verify_alone_fails_on_hosts_where_nothing_was_done(
    furnished: list[Host], tmp_path: Path
) -> None:
    host, second, third = furnished
    only = {"devices": [NIC_A, NIC_B], "rails": [], "packages": {}}
    calls = {
        host: call(host, phases=["verify"]),
        second: call(second, phases=["verify"], settings={"rails": "on"}, packages={}),
        third: call(third, phases=["verify"], **{**only, "settings": {"roce_trust": "dscp"}}),
    }

    ended = play("host_baseline", calls, tmp_path)

    assert [ended[f"host-{n}"].ok for n in (1, 2, 3)] == [False] * 3


@pytest.mark.long
def test_a_module_of_a_package_is_there_for_the_next_kernel(furnished: list[Host], tmp_path: Path):
    whole, unbuilt = furnished[:2]
    refresh(unbuilt, unbuilt=["gdrdrv"])
    name = {"package:gdrdrv-dkms": "2.4.4-1", "hugepages_2m": "1024"}
    more = {"settings": name, "packages": {"gdrdrv-dkms": "2.4.4-1"}}

    ended = play("host_baseline", {h: call(h, **more) for h in (whole, unbuilt)}, tmp_path)

    assert ended["host-1"].ok, ended["host-1"].message
    assert "there is no module gdrdrv for" in ended["host-2"].message
