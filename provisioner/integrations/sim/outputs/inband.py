"""The in-band half of a simulated site: its hosts answer the plays of docs/in-band.md.

`Inband.run` takes as long as the real play: it sleeps on the simulated time that it is given and
reads the host again afterwards. A host that stopped meanwhile answers `unreachable`, and an
interrupted write has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from provisioner.integrations.sim.hardware.clock import SimClock
from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.outputs import host as outputs_drives
from provisioner.integrations.sim.outputs import (
    outputs_fabric,
    outputs_gpu,
    outputs_load,
    outputs_nic,
    outputs_system,
)
from provisioner.integrations.sim.outputs import outputs_fabric as outputs_reach
from provisioner.integrations.sim.outputs import (
    outputs_gpu as outputs_attestation,
)
from provisioner.integrations.sim.outputs import (
    outputs_load as outputs_burn,
)
from provisioner.integrations.sim.outputs import outputs_nic as outputs_link
from provisioner.integrations.sim.outputs import outputs_nic as outputs_runtime
from provisioner.integrations.sim.outputs import outputs_system as outputs_baseline
from provisioner.integrations.sim.outputs.host import IN_GUEST, HostView, Output, run_in_guest
from provisioner.integrations.sim.outputs.outputs_gpu import reset_gpus
from provisioner.integrations.sim.outputs.outputs_system import print_dmesg

# ------------------------------------------------------------------------------
# The reports of a simulated server about its processors, memory, PCIe, drives and event log.


CORES = 56  # of a socket
DIMM_GIB = 64
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}


def _devices(view: HostView, kind: str) -> int:
    return sum(d.kind == kind and d.present for d in view.machine.devices.values())


def print_lscpu(view: HostView, _command: str) -> Output:
    """`lscpu -J`."""
    sockets = _devices(view, "cpu")
    threads = sockets * CORES * 2
    fields = {
        "Architecture:": "x86_64",
        "CPU(s):": threads,
        "On-line CPU(s) list:": f"0-{threads - 1}",
        "Thread(s) per core:": 2,
        "Core(s) per socket:": CORES,
        "Socket(s):": sockets,
        "NUMA node(s):": sockets,
    }
    listed = [{"field": name, "data": str(value)} for name, value in fields.items()]
    return Output(0, json.dumps({"lscpu": listed}, indent=3) + "\n")


def print_memory(view: HostView, _command: str) -> Output:
    """`cat /proc/meminfo /sys/devices/system/node/node*/meminfo`."""
    modules = [d for d in view.machine.devices.values() if d.kind == "memory" and d.present]
    sides = [sum(d.slot.startswith(f"P{n}-") for d in modules) for n in (1, 2)]
    kib = [max(1, n) * DIMM_GIB * 1024**2 for n in sides]
    lines = [f"MemTotal:       {sum(kib) - 4096} kB", "SwapTotal:             0 kB"]
    lines += [f"Node {n} MemTotal:       {side} kB" for n, side in enumerate(kib)]
    return _lines(lines)


def print_pci_tree(view: HostView, _command: str) -> Output:
    """Class, vendor and link of every card and drive, each behind its own root port."""
    rows: list[tuple[str, dict[str, str]]] = []
    drives = [d for d in view.machine.devices.values() if d.kind == "storage" and d.present]
    for number, card in enumerate(view.cards):
        path = f"/sys/devices/pci00{number + 16:02x}:00/0000:{number + 16:02x}:01.0/{card.pci}"
        rows.append((path, _function("0x020000", "0x15b3", card)))
    for number, drive in enumerate(drives, start=64):
        path = f"/sys/devices/pci00{number:02x}:00/0000:{number:02x}:01.0/{drive.pci}"
        rows.append((path, _function("0x010802", "0x144d", drive)))
    names = list(rows[0][1]) if rows else []
    return _lines(f"{path}/{name}:{facts[name]}" for name in names for path, facts in rows)


def _function(kind: str, vendor: str, device: Device) -> dict[str, str]:
    return {
        "class": kind,
        "vendor": vendor,
        "current_link_speed": f"{_SPEEDS[device.link_gen]} GT/s PCIe",
        "current_link_width": str(device.link_width),
        "max_link_speed": f"{_SPEEDS[device.link_gen_max]} GT/s PCIe",
        "max_link_width": str(device.link_width_max),
    }


def print_pcie_errors(view: HostView, _command: str) -> Output:
    """`grep -H .` over the kernel's counters of PCIe errors."""
    lines = []
    for kind, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
        for card in view.cards:
            bad = 1 if kind == "nonfatal" and card.traits.get("aer") else 0
            path = f"/sys/bus/pci/devices/{card.pci}/aer_dev_{kind}"
            lines += [f"{path}:BadTLP 0", f"{path}:TOTAL_ERR_{total} {bad}"]
    return _lines(lines)


def print_memory_errors(view: HostView, _command: str) -> Output:
    """EDAC's counts of two memory controllers."""
    bad = [int(d.traits.get("memory_ue", 0)) for d in view.machine.devices.values()]
    lines = []
    for kind, counts in (("ce_count", (0, 0)), ("ue_count", (sum(bad), 0))):
        for number, count in enumerate(counts):
            lines.append(f"/sys/devices/system/edac/mc/mc{number}/{kind}:{count}")
    return _lines(lines)


def print_event_log(view: HostView, _command: str) -> Output:
    """`ipmitool sel elist`."""
    lines = ["   1 | 03/01/2025 | 08:00:00 | System Event #0x83 | Timestamp Clock Sync | Asserted"]
    if "power_supply_lost" in view.machine.faults:
        lines.append(
            "   2 | 03/02/2025 | 09:10:11 | Power Supply #0x31 | Power Supply AC lost | Asserted"
        )
    return _lines(lines)


def print_kernel_errors(view: HostView, command: str) -> Output:
    """The first line of the kernel's log, and its lines of level "err"."""
    lines = print_dmesg(view, command).stdout.splitlines()
    return _lines(line for n, line in enumerate(lines) if n == 0 or "AER: Uncorrectable" in line)


def print_smart(view: HostView, _command: str) -> Output:
    """`smartctl -xj` of every drive."""
    reports = []
    drives = [d for d in view.machine.devices.values() if d.kind == "storage" and d.present]
    for number, drive in enumerate(drives):
        document = {
            "smartctl": {"version": [7, 3], "exit_status": 0},
            "device": {"name": f"/dev/nvme{number}", "type": "nvme", "protocol": "NVMe"},
            "serial_number": drive.serial,
            "smart_status": {"passed": True},
            "nvme_smart_health_information_log": {
                "critical_warning": int(drive.traits.get("critical_warning", 0)),
                "temperature": 34,
                "available_spare": 100,
                "available_spare_threshold": 10,
                "percentage_used": int(drive.traits.get("percentage_used", 1)),
                "media_errors": int(drive.traits.get("media_errors", 0)),
            },
        }
        reports.append(f"drive nvme{number}\n{json.dumps(document, indent=2)}\n")
    return Output(0, "".join(reports))


def print_disk_space(_view: HostView, _command: str) -> Output:
    """`df -PT -k`."""
    return _lines(
        (
            "Filesystem     Type     1024-blocks      Used Available Capacity Mounted on",
            "udev           devtmpfs  1056000000         0 1056000000       0% /dev",
            "/dev/nvme0n1p2 ext4       921000000 210000000  664000000      25% /",
        )
    )


def _lines(lines: Iterable[str]) -> Output:
    return Output(0, "".join(f"{line}\n" for line in lines))


# ------------------------------------------------------------------------------
# The commands with which health checks read a host without load, and their output.
#
# A command line may end with an `echo`: its text after an output shows that the output is
# complete.


Tool = Callable[[HostView, str], Output]
_CARDS = "for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d)); echo device $p;"

# first words of a command -> its tool, and its duration in seconds
LOOKS: tuple[tuple[str, Tool, float], ...] = (
    ("grep -H . /sys/class/infiniband/*/ports/1/state ", outputs_nic.print_rdma_links, 0.1),
    ("grep -H . /sys/class/infiniband/*/fw_ver ", outputs_link.print_binding, 0.1),
    ("grep -H PCI_SLOT_NAME /sys/class/net/", outputs_link.print_netdevs, 0.1),
    ("grep -H . /proc/sys/kernel/random/boot_id /sys/", outputs_link.print_flaps, 0.1),
    ("grep -H . /proc/sys/kernel/random/boot_id /proc/", outputs_link.print_rdma_counters, 0.2),
    (
        "for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d)); r=",
        outputs_runtime.print_roce_runtime,
        1.5,
    ),
    (f"{_CARDS} mlxlink ", outputs_link.print_mlxlink, 8.0),
    ("for d in /sys/class/infiniband/*/device; do echo card ", outputs_link.print_devlink, 0.5),
    ("for i in /sys/class/infiniband/*/device/net/*", outputs_link.print_ethtool, 0.5),
    ("for t in ", outputs_reach.print_ping, 2.0),
    ("for tool in ", outputs_system.print_tools, 0.2),
    ("for rail in ", outputs_reach.print_rail_routes, 1.0),
    ("( for d in /sys/class/infiniband/*", outputs_baseline.print_host_settings, 1.0),
    ("set -- $(ip -o -4 addr show to ", outputs_reach.print_from_interface, 1.0),
    ("lscpu -J", print_lscpu, 0.1),
    ("cat /proc/meminfo ", print_memory, 0.1),
    ("for f in class vendor ", print_pci_tree, 0.5),
    ("grep -H . /sys/bus/pci/devices/*/aer_dev_", print_pcie_errors, 0.2),
    ("grep -H . /sys/devices/system/edac/", print_memory_errors, 0.1),
    ("ipmitool sel elist", print_event_log, 2.0),
    ("for d in $(ls /dev ", print_smart, 1.0),
    ("for c in /sys/class/nvme/nvme*; do ", outputs_drives.print_drives, 0.5),
    ("df -PT -k", print_disk_space, 0.1),
    ("dmesg --time-format iso | sed ", print_kernel_errors, 0.2),
)
_MARK = "end-of-output"
_ENDS = (f" && echo {_MARK}", f"; echo {_MARK}")


def strip_echo(line: str) -> str:
    """A command line without its final `echo`."""
    return next((line.removesuffix(end) for end in _ENDS if line.endswith(end)), line)


def add_echo(tool: Tool, line: str) -> Tool:
    """The tool, with the text of the line's `echo` after its output."""

    def run(view: HostView, _line: str) -> Output:
        output = tool(view, strip_echo(line))
        if output.rc and line.endswith(_ENDS[0]):
            return output
        return output._replace(rc=0, stdout=f"{output.stdout}{_MARK}\n")

    return tool if strip_echo(line) == line else run


Sleep = Callable[[float], Awaitable[None]]  # seconds of simulated time
Result = dict[str, Any]  # status, facts, detail

# first words of a command -> its tool, and its duration in seconds
TOOLS: tuple[tuple[str, Tool, float], ...] = (
    *LOOKS,
    ("cat /proc/sys/kernel/random/boot_id /run/", outputs_system.print_boot_id_and_files, 0.1),
    ("cat /proc/sys/kernel/random/boot_id", outputs_system.print_boot_id, 0.1),
    ("cat /etc/provisioner-release /etc/os-release", outputs_system.print_system, 0.1),
    ("cat /etc/provisioner-release", outputs_system.print_stamp, 0.1),
    ("lsblk --inverse --list ", outputs_system.print_root_disk, 0.1),
    ("exec 9>>/run/lock/provisioner-tools; ", reset_gpus, 45.0),
    ("u=provisioner; k=", outputs_system.remove_login, 2.0),
    ("storage_mounts=; ", outputs_fabric.print_mounts, 1.0),
    ("tenant_login=; ", outputs_system.make_tenant_login, 2.0),
    ("tenant_libraries=; ", outputs_system.write_minimums, 0.5),
    ("tenant_user_data=; ", outputs_system.place_user_data, 2.0),
    ("lsblk --json --nodeps --output ", outputs_system.print_lsblk, 0.1),
    ("nvidia-smi ", outputs_gpu.print_nvidia_smi, 1.5),
    ("NVAT_FORMAT=json NVAT_LOG_LEVEL=error nvattest ", outputs_attestation.print_nvattest, 8.0),
    ("dpkg-query -W -f ", outputs_system.print_dpkg_query, 0.2),
    ("mlxfwmanager --query-format xml", outputs_nic.print_mlxfwmanager, 12.0),
    ("mlxconfig -e -j /dev/stdout q", outputs_nic.print_mlxconfig, 4.0),
    ("dmesg --time-format iso", outputs_system.print_dmesg, 0.2),
    ("dcgmi diag -r 4 -j", outputs_load.print_dcgm, 5400.0),
    ("dcgmi diag -r 3 -j", outputs_load.print_dcgm, 1200.0),
    ("dcgmi diag -r memory_bandwidth -j", outputs_load.print_dcgm, 60.0),
    ("dcgmi diag -r 1 -j", outputs_load.print_dcgm, 30.0),
    ("dcgmi diag -r 2 -j", outputs_load.print_dcgm, 150.0),
    ("gpu_burn -tc 900", outputs_burn.print_gpu_burn, 905.0),
    ("gpu_burn -tc ", outputs_burn.print_gpu_burn, 125.0),
    ("i=0; export CUDA_DEVICE_ORDER=PCI_BUS_ID; for p in ", outputs_burn.print_loopback, 100.0),
    ("command -v ib_write_bw; ", outputs_fabric.print_devices, 0.1),
    ("for d in mlx5_", outputs_fabric.print_counters, 0.1),
    ("export PROVISIONER_FABRIC=", outputs_fabric.run_fabric_command, 30.0),
    ("for f in /run/provisioner-fabric.nccl.", outputs_fabric.print_nccl_logs, 0.2),
    ("for f in $(grep -lsz '^PROVISIONER_FABRIC=", outputs_fabric.end_processes, 0.1),
    ("fio ", outputs_burn.print_fio, 75.0),
    ("stress-ng ", outputs_burn.print_stress_ng, 121.0),
    ("stream_c", outputs_burn.print_stream, 20.0),
    ("all_gather_perf ", outputs_load.print_nccl, 45.0),
    ("reduce_scatter_perf ", outputs_load.print_nccl, 45.0),
    ("alltoall_perf ", outputs_load.print_nccl, 45.0),
    ("nvbandwidth -j ", outputs_load.print_nvbandwidth, 60.0),
    ("all_reduce_perf ", outputs_load.print_nccl, 45.0),
    ("systemctl is-active ", outputs_system.print_systemctl, 0.1),
    ("lldpctl -f json", outputs_nic.print_lldpctl, 0.2),
)
INSTALL_S = 90.0  # one package set with its kernel modules
DRIVE_S = 8.0  # a download of some megabytes and its commit
CONFIG_S = 6.0  # `mlxconfig set` on one card
RUNTIME_S = 15.0  # the management service starts, sets and reads a hundred values
SSH_S = 3.0  # connect, gather, fork
# kinds that a host has only where somebody pinned them
PINNED_APART = frozenset({"host.driver_packages", "host.doca_ofed", "host.kernel"})
NEEDS_REBOOT = frozenset({"host.driver", "host.doca", "host.kernel"})  # or kernel modules of theirs


class Inband:
    """All hosts of a site by node name."""

    def __init__(self, hosts: Mapping[str, HostView], clock: SimClock, sleep: Sleep) -> None:
        self._hosts = hosts
        self._clock = clock
        self._sleep = sleep
        self._busy: set[str] = set()  # hosts whose package or firmware tools hold their lock
        self.calls = 0
        self.guests: dict[str, tuple[str, ...]] = {}  # node -> program that runs a line in it
        self._plays: dict[str, Callable[[HostView, Mapping[str, Any]], Awaitable[Result]]] = {
            "run_commands": self._run_commands,
            "host_software": self._host_software,
            "nic_firmware": self._nic_firmware,
            "nic_config": self._nic_config,
            "drive_firmware": self._drive_firmware,
            "bluefield_runtime": self._runtime,
            "host_baseline": partial(self._host_sets, outputs_baseline.apply_baseline),
            "check_tools": partial(self._host_sets, outputs_baseline.apply_tools),
            "nic_reset": self._nic_reset,
        }

    async def run(self, play: str, host: str, variables: Mapping[str, Any]) -> Result:
        """Run one play on one host: `status` (ok, failed, unreachable), `facts`, `detail`."""
        self.calls += 1
        view = self._hosts.get(host)
        act = self._plays.get(play)
        if act is None:
            return _failed(f"the playbook {play!r:.60} could not be found")
        if view is None:
            return _unreachable(f"Could not resolve hostname {host!r:.60}")
        await self._pass(view, SSH_S)
        if not view.reachable or "inband_unreachable" in view.machine.faults:
            return _unreachable(f"ssh: connect to host {host} port 22: Connection timed out")
        if view.machine.host.login_removed:
            return _unreachable(f"provisioner@{host}: Permission denied (publickey).")
        return await act(view, variables)

    async def _pass(self, view: HostView, seconds: float) -> float:
        """Wait for simulated seconds and advance the site; return the new time."""
        if seconds > 0:
            await self._sleep(seconds)
        view.now = self._clock.now()
        view.machine.schedule.advance(view.now)
        return view.now

    async def _run_commands(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        listed = variables.get("commands")
        boot = view.machine.host.boot_id
        outputs: dict[str, Any] = {}
        for entry in listed if isinstance(listed, list) else []:
            line = str(entry["command"])
            limit_s = float(entry.get("timeout_s", 60.0))
            view.sent = str(entry.get("sent", ""))
            if line.startswith("shutdown -r"):
                view.machine.restart_host(view.now)
                return _unreachable("the connection was closed by the host")
            tool, takes_s = self._probe_or_tool(line)
            if "tools_hang" in view.machine.faults and takes_s > 1.0:
                takes_s = limit_s + 1.0
            await self._pass(view, min(takes_s, limit_s))
            if view.machine.host.boot_id != boot:
                return _unreachable("the connection was closed by the host")
            if view.machine.name in self.guests and line.startswith(IN_GUEST):
                output = await run_in_guest(self.guests[view.machine.name], boot or "", line)
            else:
                output = Output(None, "", "") if takes_s > limit_s else tool(view, line)
            outputs[str(entry["name"])] = {
                "rc": output.rc,
                "stdout": output.stdout,
                "stderr": output.stderr,
            }
        return _ok({"commands": outputs})

    async def _host_software(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        requested = {str(k): str(v) for k, v in dict(variables.get("packages") or {}).items()}
        packages = view.machine.host.packages
        if unknown := [k for k in requested if k not in packages and k not in PINNED_APART]:
            return _failed(f"No package matching '{unknown[0]}' is available")
        older = packages.get("host.doca", "")
        allowed = bool(variables.get("ofed_removal_allowed"))
        if "host.doca" in requested and older.startswith("MLNX_OFED_LINUX-") and not allowed:
            return _failed(f"{older} is installed; DOCA-Host needs it removed")
        changes = {k: v for k, v in requested.items() if packages.get(k) != v}
        if "package_install_fails" in view.machine.faults and changes:
            return _failed("E: Sub-process /usr/bin/dpkg returned an error code (1)")

        def install(kind: str, now: float) -> None:
            packages[kind] = changes[kind]
            view.machine.log_event(now, "installed", f"host/{kind}", changes[kind])

        outcome = await self._write(view, [(f"host/{k}", INSTALL_S, k) for k in changes], install)
        if outcome is not None:
            return outcome
        loaded = view.machine.host.loaded
        pending = any(k in NEEDS_REBOOT and packages[k] != loaded.get(k) for k in packages)
        installed = {k: packages[k] for k in requested}
        return _ok({"installed": installed, "reboot_required": pending})

    async def _nic_firmware(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        version = str(variables.get("version", ""))
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        items = {pci: view.machine.firmware[slot, "DPU_NIC"] for pci, slot in cards.items()}
        if "nic_burn_fails" in view.machine.faults:
            return _failed("-E- Burning FS4 image failed: Rejected authentication")
        writes = [
            (f"{items[pci].bmc}/DPU_NIC", view.machine.durations.nic_burn_s, pci)
            for pci in items
            if variables.get("again")
            or version
            not in (items[pci].staged, items[pci].running if not items[pci].staged else "")
        ]

        def burn(pci: str, now: float) -> None:
            view.machine.log_event(now, "push", f"{items[pci].bmc}/DPU_NIC", version)
            view.machine.stage_version(items[pci], version, now)

        outcome = await self._write(view, writes, burn)
        if outcome is not None:
            return outcome
        return _ok({"burned": {pci: i.staged or i.running for pci, i in items.items()}})

    async def _drive_firmware(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        drives = outputs_drives.select_drives(view, variables)
        if isinstance(drives, str):
            return _failed(drives)
        version = str(variables["version"])

        def write(serial: str, now: float) -> None:
            drives[serial].write_firmware(version)
            view.machine.log_event(now, "push", f"drive/{serial}", version)

        old = [s for s, d in drives.items() if outputs_drives.find_following(d) != version]
        writes = [(f"drive/{serial}", DRIVE_S, serial) for serial in old]
        outcome = await self._write(view, writes, write)
        if outcome is not None:
            return outcome
        written = {s: outputs_drives.find_following(d) for s, d in drives.items()}
        return _ok({"written": written})

    async def _nic_config(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        requested = {str(k): str(v) for k, v in dict(variables.get("parameters") or {}).items()}
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        following = {p: view.machine.bluefields[slot].nv_config_next for p, slot in cards.items()}
        writes = [
            (f"{cards[p]}/nv_config", CONFIG_S, p)
            for p, values in following.items()
            if any(values.get(k) != v for k, v in requested.items())
        ]

        def configure(pci: str, now: float) -> None:
            following[pci].update(requested)
            view.machine.log_event(now, "nv_config", f"{cards[pci]}/nv_config", str(len(requested)))

        outcome = await self._write(view, writes, configure)
        if outcome is not None:
            return outcome
        return _ok({"next_boot": {p: {k: following[p][k] for k in requested} for p in cards}})

    def _probe_or_tool(self, line: str) -> tuple[Tool, float]:
        """The tool of a command line; only this module knows whether a play's tools are running."""
        if not line.startswith("l=/run/lock/provisioner-tools"):
            return _tool(line)

        def probe(view: HostView, _command: str) -> Output:
            held = "/run/lock/provisioner-tools is held\n" * (view.machine.name in self._busy)
            return Output(0, f"{held}looked\n")

        return probe, 0.1

    async def _runtime(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        boot = view.machine.host.boot_id
        await self._pass(view, RUNTIME_S)
        if view.machine.host.boot_id != boot:
            return _unreachable("the connection was closed by the host")
        return _ok(outputs_runtime.apply_settings(view, variables, cards))

    async def _host_sets(
        self,
        apply: Callable[[HostView, Mapping[str, Any]], dict[str, Any]],
        view: HostView,
        variables: Mapping[str, Any],
    ) -> Result:
        """One of the plays that set the pins of a profile by name."""
        facts: dict[str, Any] = {}

        def finish(_key: str, _now: float) -> None:
            facts.update(apply(view, variables))

        outcome = await self._write(view, [("host/settings", INSTALL_S, "settings")], finish)
        return outcome if outcome is not None else _ok(facts)

    async def _nic_reset(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        await self._pass(view, RUNTIME_S)
        for slot in cards.values():
            view.machine.nic_reset(slot, view.now)
        items = {pci: view.machine.firmware[slot, "DPU_NIC"] for pci, slot in cards.items()}
        return _ok({"running": {p: i.running for p, i in items.items()}, "waiting": []})

    def _cards(self, view: HostView, variables: Mapping[str, Any]) -> dict[str, str] | str:
        """PCI address as requested -> card slot, or an error text."""
        listed = variables.get("devices")
        slots = {card.pci: card.slot for card in view.cards}
        addresses = [str(d) for d in listed] if isinstance(listed, list) else []
        if missing := [d for d in addresses if d.lower() not in slots]:
            return f"-E- Failed to open device {missing[0]}: No such device"
        return {d: slots[d.lower()] for d in addresses}

    async def _write(
        self,
        view: HostView,
        writes: list[tuple[str, float, str]],
        finish: Callable[[str, float], None],
    ) -> Result | None:
        """Write (subject, seconds, key) one after the other; None if all are done."""
        if not writes:
            return None
        machine = view.machine
        name = view.machine.name
        if name in self._busy:
            return _failed(
                "Could not get lock /var/lib/dpkg/lock-frontend: held by another process"
            )
        self._busy.add(name)
        boot = machine.host.boot_id
        try:
            for subject, seconds, key in writes:
                machine.log_event(view.now, "write_start", subject)
                await self._pass(view, machine.add_jitter(seconds))
                interrupted = machine.host.boot_id != boot
                machine.log_event(
                    view.now, "write_end", subject, "interrupted" if interrupted else ""
                )
                if interrupted:
                    return _unreachable("the connection was closed by the host")
                finish(key, view.now)
        finally:
            self._busy.discard(name)
        return None


def _tool(line: str) -> tuple[Tool, float]:
    for prefix, tool, seconds in TOOLS:
        if strip_echo(line).startswith(prefix):
            return add_echo(tool, line), seconds
    return _unknown, 0.0


def _unknown(_view: HostView, command: str) -> Output:
    return Output(127, "", f"/bin/sh: 1: {(command.split() or [''])[0]:.60}: not found\n")


def _ok(found: Mapping[str, Any]) -> Result:
    return {"status": "ok", "facts": dict(found), "detail": ""}


def _failed(detail: str) -> Result:
    return {"status": "failed", "facts": {}, "detail": detail}


def _unreachable(detail: str) -> Result:
    return {"status": "unreachable", "facts": {}, "detail": detail}
