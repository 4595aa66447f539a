"""Throw-away hosts with stand-in tools and a package mirror, and our plays run against them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import Host

ANSIBLE = Path(__file__).parents[2] / "ansible"
STANDINS = Path(__file__).parent / "standins"
BINARIES = (
    "flint mlxconfig mlxfwreset mlxreg mlnx_qos bfb-install dpu-release nvidia-smi systemctl"
    " setpci lspci netplan update-grub modinfo dkms nvme"
)
PLACES = {
    **{f"/usr/local/bin/{n}": n for n in BINARIES.split()},
    "/usr/local/bin/ofed_info": "ofed_info",
    "/usr/sbin/ofed_uninstall.sh": "ofed_uninstall.sh",
    "/opt/mellanox/doca/services/dms/dmsd": "dmsd",
    "/opt/mellanox/doca/services/dms/dmsc": "dmsc",
    "/usr/local/lib/standins/boot": "boot",
}
# name, version, what else its control file says
PACKAGES = (
    ("nvidia-driver-535-server", "535.129.03-0ubuntu1", ""),
    ("nvidia-driver-550-server", "550.90.07-0ubuntu1", "Conflicts: nvidia-driver-535-server\n"),
    ("nvidia-fabricmanager-535", "535.129.03-1", ""),
    ("nvidia-fabricmanager-550", "550.54.15-1", ""),
    ("nvidia-fabricmanager-550", "550.90.07-1", ""),
    ("nvlsm", "2025.03.1-1", ""),
    ("doca-host", "2.9.0-0.4.7", ""),
    ("doca-host", "2.10.0-0.5.3", ""),
    ("doca-ofed", "2.9.0-0.4.7", ""),
    ("doca-ofed", "2.10.0-0.5.3", ""),
    ("doca-spcx-cc", "2.9.0072-1", ""),
    ("doca-spcx-cc", "2.10.0-1", ""),
    ("libnccl2", "2.21.5-1+cuda12.4", ""),
    ("libnccl2", "2.29.2-1+cuda12.9", ""),
    ("libnccl2", "2.29.2-1+cuda13.0", ""),
    ("beegfs-client", "7.4.5", ""),
    ("beegfs-client", "7.4.6", ""),
    ("lustre-client-utils", "2.15.5-1", ""),
    ("gdrdrv-dkms", "2.4.4-1", ""),
    ("datacenter-gpu-manager-4-core", "1:4.2.3-2", ""),
    # names and relations as Ubuntu 24.04 has them (packages.ubuntu.com, noble-updates)
    ("linux-image-6.8.0-57-generic", "6.8.0-57.59", "Depends: linux-modules-6.8.0-57-generic\n"),
    ("linux-modules-6.8.0-57-generic", "6.8.0-57.59", ""),
    ("linux-headers-6.8.0-57-generic", "6.8.0-57.59", ""),
    ("linux-image-6.8.0-60-generic", "6.8.0-60.63", "Depends: linux-modules-6.8.0-60-generic\n"),
    ("linux-modules-6.8.0-60-generic", "6.8.0-60.63", ""),
    ("linux-image-generic", "6.8.0-60.63", "Depends: linux-image-6.8.0-60-generic\n"),
    ("site-agent", "1.0", "Depends: libnccl2 (<< 2.22)\n"),
)
INSTALLED = ("nvidia-driver-535-server", "nvidia-fabricmanager-535", "libnccl2_2.21.5-1+cuda12.4")
INSTALLED += ("beegfs-client_7.4.5",)
NIC_A, NIC_B, DPU = "0000:1a:00.0", "0000:3c:00.0", "0000:9d:00.0"
CONFIG = {
    "LINK_TYPE_P1": "ETH(2)",
    "SRIOV_EN": "False(0)",
    "NUM_OF_VFS": 16,
    "INTERNAL_CPU_MODEL": "EMBEDDED_CPU(1)",
    "INTERNAL_CPU_OFFLOAD_ENGINE": "ENABLED(0)",
    "ROCE_ADAPTIVE_ROUTING_EN": "False(0)",
    "USER_PROGRAMMABLE_CC": "False(0)",
    "TX_SCHEDULER_LOCALITY_MODE": "DEVICE_DEFAULT(0)",
}


UNITS = ("nvidia-fabricmanager", "nvidia-persistenced", "nvlsm", "beegfs-client", "nvidia-dcgm")


def fresh_state() -> dict[str, Any]:
    """Two SuperNICs and a DPU at old firmware; driver 535; nothing of DOCA."""
    return {
        "cards": {
            NIC_A: _card("MT_0000001010", 0, "B3140L E-Series FHHL SuperNIC; 400GbE"),
            NIC_B: _card("MT_0000001010", 1, "B3140L E-Series FHHL SuperNIC; 400GbE"),
            DPU: _card("MT_0000000884", 2, "B3220 P-Series FHHL DPU; 200GbE"),
        },
        "drives": {"nvme0": make_drive("032510B842C5"), "nvme1": make_drive("132510B824CD")},
        "driver_loaded": "535.129.03",
        "fabric_state": "Completed",
        "bridges": ["0000:00:01.0", "0000:00:02.0"],  # the second has no ACS
        "registers": {
            NIC_A: {"CAP_EXP+8.w": "2936"},
            NIC_B: {"CAP_EXP+8.w": "2926"},
            "0000:00:01.0": {"ECAP_ACS+6.w": "001d"},
        },
        "persistence": False,
        "modules": [],
        "ofed": "",
        "ofed_removals": 0,
        "burns": 0,
        "units": [
            "nvidia-fabricmanager",
            "nvidia-persistenced",
            "nvlsm",
            "beegfs-client",
            "nvidia-dcgm",
        ],
        "units_enabled": [],
        "units_running": [],
        "faults": {},
    }


def make_drive(serial: str, **other: Any) -> dict[str, Any]:
    """A data drive with three slots, the first read-only, as delivered.

    source: OVH's guide to firmware of the Micron 7500 (model, serials, E3MQ001 to E3MQ005).
    """
    return {
        "serial": serial,
        "model": "MTFDKCC1T9TGP-1BK1DABYY",
        "running": "E3MQ001",
        "slots": {"1": "E3MQ001", "2": "E3MQ001"},
        "active": 2,
        "next": 0,
        "announces": True,
        "asks": "",  # the reset that a commit asks for, as nvme-cli names it
        "oacs": 0x5E,
        "frmw": 0x17,
        "downloads": 0,
    } | other


def _card(psid: str, number: int, about: str) -> dict[str, Any]:
    entry = {"modified": False, "read_only": False}
    return {
        "type": "BlueField3",
        "psid": psid,
        "part": "900-9D3B4-00EN-E_Ax",
        "description": f"NVIDIA BlueField-3 {about}",
        "flash": "32.43.1014",
        "running": "32.43.1014",
        "bundle": "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod",
        "config": {
            name: {"current_value": v, "default_value": v, "next_value": v, **entry}
            for name, v in CONFIG.items()
        },
        "net": f"enp{number + 1}s0np0",
        "rdma": f"mlx5_{number}",
        "rshim": number,
        "runtime": {},
    }


def make_mirror(folder: Path) -> None:
    """A repository as apt reads it from a folder, of packages that hold nothing."""
    folder.mkdir()
    index = []
    for name, version, more in PACKAGES:
        tree = folder / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
        control += f"Maintainer: test <test@example.invalid>\nDescription: stand-in\n{more}"
        (tree / "DEBIAN" / "control").write_text(control)
        if name.startswith("linux-image-6"):
            (tree / "boot").mkdir()
            (tree / "boot" / name.replace("linux-image", "vmlinuz")).touch()
        file = folder / f"{name}_{version.replace(':', '')}.deb"
        line = ["dpkg-deb", "-Znone", "--root-owner-group", "-b", str(tree), str(file)]
        subprocess.run(line, check=True, capture_output=True)
        subprocess.run(["rm", "-r", tree], check=True)
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        index.append(f"{control}Filename: ./{file.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(index))


def furnish(host: Host, mirror: Path, install: str = "") -> None:
    """Stand-ins, an own package database, the mirror, and the folders that tools expect.

    `install` is the command that installs packages first, from the mirror.
    """
    host.copy(STANDINS, "/usr/local/lib/standins")
    host.run("rm -rf /srv/mirror /srv/dpkg.fresh")
    host.copy(mirror, "/srv/mirror")
    for place, name in PLACES.items():
        program = "/usr/local/lib/standins/standin.py"
        host.put(place, f'#!/bin/sh\nexec /usr/bin/python3 -S -E {program} {name} "$@"\n', 0o755)
    host.put("/etc/apt/sources.list", "deb [trusted=yes] file:/srv/mirror ./\n")
    host.put(
        "/etc/apt/apt.conf.d/zz-test", 'APT::Sandbox::User "root";\nAcquire::Languages "none";'
    )
    host.run(
        "rm -rf /etc/apt/sources.list.d/* /var/lib/apt/lists/* /var/lib/dpkg"
        " /etc/modules-load.d/* && mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates"
        " /var/lib/dpkg/triggers /opt/mellanox/doca/tools /lib/modules/$(uname -r)/build"
        " && touch /lib/modules/$(uname -r)/build/Makefile"
        " && touch /var/lib/dpkg/status /var/lib/dpkg/available"
    )
    host.put("/var/lib/standins/state.json", json.dumps(fresh_state()))
    debs = [f"/srv/mirror/{n}*.deb" for n in INSTALLED]
    install = install or f"dpkg -i {' '.join(debs)}"
    host.run(f"{install} && cp -a /var/lib/dpkg /srv/dpkg.fresh")
    host.run("HOST_COLD=1 /usr/local/lib/standins/boot")


def refresh(host: Host, *, cold: bool = True, **changes: Any) -> None:
    """As it was furnished and powered on, with some of its state other than usual."""
    host.put("/var/lib/standins/state.json", json.dumps(fresh_state() | changes))
    host.run(
        "rm -rf /var/lib/dpkg /var/cache/provisioner /etc/modules-load.d/* /srv/fill"
        " /boot/* /etc/default/grub.d/90-*"
        " && cp -a /srv/dpkg.fresh /var/lib/dpkg"
        f" && HOST_COLD={int(cold)} /usr/local/lib/standins/boot"
    )


def state_of(host: Host) -> dict[str, Any]:
    """The truth behind the stand-ins."""
    found: dict[str, Any] = json.loads(host.get("/var/lib/standins/state.json"))
    return found


def versions_of(host: Host) -> dict[str, str]:
    """Package to version, as dpkg says."""
    lines = host.run("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'").stdout
    cells = [line.split() for line in lines.splitlines()]
    return {c[0]: c[1] for c in cells if c[2] in ("ii", "hi")}


def held_of(host: Host) -> list[str]:
    """The packages on hold, as apt says."""
    return host.run("apt-mark showhold").stdout.split()


@dataclass
class Ended:
    """How a play ended on one host."""

    ok: bool
    changed: int
    result: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    unreachable: bool = False


def play(
    name: str, calls: Mapping[Host, Mapping[str, Any]], folder: Path, *, check: bool = False
) -> dict[str, Ended]:
    """Run one of our plays for some hosts, each with its variables; how it ended, by host name."""
    process, events = start(name, calls, folder, check=check)
    out, _ = process.communicate(timeout=300)
    return ended(events, out.decode(errors="replace"), [h.name for h in calls])


def start(
    name: str, calls: Mapping[Host, Mapping[str, Any]], folder: Path, *, check: bool = False
) -> tuple[subprocess.Popen[bytes], Path]:
    """Begin it; the process and the file of its events."""
    own = folder / f"run-{time.monotonic_ns()}"
    own.mkdir(parents=True)
    inventory = {"all": {"hosts": {h.name: {**at(h), **v} for h, v in calls.items()}}}
    (own / "hosts.json").write_text(json.dumps(inventory))
    line = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(own / "hosts.json")]
    line += [str(ANSIBLE / "playbooks" / f"{name}.yml"), *(["--check"] if check else [])]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(own),
        "LANG": "C.UTF-8",
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": str(ANSIBLE / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "provisioner_events",
        "ANSIBLE_NOCOLOR": "1",
        "PROVISIONER_EVENTS": str(own / "events"),
    }
    process = subprocess.Popen(
        line, cwd=own, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return process, own / "events"


def at(host: Host) -> dict[str, str]:
    """How Ansible reaches it."""
    known = f"-o UserKnownHostsFile={host.known_hosts} -o ControlPath=none"
    return {
        "ansible_host": host.address,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(host.key),
        "ansible_ssh_common_args": f"{known} -o ConnectTimeout=5",
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def ended(events: Path, output: str, names: Iterable[str]) -> dict[str, Ended]:
    """The verdicts of a run's events."""
    found = {n: Ended(ok=False, changed=0, message=output[-2000:]) for n in names}
    with contextlib.suppress(FileNotFoundError):
        for line in events.read_text().splitlines():
            event = json.loads(line)
            host = found.get(event.get("host", ""))
            if event["event"] == "result" and host:
                host.result = event["fact"]
            elif event["event"] in ("failed", "unreachable", "item_failed") and host:
                if event["message"] != "One or more items failed":
                    host.message = event["message"]
                host.unreachable = event["event"] == "unreachable"
            elif event["event"] == "end":
                for name, counts in event["hosts"].items():
                    found[name].ok = not (counts["failures"] or counts["unreachable"])
                    found[name].changed = counts["changed"]
    return found
