"""What a BlueField's rshim device tells: which card it belongs to, and how far its boot came.

Format of `/dev/rshim<N>/misc`: github.com/Mellanox/rshim-user-space, README. "DPU is ready" in its
log means that the system on the Arm cores is up (NVIDIA, "Deploying BlueField Software Using BFB").
"""

from __future__ import annotations

import os
import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import Refused, printable

READY = "DPU is ready"
_NAME = re.compile(
    r"^DEV_NAME\s+pcie-(?:lf-)?(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.\d", re.MULTILINE
)
_LOG = re.compile(r"^\s*(?P<level>INFO|WARN|ERR)\[(?P<who>\w+)\]: (?P<text>.+?)\s*$", re.MULTILINE)
MISC_MAX = 64 * 1024


def card(misc):
    """ "0000:1a:00": the card without its function; "" for one that is not on PCIe."""
    match = _NAME.search(misc)
    return match["pci"] if match else ""


def log(misc):
    """(level, text) of the log messages, oldest first."""
    return [(m["level"], printable(m["text"])) for m in _LOG.finditer(misc)]


def find(device, folder="/dev"):
    """The rshim device of a card ("rshim0"); `Refused` if there is none or there are two."""
    wanted = device.lower().rsplit(".", 1)[0]
    found = [
        name
        for name in sorted(os.listdir(folder))
        if re.match(r"^rshim\d+$", name) and card(misc_of(name, folder)) == wanted
    ]
    if len(found) != 1:
        raise Refused("{} rshim devices belong to {}".format(len(found) or "no", device))
    return found[0]


def misc_of(name, folder="/dev"):
    """Content of its misc file, with the log."""
    path = os.path.join(folder, name, "misc")
    try:
        with open(path, "r+") as file:
            file.write("DISPLAY_LEVEL 2\n")
    except OSError:
        pass  # without the log; a device that another driver holds (DROP_MODE) takes no write
    try:
        with open(path, errors="replace") as file:
            return file.read(MISC_MAX)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
