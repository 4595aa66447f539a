"""The disks of this machine and the erasure abilities that each of them reports.

Only devices that hold data count: no optical drives, RAM disks, loop devices or virtual media
without a size. Names distinguish an NVMe namespace (`/dev/nvme0n1`) from its controller
(`/dev/nvme0`).
"""

from __future__ import annotations

import json
import re
from typing import Any

from provisioner_hardware_manager.commands import Run, run

DISKS_MAX = 128
_DISK = re.compile(
    r"(?:sd[a-z]{1,4}|vd[a-z]{1,3}|nvme\d{1,4}n\d{1,4}|mmcblk\d{1,3}|dasd[a-z]{1,4})"
)
_NAMESPACE = re.compile(r"(/dev/nvme\d{1,4})n\d{1,4}")
_SECURITY = re.compile(r"^Security:\s*$(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def list_disks(run: Run = run) -> list[dict[str, Any]]:
    """Return every disk with its identity and abilities. Raises ValueError if lsblk fails.

    `size` is in bytes. `nvme` and `ata` are None for a disk of another kind, or without an answer.
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
    return [_describe(d, run) for d in devices if _holds_data(d)][:DISKS_MAX]


def find_disk(serial: str, run: Run = run) -> dict[str, Any] | None:
    """Return the disk with this serial; None if there is none, or more than one."""
    same = [d for d in list_disks(run) if d["serial"] == serial.strip()]
    return same[0] if serial.strip() and len(same) == 1 else None


def _holds_data(device: Any) -> bool:
    if not isinstance(device, dict) or device.get("type") != "disk":
        return False
    return bool(_DISK.fullmatch(str(device.get("name")))) and _parse_whole(device.get("size")) > 0


def _describe(device: dict[str, Any], run: Run) -> dict[str, Any]:
    name = f"/dev/{device['name']}"
    transport = str(device.get("tran") or "")
    if not transport:
        transport = "nvme" if _NAMESPACE.fullmatch(name) else ""
    return {
        "name": name,
        "serial": str(device.get("serial") or "").strip(),
        "wwn": str(device.get("wwn") or "").strip(),
        "model": str(device.get("model") or "").strip(),
        "size": _parse_whole(device.get("size")),
        "transport": transport,
        "read_only": device.get("ro") in (True, 1, "1"),
        "nvme": _read_nvme(name, run) if _NAMESPACE.fullmatch(name) else None,
        "ata": _read_ata(name, run) if transport in {"sata", "ata"} else None,
    }


def name_controller(name: str) -> str:
    """Return the controller of an NVMe namespace: Sanitize is a command to the controller."""
    matched = _NAMESPACE.fullmatch(name)
    return matched.group(1) if matched else name


def _read_nvme(name: str, run: Run) -> dict[str, int] | None:
    """Read SANICAP, OACS and FNA (NVM Express Base Specification, Identify Controller)."""
    answer = run("nvme", "id-ctrl", name_controller(name), "-o", "json")
    try:
        fields = json.loads(answer.text) if answer.ok else None
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    return {key: _parse_whole(fields.get(key)) for key in ("sanicap", "oacs", "fna")}


def _read_ata(name: str, run: Run) -> dict[str, bool] | None:
    """Read the Security section of `hdparm -I`: one ability per line, "not" before it denies it."""
    answer = run("hdparm", "-I", name)
    section = _SECURITY.search(answer.text) if answer.ok else None
    if section is None:
        return None
    lines = [" ".join(line.split()) for line in section.group(1).splitlines()]
    return {
        "supported": "supported" in lines,
        "frozen": "not frozen" not in lines,
        "enhanced": "supported: enhanced erase" in lines,
    }


def _parse_whole(value: Any) -> int:
    """Return a non-negative whole number; 0 for anything else."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
