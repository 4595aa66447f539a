"""In-band inventory: what only somebody inside the machine can see.

Read from the kernel's own files, so that it needs no driver and costs no second. Everything is text
or whole numbers as the kernel prints them; what it means is the daemon's to decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

DEVICES_MAX = 1024  # PCI functions of an HGX host with ten DPUs: some 300
TEXT_MAX = 128
# class codes (PCI Code and ID Assignment Specification): what the provisioner has a use for
KINDS = {
    "0x0302": "gpu",  # 3D controller
    "0x0300": "vga",
    "0x0680": "bridge",  # NVSwitch
    "0x0200": "ethernet",
    "0x0207": "infiniband",
    "0x0108": "nvme",
    "0x0107": "sas",
    "0x0106": "sata",
    "0x0104": "raid",
}
DMI = (
    "sys_vendor", "product_name", "product_serial", "product_uuid", "board_vendor", "board_name",
    "board_serial", "bios_vendor", "bios_version", "bios_date", "chassis_serial",
)  # fmt: skip
LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


def collect(root: Path = Path("/")) -> dict[str, Any]:
    """The inventory below `root` (tests have a tree of their own). Raises nothing."""
    sys = root / "sys"
    return {
        "boot_id": text(root / "proc/sys/kernel/random/boot_id"),
        "kernel": text(root / "proc/sys/kernel/osrelease"),
        "image": text(root / "etc/provisioner-image"),
        "ssh_host_key": text(root / "run/provisioner/ssh_host_ed25519_key.pub", 512),
        "firmware": "uefi" if (sys / "firmware/efi").is_dir() else "bios",
        "dmi": {name: text(sys / "class/dmi/id" / name) for name in DMI},
        "memory_kib": _memory(root / "proc/meminfo"),
        "cpus": text(sys / "devices/system/cpu/online"),
        "numa_nodes": text(sys / "devices/system/node/online"),
        "tpm": text(sys / "class/tpm/tpm0/tpm_version_major"),
        "pci": _pci(sys / "bus/pci/devices"),
        "ports": _ports(sys / "class/net"),
        "rdma": _rdma(sys / "class/infiniband"),
    }


def _pci(folder: Path) -> list[dict[str, str]]:
    found = []
    for device in _entries(folder):
        kind = KINDS.get(text(device / "class")[:6])
        if kind is None:
            continue
        entry = {"address": device.name, "kind": kind}
        for name in (
            "vendor",
            "device",
            "subsystem_vendor",
            "subsystem_device",
            "numa_node",
            *LINK,
        ):
            entry[name] = text(device / name)
        port = device.resolve().parent  # sysfs is a tree: a device lies within the port above it
        for name in LINK[2:]:
            entry[f"port_{name}"] = text(port / name)
        found.append(entry)
    return found


def _ports(folder: Path) -> list[dict[str, str]]:
    """Network ports that are hardware: a device link tells them from bridges and tunnels."""
    return [
        {
            "name": port.name,
            "mac": text(port / "address"),
            "pci": (port / "device").resolve().name,
            "carrier": text(port / "carrier"),
            "speed_mbps": text(port / "speed"),
        }
        for port in _entries(folder)
        if (port / "device").exists()
    ]


def _rdma(folder: Path) -> list[dict[str, str]]:
    return [
        {
            "name": device.name,
            "firmware": text(device / "fw_ver"),
            "board_id": text(device / "board_id"),  # PSID of NVIDIA's cards
            "guid": text(device / "node_guid"),
            "state": text(device / "ports/1/state"),
            "rate": text(device / "ports/1/rate"),
            "link_layer": text(device / "ports/1/link_layer"),
        }
        for device in _entries(folder)
    ]


def _memory(file: Path) -> int:
    for line in text(file, 8192).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal" and rest.split()[:1] and rest.split()[0].isdigit():
            return int(rest.split()[0])
    return 0


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:DEVICES_MAX]
    except OSError:
        return []


def text(file: Path, size_max: int = TEXT_MAX) -> str:
    """What a file of the kernel says; "" if it is not there or does not answer (EINVAL)."""
    try:
        with file.open("rb") as stream:
            return stream.read(size_max).decode("utf-8", "replace").strip()
    except OSError:
        return ""
