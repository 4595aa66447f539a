"""The commands with which health checks read a host without load, and their output.

A command line may end with an `echo`: its text after an output shows that the output is complete.
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sim.outputs import (
    outputs_baseline,
    outputs_drives,
    outputs_link,
    outputs_nic,
    outputs_reach,
    outputs_runtime,
    outputs_server,
    outputs_system,
)
from provisioner.sim.outputs.host import HostView, Output

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
    ("lscpu -J", outputs_server.print_lscpu, 0.1),
    ("cat /proc/meminfo ", outputs_server.print_memory, 0.1),
    ("for f in class vendor ", outputs_server.print_pci_tree, 0.5),
    ("grep -H . /sys/bus/pci/devices/*/aer_dev_", outputs_server.print_pcie_errors, 0.2),
    ("grep -H . /sys/devices/system/edac/", outputs_server.print_memory_errors, 0.1),
    ("ipmitool sel elist", outputs_server.print_event_log, 2.0),
    ("for d in $(ls /dev ", outputs_server.print_smart, 1.0),
    ("for c in /sys/class/nvme/nvme*; do ", outputs_drives.print_drives, 0.5),
    ("df -PT -k", outputs_server.print_disk_space, 0.1),
    ("dmesg --time-format iso | sed ", outputs_server.print_kernel_errors, 0.2),
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
