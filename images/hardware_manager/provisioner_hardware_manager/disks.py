"""The disks of this machine and the erasure abilities that each of them reports.

Only devices that hold data count: no optical drives, RAM disks, loop devices or virtual media
without a size. Names distinguish an NVMe namespace (`/dev/nvme0n1`) from its controller
(`/dev/nvme0`). All namespaces of a drive are one disk, by the name of the first; a drive without a
namespace has the controller's name.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from provisioner_hardware_manager import ata_drives, nvme_drives, scsi_drives
from provisioner_hardware_manager.commands import Run, run
from provisioner_hardware_manager.inventory import read_text
from provisioner_hardware_manager.nvme_drives import parse_whole

DISKS_MAX = 128
_DISK = re.compile(
    r"(?:sd[a-z]{1,4}|vd[a-z]{1,3}|nvme\d{1,4}n\d{1,4}|mmcblk\d{1,3}|dasd[a-z]{1,4})"
)
_NAMESPACE = re.compile(r"(/dev/nvme\d{1,4})n\d{1,4}")
ATA = frozenset({"sata", "ata"})  # transports, as lsblk names them
CONTROLLERS = Path("/sys/class/nvme")


def list_disks(run: Run = run) -> list[dict[str, Any]]:
    """Return every disk with its identity and abilities. Raises ValueError if lsblk fails.

    `size` is that of the first namespace, in bytes. `nvme`, `ata` and `scsi` are None for a disk of
    another kind, or without an answer.
    """
    answer = run(
        "lsblk",
        "--json",
        "--bytes",
        "--nodeps",
        "--output",
        "NAME,TYPE,SIZE,SERIAL,WWN,MODEL,TRAN,RO",
    )
    if not answer.ok:
        raise ValueError(f"lsblk: {answer.error}")
    devices = json.loads(answer.text).get("blockdevices", [])
    described: list[dict[str, Any]] = []
    drives: dict[tuple[str, str], dict[str, Any]] = {}
    for device in (d for d in devices if _holds_data(d)):
        key = _name_drive(device)
        if key in drives:
            drives[key]["names"].append(f"/dev/{device['name']}")
        elif len(described) < DISKS_MAX:
            described.append(_describe(device, run))
            if key is not None:
                drives[key] = described[-1]
    empty = _list_empty_drives(CONTROLLERS, {d["serial"] for d in described}, run)
    return [*described, *empty][:DISKS_MAX]


def _name_drive(device: dict[str, Any]) -> tuple[str, str] | None:
    """Return (controller, serial) of an NVMe namespace; None for anything else."""
    name = f"/dev/{device['name']}"
    serial = str(device.get("serial") or "").strip()
    return (name_controller(name), serial) if _NAMESPACE.fullmatch(name) and serial else None


def _list_empty_drives(folder: Path, listed: set[str], run: Run) -> list[dict[str, Any]]:
    """Return the NVMe drives of this machine that have no namespace, as the kernel lists them."""
    try:
        controllers = sorted(folder.iterdir())
    except OSError:
        return []
    drives = []
    for controller in controllers:
        serial = read_text(controller / "serial")
        if read_text(controller / "transport") != "pcie" or not serial or serial in listed:
            continue
        model = read_text(controller / "model")
        device = {"name": controller.name, "serial": serial, "model": model, "tran": "nvme"}
        drives.append({**_describe(device, run), "names": []})
    return drives


def find_disk(serial: str, run: Run = run) -> dict[str, Any] | None:
    """Return the disk with this serial; None if there is none, or more than one."""
    same = [d for d in list_disks(run) if d["serial"] == serial.strip()]
    return same[0] if serial.strip() and len(same) == 1 else None


def _holds_data(device: Any) -> bool:
    if not isinstance(device, dict) or device.get("type") != "disk":
        return False
    return bool(_DISK.fullmatch(str(device.get("name")))) and parse_whole(device.get("size")) > 0


def _describe(device: dict[str, Any], run: Run) -> dict[str, Any]:
    name = f"/dev/{device['name']}"
    serial = str(device.get("serial") or "").strip()
    transport = str(device.get("tran") or "")
    if not transport:
        transport = "nvme" if _NAMESPACE.fullmatch(name) else ""
    is_nvme = _NAMESPACE.fullmatch(name) is not None or transport == "nvme"
    return {
        "name": name,
        "names": [name],
        "serial": serial,
        "wwn": str(device.get("wwn") or "").strip(),
        "model": str(device.get("model") or "").strip(),
        "size": parse_whole(device.get("size")),
        "transport": transport,
        "read_only": device.get("ro") in (True, 1, "1"),
        "nvme": nvme_drives.read_drive(name_controller(name), serial, run) if is_nvme else None,
        "ata": ata_drives.read_drive(name, run) if transport in ATA else None,
        "scsi": scsi_drives.read_sanitize(name, run) if transport == "sas" else None,
    }


def name_controller(name: str) -> str:
    """Return the controller of an NVMe namespace: Sanitize is a command to the controller."""
    matched = _NAMESPACE.fullmatch(name)
    return matched.group(1) if matched else name
