"""Finds NVMe drives by their serial number, and parses what nvme-cli prints about their firmware.

Fields: NVM Express Base Specification 2.0, Identify Controller (figure 275: FR, OACS, FRMW) and the
Firmware Slot Information log page (figure 208: AFI, FRS). JSON as nvme-cli 2.3 prints it; newer
ones print a warning about the name `fw-log` before it.
"""

from __future__ import annotations

import json
import os
import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import (
    Refused,
    Unreadable,
    read,
)

SYS = "/sys/class/nvme"
SLOTS_MAX = 7
# OACS, bit 2: Firmware Commit and Firmware Image Download
_COMMIT_AND_DOWNLOAD = 0x4
_REVISION = re.compile(r"^\d{1,20} \((.{1,8})\)$")  # the number, then its characters


def find_drives(serials, folder=SYS):
    """Return serial -> name of the device, such as nvme0. Raises `Refused` for a missing one."""
    names = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        transport = _read_attribute(folder, name, "transport")
        serial = " ".join(_read_attribute(folder, name, "serial").split())
        if transport == "pcie" and serial in serials:
            if serial in names:
                raise Refused(f"two controllers have the serial {serial}: {names[serial]}, {name}")
            names[serial] = name
    if missing := [serial for serial in serials if serial not in names]:
        raise Refused("no NVMe drive has the serial {}".format(", ".join(missing)))
    return {serial: names[serial] for serial in serials}


def _read_attribute(folder, name, attribute):
    try:
        with open(os.path.join(folder, name, attribute)) as file:
            return file.read(256).strip()
    except OSError:
        return ""


def read_drive(name):
    """Return model, running revision, slots and capabilities of a drive. Raises `Refused`."""
    device = "/dev/" + name
    identity = parse_document(read(["nvme", "id-ctrl", device, "-o", "json"]), device)
    log = parse_document(read(["nvme", "fw-log", device, "-o", "json"]), device)
    slots = next((v for v in log.values() if isinstance(v, dict)), {})
    numbers = [identity.get(f) for f in ("oacs", "frmw")]
    numbers.append(slots.get("Active Firmware Slot (afi)"))
    model, running = identity.get("mn"), identity.get("fr")
    if not all(isinstance(n, int) for n in numbers) or not all(
        isinstance(t, str) and t.strip() for t in (model, running)
    ):
        raise Unreadable(f"nvme printed no identity or no firmware slots of {device}")
    oacs, frmw, afi = numbers
    return {
        "model": " ".join(model.split()),
        "running": running.strip(),
        "slots": parse_slots(slots),
        "active": afi & 0x7,  # the slot from which the running revision was loaded
        "next": afi >> 4 & 0x7,  # the slot that the next reset activates; 0: not announced
        "writable": list_writable_slots(frmw),
        "takes_firmware": bool(oacs & _COMMIT_AND_DOWNLOAD),
        "takes_it_at_once": bool(frmw & 0x10),
    }


def parse_document(text, device):
    """Return the one JSON object in a tool's output. Raises `Unreadable`."""
    try:
        document, _end = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Unreadable(f"nvme printed no JSON about {device}")
    return document


def parse_slots(slots):
    """Return number of a slot -> revision in it; empty slots are left out."""
    revisions = {}
    for number in range(1, SLOTS_MAX + 1):
        match = _REVISION.match(str(slots.get(f"Firmware Rev Slot {number}", "")))
        if match and match[1].strip():
            revisions[number] = match[1].strip()
    return revisions


def list_writable_slots(frmw):
    """Return the slots that firmware may be written to: FRMW bit 0 is a read-only slot 1."""
    count = frmw >> 1 & 0x7
    return [slot for slot in range(1, count + 1) if slot > 1 or not frmw & 0x1]


def choose_slot(drive):
    """Return the slot to write: not the one that runs, if there is another. Raises `Refused`."""
    others = [slot for slot in drive["writable"] if slot != drive["active"]]
    if not drive["writable"]:
        raise Refused("{} has no slot that can be written".format(drive["model"]))
    return (others or drive["writable"])[0]


def find_stored(drive, version):
    """Return the slot that holds a version of a drive that announces no slot; None if none does.

    Whether the next reset activates it is then not shown.
    """
    if drive["next"]:
        return None
    return next((slot for slot, held in drive["slots"].items() if held == version), None)


def find_following(drive):
    """Return the revision that runs after the next reset, as far as the drive shows it."""
    if drive["next"]:
        return drive["slots"].get(drive["next"], drive["running"])
    return drive["running"]
