#!/usr/bin/python
"""Ansible module: writes firmware to NVMe drives of one model."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drive_firmware
short_description: Writes one firmware image to NVMe drives of one model, one after the other
version_added: "0.1.0"
description:
  - Downloads the image to the drives that do not have the version and commits it to a slot that
    can be written and that does not run, if there is one. It runs after the drive's next reset,
    which is not done here, or at once with I(at_once).
  - A drive of another model, or without the commands for firmware, is refused before anything is
    written.
options:
  drives:
    description: Serial numbers of the drives.
    type: list
    elements: str
    required: true
  model:
    description: Model that every drive must have, as it prints it.
    type: str
    required: true
  version:
    description: Revision that the image holds, such as E3MQ005.
    type: str
    required: true
  image:
    description: Path of the image on the host; needed only if a drive has another version.
    type: path
    required: true
  at_once:
    description: Activate without a reset; drives that cannot do so are refused.
    type: bool
    default: false
  verify:
    description: Write nothing, and fail for a drive that would have to be written.
    type: bool
    default: false
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Write the firmware of the data drives
  provisioner.fleet.drive_firmware:
    drives: [032510B842C5]
    model: MTFDKCC1T9TGP-1BK1DABYY
    version: E3MQ005
    image: /var/cache/provisioner/Micron_7500_E3MQ005_release.ubi
"""

RETURN = r"""
drives:
  description: Serial number to model, running revision, and the revisions in the slots.
  returned: always
  type: dict
written:
  description: Serial number to the revision that runs now or after the next reset.
  returned: always
  type: dict
written_now:
  description: Drives that were written, or would be.
  returned: always
  type: list
  elements: str
waiting:
  description: Drives on which a revision waits for a reset.
  returned: always
  type: list
  elements: str
"""

import re

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvme, tools

# nvme-cli, nvme.c: a status that means success and names the reset that the drive asks for
NEEDS_RESET = re.compile(r"Success activating firmware .*but firmware requires (.+) reset")
# NVM Express Base Specification 2.0, figure 180: Commit Action
AT_RESET, AS_STORED, AT_ONCE = "1", "2", "3"


def refuse_drive(params, serial, drive):
    """Refuse a drive of another model, or one that cannot do what was asked."""
    if drive["model"] != params["model"]:
        text = "{} is a {}, the image is for {}"
        raise tools.Refused(text.format(serial, drive["model"], params["model"]))
    if not drive["takes_firmware"]:
        raise tools.Refused(f"{serial} has no commands for firmware (OACS)")
    if params["at_once"] and not drive["takes_it_at_once"]:
        raise tools.Refused(f"{serial} does not activate firmware without a reset (FRMW)")
    nvme.choose_slot(drive)


def write_drive(params, name, drive, lock):
    """Download the image and commit it; return the slot. Raises `Refused`."""
    device, slot = "/dev/" + name, nvme.choose_slot(drive)
    action = AT_ONCE if params["at_once"] else AT_RESET
    stored = None if params["at_once"] else nvme.find_stored(drive, params["version"])
    if stored is None:
        tools.write(["nvme", "fw-download", device, "--fw=" + params["image"]], lock)
    else:
        slot, action = stored, AS_STORED  # no flash is worn by a second run
    line = ["nvme", "fw-commit", device, f"--slot={slot}", "--action=" + action]
    try:
        tools.write(line, lock)
    except tools.Refused as refused:
        needed = NEEDS_RESET.search(refused.output)
        if needed is None:
            raise
        if params["at_once"]:
            text = "{} has taken the firmware, but asks for a {} reset"
            raise tools.Refused(text.format(device, needed[1])) from None
    return slot


def verify_drive(params, serial, drive, slot):
    """Refuse a drive that does not show the version where it was written."""
    version = params["version"]
    shown = drive["running"] if params["at_once"] else drive["slots"].get(slot)
    if shown != version:
        raise tools.Refused(f"{serial} was written, but shows {shown} and not {version}")
    if not params["at_once"] and drive["next"] not in (0, slot):
        text = "{} was written to slot {}, but activates slot {} at the next reset"
        raise tools.Refused(text.format(serial, slot, drive["next"]))


def refuse_unwritten(params, drives):
    """Refuse drives that neither run the version nor may run it after the next reset."""
    for serial, drive in drives.items():
        if params["at_once"] or nvme.find_stored(drive, params["version"]) is None:
            text = "{} runs {}, and {} after a reset, not {}"
            following = nvme.find_following(drive)
            raise tools.Refused(text.format(serial, drive["running"], following, params["version"]))


def apply(module):
    """Write the drives that differ; return the module's result."""
    params = module.params
    version = params["version"]
    with tools.hold_lock() as lock:
        names = nvme.find_drives(params["drives"])
        drives = {serial: nvme.read_drive(name) for serial, name in names.items()}
        for serial, drive in drives.items():
            refuse_drive(params, serial, drive)
        old = [s for s, d in drives.items() if nvme.find_following(d) != version]
        if params["verify"]:
            refuse_unwritten(params, {s: drives[s] for s in old})
            old = []
        shown = {s: nvme.find_following(d) for s, d in drives.items()}
        written = dict.fromkeys(drives, version) if params["verify"] else shown
        for serial in () if module.check_mode else old:
            slot = write_drive(params, names[serial], drives[serial], lock)
            drives[serial] = nvme.read_drive(names[serial])
            verify_drive(params, serial, drives[serial], slot)
            written[serial] = version
    return {
        "changed": bool(old),
        "drives": drives,
        "written": written,
        "written_now": sorted(old),
        "waiting": sorted(s for s, d in drives.items() if d["running"] != version),
    }


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "drives": {"type": "list", "elements": "str", "required": True},
            "model": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "image": {"type": "path", "required": True},
            "at_once": {"type": "bool", "default": False},
            "verify": {"type": "bool", "default": False},
        },
        apply,
    )


if __name__ == "__main__":
    main()
