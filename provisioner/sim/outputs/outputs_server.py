"""The reports of a simulated server about its processors, memory, PCIe, drives and event log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from provisioner.sim.hardware.parts import Device
from provisioner.sim.outputs import host as outputs_drives
from provisioner.sim.outputs import outputs_fabric as outputs_reach
from provisioner.sim.outputs import outputs_nic, outputs_system
from provisioner.sim.outputs import outputs_nic as outputs_link
from provisioner.sim.outputs import outputs_nic as outputs_runtime
from provisioner.sim.outputs import outputs_system as outputs_baseline
from provisioner.sim.outputs.host import HostView, Output
from provisioner.sim.outputs.outputs_system import print_dmesg

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
