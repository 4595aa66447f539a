"""Disks of a simulated host: what is truly on them, whoever wrote it.

A disk's first bytes are real (an image's digest can be read back); behind them everything is zero.
What was written and erased is also in the machine's log: "image" and "erase" with the slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.sim.hardware.parts import Device

SIZE = 3_840_755_982_336  # bytes of a common 3.84 TB NVMe disk
READ_MAX = 64 * 1024 * 1024  # bytes that are hashed for one read; more is never asked of it
NVME_METHODS = {  # method -> seconds
    "nvme_sanitize_crypto": 4.0,
    "nvme_sanitize_block": 180.0,
    "nvme_format_crypto": 6.0,
    "nvme_format_user_data": 45.0,
    "overwrite": 1800.0,
}


@dataclass
class Disk:
    """One disk. `content` is its first bytes; `holds` says in a word whose they are."""

    device: Device  # of the machine: its serial may change with the part
    name: str  # "/dev/nvme0n1"
    content: bytes
    holds: str = "factory"  # factory | tenant | erased | image | part of an image
    bootable: bool = False
    size: int = SIZE
    system: str = ""  # the stamp that its system leaves at its first boot
    packages: dict[str, str] = field(default_factory=dict)  # that come with its image
    booted: bool = True  # whether its system has run already

    def erase(self) -> None:
        """Nothing is on it any more."""
        self.content, self.holds, self.bootable, self.system = b"", "erased", False, ""

    def begin(self) -> None:
        """An image is being written: what was there is gone, what comes is not there yet."""
        self.content, self.holds, self.bootable = b"\0", "part of an image", False

    def write(self, image: bytes, *, whole: bool) -> None:
        """An image has been written, or the part of it that came."""
        self.content, self.bootable = image, whole
        self.holds = "image" if whole else "part of an image"

    def digest(self, offset: int = 0, count: int | None = None) -> str:
        """SHA-256 of a range; raises `ValueError` for one that is not on the disk or too long."""
        count = len(self.content) - offset if count is None else count
        if offset < 0 or count < 0 or offset + count > self.size or count > READ_MAX:
            raise ValueError(f"{count} bytes at {offset}")
        return hashlib.sha256(self.content[offset : offset + count].ljust(count, b"\0")).hexdigest()

    def described(self) -> dict[str, Any]:
        """As the hardware manager's `provisioner_disks` lists it (docs/erasure.md)."""
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

    def block_device(self) -> dict[str, Any]:
        """As ironic-python-agent lists it (hardware.py, BlockDevice)."""
        told = self.described()
        same = {k: told[k] for k in ("name", "model", "size", "serial", "wwn")}
        return {
            **same,
            "rotational": False,
            "vendor": None,
            "wwn_with_extension": told["wwn"],
            "wwn_vendor_extension": None,
            "hctl": None,
            "by_path": None,
            "logical_sectors": 512,
            "physical_sectors": 512,
            "tran": "nvme",
        }


def fit_disks(devices: Mapping[str, Device]) -> dict[str, Disk]:
    """The disks of a new machine by slot; it boots from the first, which has a factory system."""
    found: dict[str, Disk] = {}
    for number, device in enumerate(d for d in devices.values() if d.kind == "storage"):
        content = f"factory content of {device.serial}".encode()
        name = f"/dev/nvme{number}n1"
        found[device.slot] = Disk(device, name, content, bootable=number == 0)
    return found


def chosen(disks: Mapping[str, Disk], hints: Mapping[str, Any]) -> Disk | None:
    """The disk that fits root device hints; without hints the smallest, as the agent guesses."""
    there = [d for d in disks.values() if d.device.present]
    fitting = [d for d in there if all(d.block_device().get(k) == v for k, v in hints.items() if v)]
    return min(fitting, key=lambda d: (d.size, d.name), default=None)
