"""In-band inventory: the facts that only software on the machine can read.

It reads the kernel's own files, so that it needs no driver and takes less than a second. All values
are text or whole numbers as the kernel prints them; the daemon interprets them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

DEVICES_MAX = 1024  # PCI functions of an HGX host with ten DPUs: some 300
TEXT_MAX = 128
# class codes (PCI Code and ID Assignment Specification) that the provisioner uses
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
    "sys_vendor",
    "product_name",
    "product_serial",
    "product_uuid",
    "board_vendor",
    "board_name",
    "board_serial",
    "bios_vendor",
    "bios_version",
    "bios_date",
    "chassis_serial",
)
LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


def collect(root: Path = Path("/")) -> dict[str, Any]:
    """Return the inventory below `root` (tests use a tree of their own). Raises nothing."""
    sys = root / "sys"
    return {
        "boot_id": read_text(root / "proc/sys/kernel/random/boot_id"),
        "kernel": read_text(root / "proc/sys/kernel/osrelease"),
        "image": read_text(root / "etc/provisioner-image"),
        "ssh_host_key": read_text(root / "run/provisioner/ssh_host_ed25519_key.pub", 512),
        "firmware": "uefi" if (sys / "firmware/efi").is_dir() else "bios",
        "dmi": {name: read_text(sys / "class/dmi/id" / name) for name in DMI},
        "memory_kib": _read_memory(root / "proc/meminfo"),
        "cpus": read_text(sys / "devices/system/cpu/online"),
        "numa_nodes": read_text(sys / "devices/system/node/online"),
        "tpm": read_text(sys / "class/tpm/tpm0/tpm_version_major"),
        "pci": _read_pci(sys / "bus/pci/devices"),
        "ports": _read_ports(sys / "class/net"),
        "rdma": _read_rdma(sys / "class/infiniband"),
    }


def _read_pci(folder: Path) -> list[dict[str, str]]:
    devices = []
    for device in _list_entries(folder):
        kind = KINDS.get(read_text(device / "class")[:6])
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
            entry[name] = read_text(device / name)
        port = device.resolve().parent  # in sysfs a device is in the folder of the port above it
        for name in LINK[2:]:
            entry[f"port_{name}"] = read_text(port / name)
        devices.append(entry)
    return devices


def _read_ports(folder: Path) -> list[dict[str, str]]:
    """Return the network ports that are hardware: bridges and tunnels have no device link."""
    return [
        {
            "name": port.name,
            "mac": read_text(port / "address"),
            "pci": (port / "device").resolve().name,
            "carrier": read_text(port / "carrier"),
            "speed_mbps": read_text(port / "speed"),
        }
        for port in _list_entries(folder)
        if (port / "device").exists()
    ]


def _read_rdma(folder: Path) -> list[dict[str, str]]:
    return [
        {
            "name": device.name,
            "firmware": read_text(device / "fw_ver"),
            "board_id": read_text(device / "board_id"),  # PSID of NVIDIA's cards
            "guid": read_text(device / "node_guid"),
            "state": read_text(device / "ports/1/state"),
            "rate": read_text(device / "ports/1/rate"),
            "link_layer": read_text(device / "ports/1/link_layer"),
        }
        for device in _list_entries(folder)
    ]


def _read_memory(file: Path) -> int:
    for line in read_text(file, 8192).splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal" and value.split()[:1] and value.split()[0].isdigit():
            return int(value.split()[0])
    return 0


def _list_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:DEVICES_MAX]
    except OSError:
        return []


def read_text(file: Path, size_max: int = TEXT_MAX) -> str:
    """Return the content of a kernel file; "" if it is absent or cannot be read (EINVAL)."""
    try:
        with file.open("rb") as stream:
            return stream.read(size_max).decode("utf-8", "replace").strip()
    except OSError:
        return ""
