"""Disks of a simulated host: their true content, regardless of the writer.

A disk's first bytes are real (an image's digest can be read back); everything after them is zero.
Writes and erasures are also in the machine's log: "image" and "erase" with the slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.integrations.sim.hardware.parts import Device

SIZE = 3_840_755_982_336  # bytes of a common 3.84 TB NVMe disk
READ_MAX = 64 * 1024 * 1024  # bytes that one read hashes; no caller needs more
NVME_METHODS = {  # method -> seconds
    "nvme_sanitize_crypto": 4.0,
    "nvme_sanitize_block": 180.0,
    "nvme_format_crypto": 6.0,
    "nvme_format_user_data": 45.0,
    "overwrite": 1800.0,
}


@dataclass
class Disk:
    """One disk. `content` is its first bytes; `holds` names their owner."""

    device: Device  # of the machine: a new part brings a new serial
    name: str  # "/dev/nvme0n1"
    content: bytes
    holds: str = "factory"  # factory | tenant | erased | image | part of an image
    bootable: bool = False
    size: int = SIZE
    system: str = ""  # the stamp that its system writes at its first boot
    drive: str = ""  # configuration drive that came with its image: gzip, base64
    packages: dict[str, str] = field(default_factory=dict)  # installed by its image
    booted: bool = True  # whether its system has booted already
    # source: firmware slots as the NVM Express Base Specification has them (log page 03h, FRMW);
    # revisions of a Micron 7500, as OVH's guide to its firmware prints them
    firmware: str = "E3MQ001"
    slots: dict[int, str] = field(default_factory=lambda: {1: "E3MQ001", 2: "E3MQ001"})
    active_slot: int = 2
    next_slot: int = 0  # what the next reset activates

    def write_firmware(self, revision: str) -> None:
        """Place an image in the slot that does not run; slot 1 is read-only."""
        self.next_slot = 3 if self.active_slot == 2 else 2
        self.slots[self.next_slot] = revision

    def activate_firmware(self) -> bool:
        """Run what was chosen for this reset; whether that changed anything."""
        if not self.next_slot:
            return False
        self.active_slot = self.next_slot
        self.next_slot = 0
        self.firmware = self.slots[self.active_slot]
        return True

    def erase(self) -> None:
        """Remove everything from it."""
        self.content = b""
        self.holds = "erased"
        self.bootable = False
        self.system = ""

    def begin_image(self) -> None:
        """Start an image: the previous content is gone, the new one is not there yet."""
        self.content = b"\0"
        self.holds = "part of an image"
        self.bootable = False

    def write(self, image: bytes, *, whole: bool) -> None:
        """Finish an image, or store the part of it that arrived."""
        self.content = image
        self.bootable = whole
        self.holds = "image" if whole else "part of an image"

    def digest(self, offset: int = 0, count: int | None = None) -> str:
        """SHA-256 of a range; raises `ValueError` for one beyond the disk or too long."""
        count = len(self.content) - offset if count is None else count
        if offset < 0 or count < 0 or offset + count > self.size or count > READ_MAX:
            raise ValueError(f"{count} bytes at {offset}")
        return hashlib.sha256(self.content[offset : offset + count].ljust(count, b"\0")).hexdigest()

    def describe(self) -> dict[str, Any]:
        """The disk as the hardware manager's `provisioner_disks` lists it (docs/erasure.md)."""
        return {
            "name": self.name,
            "serial": self.device.serial,
            "wwn": f"eui.{hashlib.sha256(self.device.serial.encode()).hexdigest()[:16]}",
            "model": self.device.model,
            "size": self.size,
            "transport": "nvme",
            "read_only": False,
            # nvme-cli `id-ctrl`: sanitize crypto and block, format and security commands, secure
            # erase with a new key
            "nvme": {"sanicap": 0x3, "oacs": 0x7, "fna": 0x4},
            "ata": None,
        }

    def list_block_device(self) -> dict[str, Any]:
        """The disk as ironic-python-agent lists it (hardware.py, BlockDevice)."""
        description = self.describe()
        same = {k: description[k] for k in ("name", "model", "size", "serial", "wwn")}
        return {
            **same,
            "rotational": False,
            "vendor": None,
            "wwn_with_extension": description["wwn"],
            "wwn_vendor_extension": None,
            "hctl": None,
            "by_path": None,
            "logical_sectors": 512,
            "physical_sectors": 512,
            "tran": "nvme",
        }


def fit_disks(devices: Mapping[str, Device]) -> dict[str, Disk]:
    """The disks of a new machine by slot; the first is its boot disk, with a factory system."""
    slots: dict[str, Disk] = {}
    for number, device in enumerate(d for d in devices.values() if d.kind == "storage"):
        content = f"factory content of {device.serial}".encode()
        name = f"/dev/nvme{number}n1"
        slots[device.slot] = Disk(device, name, content, bootable=number == 0)
    return slots


def choose_disk(disks: Mapping[str, Disk], hints: Mapping[str, Any]) -> Disk | None:
    """The disk that matches root device hints; without hints the smallest, as the agent does."""
    present = [d for d in disks.values() if d.device.present]
    fitting = [
        d for d in present if all(d.list_block_device().get(k) == v for k, v in hints.items() if v)
    ]
    return min(fitting, key=lambda d: (d.size, d.name), default=None)
