"""The simulated hosts, asked in-band as docs/in-band.md says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from provisioner.checks.roce_runtime import ROCE_RUNTIME
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.integrations.sim.site.control import list_guests
from provisioner.integrations.sim.site.site import Site

NODE = "su0-n00"
COMMANDS = {
    "boot_id": "cat /proc/sys/kernel/random/boot_id",
    "gpus": "nvidia-smi --query-gpu=index,uuid,serial,name,pci.bus_id,vbios_version,driver_version"
    " --format=csv,noheader",
    "pcie": "nvidia-smi --query-gpu=index,pci.bus_id,pcie.link.gen.current,pcie.link.gen.max,"
    "pcie.link.width.current,pcie.link.width.max --format=csv,noheader",
    "ecc": "nvidia-smi --query-gpu=index,ecc.mode.current,ecc.errors.uncorrected.volatile.total,"
    "ecc.errors.corrected.volatile.dram --format=csv,noheader",
    "remap": "nvidia-smi --query-remapped-rows=gpu_uuid,remapped_rows.correctable,"
    "remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure"
    " --format=csv,noheader",
    "packages": "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' "
    "'nvidia-fabricmanager*' 'doca-host*' 'doca-spcx-cc*' 'nvlsm*' 'libnccl2*' "
    "'beegfs-client*' 'gpfs.base*' 'lustre-client-utils*' 'vastnfs-utils*'",
    "nics": "mlxfwmanager --query-format xml",
    "runtime": ROCE_RUNTIME.line,
    "nic_config": "mlxconfig -e -j /dev/stdout q",
    "nvlink": "nvidia-smi nvlink -s",
    "kernel_log": "dmesg --time-format iso",
    "dcgm": "dcgmi diag -r 2 -j",
    "nvbandwidth": "nvbandwidth -j -i 10 -t host_to_device_memcpy_ce device_to_host_memcpy_ce",
    "nccl": "all_reduce_perf -b 16G -e 16G -f 2 -g 8 -c 1",
    "services": "systemctl is-active nvidia-fabricmanager nvidia-persistenced",
    "rdma_links": "grep -H . /sys/class/infiniband/*/ports/1/state "
    "/sys/class/infiniband/*/ports/1/rate /sys/class/infiniband/*/ports/1/link_layer",
    "lldp": "lldpctl -f json",
}


@pytest.fixture
def site() -> Site:
    return Site(nodes=2, clock=HandClock())


def run(site: Site, play: str, variables: dict[str, Any], host: str = NODE) -> dict[str, Any]:
    return asyncio.run(site.inband.run(play, host, variables))


def ask(site: Site, name: str, timeout_s: float = 3600.0) -> dict[str, Any]:
    """One command's {rc, stdout, stderr}."""
    entry = {"name": name, "command": COMMANDS[name], "timeout_s": timeout_s}
    answer = run(site, "run_commands", {"commands": [entry]})
    assert answer["status"] == "ok", answer
    return dict(answer["facts"]["commands"][name])


def rows(site: Site, name: str) -> list[list[str]]:
    return [line.split(", ") for line in ask(site, name)["stdout"].splitlines()]


def supernics(site: Site) -> list[str]:
    return [d.pci for d in site.machines[NODE].devices.values() if d.kind == "nic"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_healthy_host_answers_every_documented_command(site: Site, name: str) -> None:
    answer = ask(site, name)

    assert answer["rc"] == 0
    assert answer["stdout"]


def test_a_command_that_nobody_installed_is_not_found(site: Site) -> None:
    entry = {"name": "x", "command": "sl --fast", "timeout_s": 5}
    answer = run(site, "run_commands", {"commands": [entry]})

    assert answer["facts"]["commands"]["x"]["rc"] == 127


def test_a_command_longer_than_its_limit_does_not_end(site: Site) -> None:
    assert ask(site, "dcgm", timeout_s=10.0)["rc"] is None


def test_gpus_are_listed_with_their_serials_firmware_and_driver(site: Site) -> None:
    machine = site.machines[NODE]
    found = rows(site, "gpus")

    assert [row[2] for row in found] == [
        d.serial for d in machine.devices.values() if d.kind == "gpu"
    ]
    assert {row[5] for row in found} == {"96.00.68.00.01"}
    assert {row[6] for row in found} == {"535.129.03"}


def test_a_gpu_that_is_dead_is_not_listed_and_breaks_the_collective(site: Site) -> None:
    site.machines[NODE].devices["GPU_SXM_5"].present = False

    assert len(rows(site, "gpus")) == 7
    assert ask(site, "nccl")["rc"] == 3


def test_dcgm_passes_a_link_at_gen4_but_its_bandwidth_tells(site: Site) -> None:
    site.machines[NODE].devices["GPU_SXM_2"].link_gen = 4
    matrix = json.loads(ask(site, "nvbandwidth")["stdout"])["nvbandwidth"]["testcases"][0]
    speeds = [float(cell) for cell in matrix["bandwidth_matrix"][0]]

    assert rows(site, "pcie")[1][2:4] == ["4", "5"]
    assert ask(site, "dcgm")["rc"] == 0
    assert [n for n, speed in enumerate(speeds) if speed < 48] == [1]


def test_a_driver_is_loaded_only_after_the_reboot(site: Site) -> None:
    wanted = {"host.driver": "550.90.07", "host.fabric_manager": "550.90.07"}
    first = run(site, "host_software", {"packages": wanted})
    before = {row[6] for row in rows(site, "gpus")}
    services = ask(site, "services")["stdout"].split()
    boot = ask(site, "boot_id")["stdout"].strip()
    restart = {"name": "reboot", "command": "shutdown -r now", "timeout_s": 60.0}
    gone = run(site, "run_commands", {"commands": [restart]})
    site.clock.move(1800.0)

    assert first["facts"] == {"installed": wanted, "reboot_required": True}
    assert (before, services) == ({"535.129.03"}, ["failed", "active"])
    assert gone["status"] == "unreachable"
    assert ask(site, "boot_id")["stdout"].strip() != boot
    assert {row[6] for row in rows(site, "gpus")} == {"550.90.07"}
    assert ask(site, "services")["stdout"].split() == ["active", "active"]


def test_a_second_run_of_a_play_changes_nothing(site: Site) -> None:
    wanted = {"packages": {"host.doca": "2.10.0-0.5.3"}}
    run(site, "host_software", wanted)
    before = len(site.machines[NODE].log)
    again = run(site, "host_software", wanted)

    assert again["facts"]["installed"] == wanted["packages"]
    assert len(site.machines[NODE].log) == before


def test_burned_nic_firmware_runs_only_after_a_cold_boot(site: Site) -> None:
    def versions() -> set[tuple[str, ...]]:
        root = ElementTree.fromstring(ask(site, "nics")["stdout"])
        wanted = [d for d in root.iter("Device") if d.get("pciName") in supernics(site)]
        return {
            tuple(v.get("current", "") for v in d.iterfind("Versions/*") if v.tag.startswith("FW"))
            for d in wanted
        }

    devices = supernics(site)
    answer = run(site, "nic_firmware", {"devices": devices, "version": "32.44.1036"})
    assert answer["facts"]["burned"] == dict.fromkeys(devices, "32.44.1036")
    assert versions() == {("32.44.1036", "32.43.1014")}
    run(site, "reboot", {})
    assert versions() == {("32.44.1036", "32.43.1014")}
    site.machines[NODE].power_cycle(site.clock.now())
    site.clock.move(3600)  # type: ignore[attr-defined]

    assert versions() == {("32.44.1036",)}


def test_a_card_reset_from_the_host_lets_burned_firmware_run(site: Site) -> None:
    devices = supernics(site)
    run(site, "nic_firmware", {"devices": devices, "version": "32.44.1036"})

    answer = run(site, "nic_reset", {"devices": devices[:1]})

    running = [
        i.running for (_, item), i in site.machines[NODE].firmware.items() if item == "DPU_NIC"
    ]
    assert answer["facts"] == {"running": {devices[0]: "32.44.1036"}, "waiting": []}
    assert running.count("32.44.1036") == 1


def test_run_time_settings_of_the_cards_are_lost_at_a_boot(site: Site) -> None:
    devices = supernics(site)
    path = "/interfaces/interface/nvidia/qos/config/trust-mode"
    setting = {"devices": devices, "routing": [{"path": path, "value": "dscp"}], "congestion": []}

    def trusted() -> int:
        return ask(site, "runtime")["stdout"].count("Priority trust state: dscp")

    answer = run(site, "bluefield_runtime", setting)
    before = trusted()
    site.machines[NODE].restart_host(site.clock.now())
    site.clock.move(3600)  # type: ignore[attr-defined]

    assert [set(v.values()) for v in answer["facts"]["interfaces"].values()] == [{"dscp"}] * 8
    assert (before, trusted()) == (8, 0)


def test_nic_configuration_is_current_after_a_cold_boot(site: Site) -> None:
    def values(name: str) -> set[tuple[Any, Any]]:
        document = json.loads(ask(site, "nic_config")["stdout"])
        tables = [
            d["tlv_configuration"]
            for d in document.values()
            if "0000:" + d["device"] in supernics(site)
        ]
        return {(t[name]["current_value"], t[name]["next_value"]) for t in tables}

    devices = supernics(site)
    parameters = {"ROCE_ADAPTIVE_ROUTING_EN": "1", "NUM_OF_VFS": "1"}
    answer = run(site, "nic_config", {"devices": devices, "parameters": parameters})
    assert answer["facts"]["next_boot"] == dict.fromkeys(devices, parameters)
    assert values("ROCE_ADAPTIVE_ROUTING_EN") == {("False(0)", "True(1)")}
    site.machines[NODE].power_cycle(site.clock.now())
    site.clock.move(3600)  # type: ignore[attr-defined]

    assert values("ROCE_ADAPTIVE_ROUTING_EN") == {("True(1)", "True(1)")}
    assert values("NUM_OF_VFS") == {(1, 1)}


def test_a_card_that_is_not_there_cannot_be_burned(site: Site) -> None:
    answer = run(site, "nic_firmware", {"devices": ["0000:ff:00.0"], "version": "1"})

    assert answer["status"] == "failed"
    assert "0000:ff:00.0" in answer["detail"]


@pytest.mark.parametrize("act", ["power_off", "power_cycle", "restart_host", "ac_cycle"])
def test_a_host_that_is_off_or_booting_is_unreachable(site: Site, act: str) -> None:
    method: Callable[[float], None] = getattr(site.machines[NODE], act)
    method(site.clock.now())

    assert run(site, "run_commands", {"commands": []})["status"] == "unreachable"


def test_power_loss_interrupts_an_installation(site: Site) -> None:
    machine = site.machines[NODE]
    machine.schedule.plan_act(site.clock.now() + 30, lambda at: machine.power_off(at))
    answer = run(site, "host_software", {"packages": {"host.driver": "550.90.07"}})

    assert answer["status"] == "unreachable"
    assert machine.host.packages["host.driver"] == "535.129.03"


def test_the_neighbours_are_where_the_cables_go(site: Site) -> None:
    heard = json.loads(ask(site, "lldp")["stdout"])["lldp"]["interface"]
    seen = {(next(iter(e["chassis"])), e["port"]["id"]["value"]) for i in heard for e in i.values()}

    assert seen == {(f"leaf-su0-r{rail}", "swp1s0") for rail in range(8)}


def test_a_leaf_that_reboots_takes_its_rail_down(site: Site) -> None:
    site.switches["leaf-su0-r3"].reboot(site.clock.now())
    states = [line for line in ask(site, "rdma_links")["stdout"].splitlines() if "/state:" in line]

    assert [n for n, line in enumerate(states) if "DOWN" in line] == [3]


def test_values_vary_a_little_and_replay_exactly() -> None:
    def measure(seed: int) -> str:
        site = Site(nodes=1, seed=seed, clock=HandClock())
        return str(ask(site, "nccl")["stdout"]) + str(ask(site, "nvbandwidth")["stdout"])

    assert measure(1) == measure(1) != measure(2)


@pytest.mark.parametrize("play", ["no_such_play", "../../etc/passwd"])
def test_an_unknown_play_or_host_is_an_answer(site: Site, play: str) -> None:
    assert run(site, play, {})["status"] == "failed"
    assert run(site, "host_software", {}, host="nobody")["status"] == "unreachable"


def test_mlnx_ofed_is_removed_only_where_the_step_allows_it(site: Site) -> None:
    packages = site.machines[NODE].host.packages
    packages["host.doca"] = "MLNX_OFED_LINUX-23.10-0.5.5.0"
    call = {"packages": {"host.doca": "2.10.0-0.5.3", "host.doca_ofed": "doca-ofed=2.10.0-0.5.3"}}

    refused = run(site, "host_software", call)
    moved = run(site, "host_software", {**call, "ofed_removal_allowed": True})

    assert "MLNX_OFED_LINUX-23.10-0.5.5.0 is installed" in refused["detail"]
    assert moved["facts"]["installed"] == call["packages"]
    assert "doca-ofed 2.10.0-0.5.3 ii" in ask(site, "packages")["stdout"]


def test_the_packaging_of_a_driver_is_shown_where_one_was_set(site: Site) -> None:
    run(site, "host_software", {"packages": {"host.driver_packages": "ubuntu-server-open"}})

    assert "nvidia-driver-535-server-open 535.129.03" in ask(site, "packages")["stdout"]


def test_a_line_about_accounts_runs_in_the_guest_of_its_host_alone(site: Site) -> None:
    program = ("sh", "-c", 'echo "$0 $1"; exit 3')
    site.inband.guests[NODE] = program
    boot = site.machines[NODE].host.boot_id
    login = {"name": "l", "command": "tenant_login=; t=tenant; id", "timeout_s": 60}
    looked = {"name": "b", "command": COMMANDS["boot_id"], "timeout_s": 60}

    answer = run(site, "run_commands", {"commands": [login, looked]})["facts"]["commands"]

    assert (answer["l"]["rc"], answer["l"]["stdout"]) == (3, f"{boot} {login['command']}\n")
    assert answer["b"]["stdout"] == f"{boot}\n"
    state = list_guests(site)[NODE]
    assert state["boot_id"] == boot
    site.machines[NODE].power_off(site.clock.now())
    site.clock.move(600.0)
    assert list_guests(site)[NODE]["boot_id"] is None
