"""NVMe drives of a simulated host: the kernel's attributes, `nvme id-ctrl` and `nvme fw-log`.

source: nvme-cli 2.3 (nvme-print-json.c) for the documents, NVM Express Base Specification 2.0 for
their values; OACS and FRMW of drives that tests/ansible/test_drive_readers.py names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provisioner.sim.hardware.disks import Disk
from provisioner.sim.outputs.host import HostView, Output

_OACS = 0x5E
_FRMW = 0x17  # three slots, the first read-only, activation without a reset


def print_drives(view: HostView, _command: str) -> Output:
    """Every drive behind PCIe, as one loop over /sys/class/nvme prints them."""
    lines = []
    for disk in _list_present(view):
        name = disk.name.removeprefix("/dev/").removesuffix("n1")
        serial = f"{disk.device.serial:20}"
        model = f"{disk.device.model:40}"
        lines += [f"drive {name}", "transport pcie", f"serial {serial}", f"model {model}"]
        lines.append(f"firmware_rev {disk.firmware:8}")
        identity = {"vid": 4932, "sn": serial, "mn": model, "fr": f"{disk.firmware:8}"}
        identity |= {"oacs": _OACS, "frmw": _FRMW}
        page: dict[str, Any] = {
            "Active Firmware Slot (afi)": disk.active_slot | disk.next_slot << 4
        }
        for slot, revision in sorted(disk.slots.items()):
            number = int.from_bytes(revision.ljust(8).encode(), "little")
            page[f"Firmware Rev Slot {slot}"] = f"{number} ({revision})"
        lines += [json.dumps(identity, indent=2), json.dumps({name: page}, indent=2)]
    return Output(0, "".join(f"{line}\n" for line in lines))


def select_drives(view: HostView, variables: Mapping[str, Any]) -> dict[str, Disk] | str:
    """The drives that the play is for, by serial number; or the play's refusal."""
    present = {disk.device.serial: disk for disk in _list_present(view)}
    chosen: dict[str, Disk] = {}
    for serial in variables.get("drives") or ():
        if serial not in present:
            return f"no NVMe drive has the serial {serial}"
        chosen[serial] = present[serial]
        model = chosen[serial].device.model
        if model != variables.get("model"):
            return f"{serial} is a {model}, the image is for {variables.get('model')}"
    return chosen


def find_following(disk: Disk) -> str:
    """The revision that runs after the next reset."""
    return disk.slots[disk.next_slot] if disk.next_slot else disk.firmware


def _list_present(view: HostView) -> list[Disk]:
    return [disk for disk in view.machine.disks.values() if disk.device.present]
