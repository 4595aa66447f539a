"""The output of a simulated host's system: boot id, packages, services, kernel log."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Event
from provisioner.integrations.sim.outputs.host import HostView, Output
from provisioner.integrations.sim.outputs.outputs_nic import interface_name
from provisioner.integrations.sim.switches.switch import Switch

# ------------------------------------------------------------------------------
# A simulated host's baseline and check tools: the two plays that set them, and the look at them.
#
# All of them outlast a boot; kernel arguments are in effect after one. What was never set has the
# values of a fresh system.


RAIL_MTU = 9216
_PACKAGES = re.compile(r"\\n' ([a-z0-9.+ -]+);")
_SERVICES = re.compile(r"echo service:(\S+) \$")
_RAILS = re.compile(r"ip -o address show to (\S+) \|")


def apply_baseline(view: HostView, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Set a baseline; return the facts of the play `host_baseline`."""
    requested = {str(k): str(v) for k, v in dict(variables.get("settings") or {}).items()}
    view.machine.host.settings.update(requested)
    return {"settings": requested, "reboot_required": "kernel_arguments" in requested}


def apply_tools(view: HostView, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Install packages and start services; return the facts of the play `check_tools`."""
    packages = {str(k): str(v) for k, v in dict(variables.get("packages") or {}).items()}
    services = [str(s) for s in variables.get("services") or ()]
    view.machine.host.settings.update({f"package:{k}": v for k, v in packages.items()})
    view.machine.host.settings.update({f"service:{s}": "on" for s in services})
    return {"installed": packages}


def print_host_settings(view: HostView, command: str) -> Output:
    """The look at a host's sets, with all that its command line asks for."""
    own = view.machine.host.settings
    lines = []
    for card in view.cards:
        priorities = own.get("roce_ecn", "")
        ecn = " ".join(str(int(str(p) in priorities)) for p in range(8))
        relaxed = own.get("relaxed_ordering", "on") == "on"
        lines += [
            f"card {card.pci}",
            f"roce_cma_tos {own.get('roce_cma_tos', '0')}",
            f"devctl {'2936' if relaxed else '2926'}",
            "DCBX mode: OS controlled",
            f"Priority trust state: {own.get('roce_trust', 'pcp')}",
            f"\tenabled     {'   '.join(own.get('roce_pfc', '00000000'))}",
            f"ecn_np {ecn}",
            f"ecn_rp {ecn}",
        ]
    lines += [
        "card none",
        f"kernel_arguments BOOT_IMAGE=/vmlinuz ro {own.get('kernel_arguments', '')}",
        f"hugepages_2m {own.get('hugepages_2m', '0')}",
        "fabric Completed",
        "fabric_manager active",
        f"acs 0000:00:01.0 {'0000' if own.get('acs') == 'off' else '001d'}",
    ]
    for name in _SERVICES.findall(command):
        state = "active" if own.get(f"service:{name}") == "on" else "inactive"
        lines.append(f"service:{name} {state}")
    for names in _PACKAGES.findall(command):
        for name in names.split():
            if version := own.get(f"package:{name}"):
                lines.append(f"package:{name} {version} ii ")
    lines += [_rail(view, address) for address in _RAILS.findall(command)]
    return Output(0, "".join(f"{line}\n" for line in lines))


def _rail(view: HostView, address: str) -> str:
    host, rail = view.peers.get(address, (None, -1))
    cable = next((c for c in view.cables if c.rail == rail), None)
    if host is not view or cable is None:
        return f"rail {address} own - route - mtu "
    card = view.machine.devices[cable.nic_slot]
    name = interface_name(card)
    route = name if view.machine.host.settings.get("rails") == "on" else "eno1"
    return f"rail {address} own {name} route {route} mtu {card.traits.get('mtu', RAIL_MTU)}"


# ------------------------------------------------------------------------------
# The system logs of simulated hosts and switches, as their programs hand them to syslog.
#
# Each line comes of an event of the machine, so that a site in which nothing happens logs nothing.
# Words of the Fabric Manager are those of NVIDIA/nvtrust issue 128 (journal of a host, 5 January).
# Programs of a switch are those of Cumulus Linux (user guide 5.13, page Syslog: nvued, switchd, and
# the kernel); the words of nvued are ours.


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


_PACKAGE_NAMES = {
    "host.doca": "doca-host",
    "host.spcx_cc": "doca-spcx-cc",
    "host.nvlsm": "nvlsm",
    "host.nccl": "libnccl2",
}


def print_boot_id(view: HostView, _command: str) -> Output:
    """`cat /proc/sys/kernel/random/boot_id`."""
    return Output(0, f"{view.machine.host.boot_id}\n")


def print_boot_id_and_files(view: HostView, command: str) -> Output:
    """`cat` of the boot id and of existing files in /run, then the text of an `echo`."""
    command_text, _, echoed = command.partition(" 2>/dev/null; echo ")
    boot = view.machine.host.boot_id
    entries = [view.volatile.get(path, (None, "")) for path in command_text.split()[2:]]
    files = "".join(content for written_by, content in entries if written_by == boot)
    return Output(0, f"{boot}\n{files}{echoed}\n")


def print_system(view: HostView, _command: str) -> Output:
    """`cat` of an image's stamp, and of os-release."""
    image = _image(view)
    missing = "" if image else "cat: /etc/provisioner-release: No such file or directory\n"
    return Output(0 if image else 1, image + 'ID=ubuntu\nVERSION_ID="22.04"\n', missing)


def print_lsblk(view: HostView, command: str) -> Output:
    """Drives and a loop device, as util-linux 2.37 prints them as JSON (misc-utils/lsblk.c)."""
    columns = command.rpartition(" ")[2].lower().split(",")
    every = [
        {
            "name": disk.name.removeprefix("/dev/"),
            "type": "disk",
            "serial": disk.device.serial,
            "tran": "nvme",
            "rm": False,
        }
        for disk in view.machine.disks.values()
        if disk.device.present
    ]
    every.append({"name": "loop0", "type": "loop", "serial": None, "tran": None, "rm": False})
    shown = [{c: device[c] for c in columns} for device in every]
    return Output(0, json.dumps({"blockdevices": shown}, indent=3) + "\n")


def print_root_disk(view: HostView, _command: str) -> Output:
    """`lsblk --inverse --list --output TYPE,SERIAL` of the root file system."""
    present = [d for d in view.machine.disks.values() if d.device.present]
    disk = next((d for d in present if d.bootable), None)
    if view.machine.host.os != "disk" or disk is None:
        return Output(32, "", "lsblk: rootfs: not a block device\n")
    serial = "OTHER-DISK" if "root_on_other_disk" in view.machine.faults else disk.device.serial
    return Output(0, f"part \ndisk {serial}\n")


def print_stamp(view: HostView, _command: str) -> Output:
    """`cat /etc/provisioner-release`."""
    image = _image(view)
    return Output(0, image) if image else Output(1, "", "No such file or directory\n")


def _image(view: HostView) -> str:
    """The image's stamp; a ramdisk has none."""
    return view.machine.host.system if view.machine.host.os == "disk" else ""


def print_dpkg_query(view: HostView, _command: str) -> Output:
    """Package, version and status of the installed Fabric Manager and DOCA packages."""
    lines = []
    for kind, version in sorted(view.machine.host.packages.items()):
        if kind == "host.fabric_manager":
            branch = version.partition(".")[0]
            of_ubuntu = view.machine.host.packages.get("host.driver_packages", "ubuntu")
            # NVIDIA's package has no branch in its name from 580 on, Ubuntu's has
            bare = not of_ubuntu.startswith("ubuntu") and branch >= "580"
            lines.append(f"nvidia-fabricmanager{'' if bare else '-' + branch} {version}-1 ii ")
        elif kind == "host.doca" and version.startswith("MLNX_OFED_LINUX-"):
            lines.append(f"{version}:")
        elif kind == "host.doca_ofed":  # "doca-ofed=2.10.0-0.5.3"
            lines.append(f"{version.replace('=', ' ')} ii ")
        elif kind == "host.kernel":  # "6.8.0-57-generic=6.8.0-57.59"; the loaded one runs
            lines.append(f"linux-image-{version.replace('=', ' ')} ii ")
            running = view.machine.host.loaded.get(kind, "")
            if running:
                lines.append(f"linux-image-{running.replace('=', ' ')} ii ")
            lines.append(f"running-kernel {running.partition('=')[0] or '6.8.0-31-generic'} ii")
        elif kind == "host.driver_packages" and version.startswith("ubuntu-server"):
            branch = view.driver.partition(".")[0]
            name = f"nvidia-driver-{branch}-server{version.removeprefix('ubuntu-server')}"
            lines.append(f"{name} {view.driver}-0ubuntu1 ii ")
        elif kind in _PACKAGE_NAMES:
            lines.append(f"{_PACKAGE_NAMES[kind]} {version} ii ")
        elif kind == "host.storage_client":  # "beegfs-client=7.4.6"
            lines.append(f"{version.replace('=', ' ')} ii ")
    text = "".join(line + "\n" for line in lines)
    if not lines:
        return Output(1, "", "dpkg-query: no packages found matching doca-host*\n")
    return Output(0, text)


def print_systemctl(view: HostView, command: str) -> Output:
    """`systemctl is-active UNIT...`: one word for each; exit code 0 if at least one is active."""
    states = [_state(view, unit) for unit in command.split()[2:]]
    rc = 0 if "active" in states else 3
    return Output(rc, "".join(state + "\n" for state in states))


def _state(view: HostView, unit: str) -> str:
    machine = view.machine
    if unit == "nvidia-fabricmanager":
        # it refuses to start with another driver (docs/sources/versions.md#fabric-manager)
        matches = machine.host.packages.get("host.fabric_manager") == view.driver
        return "active" if matches and "fabric_manager_down" not in machine.faults else "failed"
    if unit == "nvidia-persistenced":
        return "inactive" if "persistence_off" in machine.faults else "active"
    return "inactive"


def print_dmesg(view: HostView, _command: str) -> Output:
    """`dmesg --time-format iso` since the last boot, with the faults of its parts."""
    machine = view.machine
    boots = [e.time for e in machine.log if e.kind == "boot"]
    booted = boots[-1] if boots else view.now - 86_400.0
    lines: list[tuple[float, str]] = [
        (0.0, "Linux version 5.15.0-1042-nvidia (buildd@lcy02) #42-Ubuntu SMP"),
        (9.1, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {view.driver}"),
    ]
    for number, card in enumerate(view.cards):
        firmware = machine.firmware[card.slot, "DPU_NIC"].running
        lines.append((12.0 + number, f"mlx5_core {card.pci}: firmware version: {firmware}"))
        if card.link_gen < card.link_gen_max:
            limited = (
                f"mlx5_core {card.pci}: 126.024 Gb/s available PCIe bandwidth, limited by "
                f"16.0 GT/s PCIe x16 link at {card.pci} (capable of 252.048 Gb/s with 32.0 GT/s "
                "PCIe x16 link)"
            )
            lines.append((12.5 + number, limited))
        if card.traits.get("aer"):
            lines.append(
                (60.0, f"pcieport {card.pci}: AER: Uncorrectable (Non-Fatal) error received")
            )
    for number, gpu in enumerate(view.gpus):
        for xid in str(gpu.traits.get("xids", "")).split():
            message = f"NVRM: Xid (PCI:{gpu.pci[:-2]}): {xid}, pid='<unknown>', name=<unknown>"
            lines.append((300.0 + number, message))
    for device in machine.devices.values():
        if device.kind == "nvswitch" and (sxid := device.traits.get("sxid")):
            message = f"nvidia-nvswitch3: SXid (PCI:{device.pci}): {sxid}, Fatal, Link 28"
            lines.append((310.0, message))
    return Output(0, "".join(f"{_stamp(booted + at)} {text}\n" for at, text in sorted(lines)))


def _stamp(at: float) -> str:
    moment = datetime.fromtimestamp(at, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S},{moment.microsecond:06d}+00:00"


def print_tools(_view: HostView, command: str) -> Output:
    """All tools that the command asks for: a simulated host has them."""
    names = command.partition("for tool in ")[2].partition(";")[0].split()
    names += ["ib_write_bw --use_cuda", "nv-hostengine"]
    tools = "".join(f"has {name}\n" for name in names)
    return Output(0, f'{tools}system ID=ubuntu\nsystem VERSION_ID="22.04"\nlooked\n')


def make_tenant_login(view: HostView, command: str) -> Output:
    """Write the keys of a tenant's login, and print their digest as sha256sum and stat do."""
    if "tenant_login_fails" in view.machine.faults:
        return Output(0, f"keys {'0' * 64} tenant:600\nend-of-output\n")
    words = shlex.split(command.partition("> ")[0])
    keys = words[words.index("%s\\n") + 1 :]
    text = "".join(f"{key}\n" for key in keys)
    view.machine.host.tenant_keys = text
    user = command.partition("t=")[2].partition(";")[0]
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Output(0, f"keys {digest} {user}:600\nend-of-output\n")


def write_minimums(view: HostView, command: str) -> Output:
    """Store the files of the metadata, and print the digest of them all as sha256sum does."""
    if "minimums_cut_off" in view.machine.faults:
        return Output(0, "")
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    words = list(lexer)
    texts = [words[at + 2] for at, word in enumerate(words) if word == "printf"]
    view.machine.host.minimums = "".join(texts)
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()
    return Output(0, f"minimums {digest}\nend-of-output\n")


def place_user_data(view: HostView, _command: str) -> Output:
    """Store standard input as a file, and print its digest as sha256sum and stat do."""
    view.machine.host.user_data = view.sent
    digest = hashlib.sha256(view.sent.encode()).hexdigest()
    return Output(0, f"placed {digest} root:600\nend-of-output\n")


def remove_login(view: HostView, _command: str) -> Output:
    """Remove the daemon's login from the system on the disk; list the places where it remains."""
    if "login_stays" in view.machine.faults:
        return Output(0, "remains key in /home/provisioner/.ssh/authorized_keys\n")
    view.machine.host.login_removed = True
    return Output(0, "")
