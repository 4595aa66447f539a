"""nvme: id-ctrl, fw-log, fw-download and fw-commit of nvme-cli, as they print and as drives behave.

source of the fields: NVM Express Base Specification 2.0; of the texts: nvme-cli 2.3, nvme.c and
nvme-print-json.c; of `requires conventional reset`: a recorded update of WD SN640 drives
(thomas-krenn.com, "Western Digital SN640 Firmware Updates"); of a read-only slot 1, a refused
action 3 and "Firmware Activate Invalid Slot": recordings of an HGST SN200.
"""

from __future__ import annotations

import json
import os

from standin_state import fail, state

SYS = "/sys/class/nvme"


def nvme(words):
    """`id-ctrl DEV`, `fw-log DEV`, `fw-download DEV --fw=F`, `fw-commit DEV --slot= --action=`."""
    verb, name = words[0], words[1].removeprefix("/dev/")
    options = dict(w.removeprefix("--").split("=", 1) for w in words[2:] if w.startswith("--"))
    with state() as content:
        drive = content["drives"].get(name)
        if drive is None:
            fail(f"/dev/{name}: No such file or directory")
        tools = {"id-ctrl": identify, "fw-log": log, "fw-download": download, "fw-commit": commit}
        code = tools[verb](drive, name, options)
    raise SystemExit(code or 0)  # after the drive's state is stored


def identify(drive, _name, _options):
    """Some fields of `nvme id-ctrl -o json`, padded as the specification has them."""
    identity = {"vid": 4932, "sn": f"{drive['serial']:20}", "mn": f"{drive['model']:40}"}
    identity |= {"fr": f"{drive['running']:8}", "oacs": drive["oacs"], "frmw": drive["frmw"]}
    print(json.dumps(identity, indent=2))


def log(drive, name, _options):
    """`nvme fw-log -o json`."""
    following = drive["next"] if drive["announces"] else 0
    page = {"Active Firmware Slot (afi)": drive["active"] | following << 4}
    for number, revision in sorted(drive["slots"].items()):
        value = int.from_bytes(revision.ljust(8).encode(), "little")
        page[f"Firmware Rev Slot {number}"] = f"{value} ({revision:8})"
    print(json.dumps({name: page}, indent=2))


def download(drive, _name, options):
    """The image is in the drive's buffer; its first line names model and revision."""
    try:
        with open(options["fw"]) as file:
            drive["buffer"] = file.readline().split()
    except OSError:
        fail(f"Failed to open firmware file {options['fw']}: No such file or directory")
    drive["downloads"] += 1
    print("Firmware download success")


def commit(drive, _name, options):
    """Replace a slot's image, or activate one that is there."""
    slot, action = int(options["slot"]), options["action"]
    read_only = slot == 1 and drive["frmw"] & 1
    if action != "2" and (read_only or not 0 < slot <= drive["frmw"] >> 1 & 7):
        fail("NVMe status: Firmware Activate Invalid Slot: the firmware slot is read only(0x106)")
    if action == "3" and not drive["frmw"] & 0x10:
        fail("NVMe status: Invalid Field in Command(0x2)")
    if action != "2":
        model, revision = drive.pop("buffer", None) or ("", "")
        if model != drive["model"]:
            fail("NVMe status: Invalid Firmware Image(0x107)")
        drive["slots"][str(slot)] = revision
    drive["next"] = slot
    if action == "3":
        activate(drive)
    elif drive["asks"]:
        print(f"Success activating firmware action:{action} slot:{slot}, but firmware requires"
              f" {drive['asks']} reset")  # fmt: skip
        return 1
    print(f"Success committing firmware action:{action} slot:{slot}")
    return 0


def activate(drive):
    """A reset of the controller: the announced slot's image runs."""
    if drive["next"]:
        drive["active"], drive["next"] = drive["next"], 0
        drive["running"] = drive["slots"][str(drive["active"])]


def boot(drives):
    """After a reset, with the kernel's view of the drives in sysfs."""
    for name, drive in drives.items():
        activate(drive)
        os.makedirs(f"{SYS}/{name}", exist_ok=True)
        attributes = {"transport": "pcie", "serial": f"{drive['serial']:20}"}
        attributes |= {"model": f"{drive['model']:40}", "firmware_rev": f"{drive['running']:8}"}
        for attribute, value in attributes.items():
            with open(f"{SYS}/{name}/{attribute}", "w") as file:
                file.write(value + "\n")
