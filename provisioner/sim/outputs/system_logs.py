"""The system logs of simulated hosts and switches, as their programs hand them to syslog.

Each line comes of an event of the machine, so that a site in which nothing happens logs nothing.
Words of the Fabric Manager are those of NVIDIA/nvtrust issue 128 (journal of a host, 5 January).
Programs of a switch are those of Cumulus Linux (user guide 5.13, page Syslog: nvued, switchd, and
the kernel); the words of nvued are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.hardware.parts import Event
from provisioner.sim.switches.switch import Switch

KERNEL_INFO = 6  # priorities: facility times eight, plus severity (RFC 5424, 6.2.1)
KERNEL_NOTICE = 5
DAEMON_INFO = 30
DAEMON_NOTICE = 29
CARRIER = "IPv6: ADDRCONF(NETDEV_CHANGE): {}: link becomes ready"  # Linux, net/ipv6/addrconf.c
ROUTED = (
    "Successfully configured all the available NVSwitches to route GPU NVLink traffic. NVLink "
    "Peer-to-Peer support will be enabled once the GPUs are successfully registered with the "
    "NVLink fabric."
)
FABRIC_MANAGER = ("Connected to 1 node.", ROUTED)
_OF_SWITCHES: Mapping[str, tuple[int, str, str]] = {
    "boot": (KERNEL_NOTICE, "kernel", "Linux version 5.10.0-cl-1-amd64: {}"),
    "config_applied": (DAEMON_INFO, "nvued[2210]", "configuration is applied: {}"),
    "config_invalid": (DAEMON_NOTICE, "nvued[2210]", "configuration is not applied: {}"),
    "config_saved": (DAEMON_INFO, "nvued[2210]", "configuration is saved{}"),
    "reset": (DAEMON_NOTICE, "systemd[1]", "Shutting down: {}."),
}


def list_host_lines(machine: Machine) -> list[str]:
    """Return the lines that a host has logged since it was made, the oldest first."""
    return [line for event in machine.log for line in _write_host_lines(machine, event)]


def list_switch_lines(switch: Switch, hosts: Mapping[str, Machine]) -> list[str]:
    """Return the lines that a switch has logged since it was made, the oldest first.

    Its kernel notes the carrier of each port whose host has started.
    """
    rows = [
        (event.time, _write(*_OF_SWITCHES[event.kind], event.detail))
        for event in switch.log
        if event.kind in _OF_SWITCHES
    ]
    for port, neighbour in switch.neighbours.items():
        host = hosts.get(neighbour.system)
        starts = [] if host is None else [e.time for e in host.log if e.kind == "boot"]
        rows += [(at, _write(KERNEL_INFO, "kernel", CARRIER, port)) for at in starts]
    return [line for _, line in sorted(rows, key=lambda row: row[0])]


def _write_host_lines(machine: Machine, event: Event) -> Iterator[str]:
    if event.kind != "boot":
        return
    yield _write(KERNEL_NOTICE, "kernel", "Linux version 5.15.0-91-generic: {}", event.detail)
    yield _write(DAEMON_INFO, "systemd[1]", "Reached target Multi-User System{}.", "")
    runs = machine.host.packages.get("host.fabric_manager")
    if runs and "fabric_manager_down" not in machine.faults:
        yield from _write_fabric_manager(FABRIC_MANAGER)


def _write_fabric_manager(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield f"<{DAEMON_INFO}>nv-fabricmanager[1120]: {text}"


def _write(priority: int, program: str, text: str, detail: str) -> str:
    return f"<{priority}>{program}: {text.format(detail)}"
