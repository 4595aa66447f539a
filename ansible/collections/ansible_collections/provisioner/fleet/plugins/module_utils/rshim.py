"""Reads a BlueField's rshim device: the card that it belongs to, and how far its boot came.

Format of `/dev/rshim<N>/misc`: github.com/Mellanox/rshim-user-space, README. "DPU is ready" in its
log means that the system on the Arm cores is up (NVIDIA, "Deploying BlueField Software Using BFB").
"""

from __future__ import annotations

import os
import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import (
    Refused,
    replace_control_characters,
)

READY = "DPU is ready"
_NAME = re.compile(
    r"^DEV_NAME\s+pcie-(?:lf-)?(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.\d", re.MULTILINE
)
# Levels: INFO, WARN, ERR, ASSERT in brackets; " PANIC(BL31): ", " Exception(BL31): " of the card's
# firmware (rshim-user-space, src/rshim_log.c)
# A tool between us and the log may colour its lines, or put the time before them.
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_LOG = re.compile(
    r"^\s*(?:\[[\d:. TZ-]{1,32}\]\s*)?(?P<level>[A-Z][A-Za-z]{2,11}|err|crit|info|warn)"
    r"(?:\[[\w.]{1,16}\]|\([\w.]{1,16}\)):? ?(?P<text>.+?)\s*$",
    re.MULTILINE,
)
_HARMLESS = ("INFO", "WARN")
# a bundle tells some failures at the level INFO, or at none, which the log shows as INFO: "NIC
# firmware update failed", "DPU Golden Image installed failed" (Mellanox/bfb-build, install.sh)
# or what a shell prints of a command that is not there. "0 failures", "without errors" are none.
_SAYS_FAILED = re.compile(
    r"\bfail(?:s|ed|ures?)?\b|\berrors?\b(?!-)|\bunable to\b|\btimed? ?out\b|\babort(?:ed|ing)\b"
    r"|\bno space left\b|\bcommand not found\b|\bkernel panic\b|\brejected\b",
    re.IGNORECASE,
)
_SAYS_NONE = re.compile(r"\b(?:0|no|without(?: any)?) (?:failures?|errors?)\b", re.IGNORECASE)
# a host power cycle activates the firmware, whether the card could reset itself or not (the same)
_NO_RESET = re.compile(r"^(?:INFO: )?NIC Firmware reset failed", re.IGNORECASE)
_FAILED = re.compile(
    r"CRITICAL ERROR|BlueField Update Failed|Transfer/Verify failed|^error: .{1,200}",
    re.MULTILINE | re.IGNORECASE,
)
# bfb-install waits for one of these and ends with exit code 0 (scripts/bfb-install,
# wait_for_update_to_finish); which of them depends on the bundle and on the card's mode
_ENDED = re.compile(
    r"Rebooting|Installation finished|upgrade finished|DPU is ready|Linux up|In Enhanced NIC mode",
    re.IGNORECASE,
)
MISC_MAX = 64 * 1024


def parse_card(misc):
    """Return the card without its function ("0000:1a:00"); "" for one that is not on PCIe."""
    match = _NAME.search(misc)
    return match["pci"] if match else ""


def parse_log(misc):
    """Return (level, text) of the log messages, oldest first."""
    lines = _COLOUR.sub("", misc).replace("\r", "\n")  # a bar of progress ends its line with CR
    found = [(m["level"], replace_control_characters(m["text"])) for m in _LOG.finditer(lines)]
    return [(level.upper() if level.islower() else level, words) for level, words in found]


def list_errors(text):
    """Return what a log, or an output of bfb-install, reports as failed, oldest first.

    Every level is an error that is not known as harmless, and every message that says "failed".
    """
    errors = [
        f"{level}: {words}" if level not in ("ERR", *_HARMLESS) else words
        for level, words in parse_log(text)
        if (level not in _HARMLESS or _says_failed(words)) and not _NO_RESET.match(words)
    ]
    lines = text.replace("\r", "\n")
    errors += [replace_control_characters(match[0]) for match in _FAILED.finditer(lines)]
    return list(dict.fromkeys(errors))


def _says_failed(words):
    return _SAYS_FAILED.search(_SAYS_NONE.sub("", words)) is not None


def has_ended(output):
    """Return whether an output of bfb-install has a message that ends an installation."""
    return any(level == "INFO" and _ENDED.search(words) for level, words in parse_log(output))


def find_device(device, folder="/dev"):
    """Return the rshim device of a card ("rshim0"). Raises `Refused` for none or several."""
    address = device.lower().rsplit(".", 1)[0]
    names = [
        name
        for name in sorted(os.listdir(folder))
        if re.match(r"^rshim\d+$", name) and parse_card(read_misc(name, folder)) == address
    ]
    if len(names) != 1:
        raise Refused("{} rshim devices belong to {}".format(len(names) or "no", device))
    return names[0]


def read_misc(name, folder="/dev"):
    """Return the content of a device's misc file, with the log."""
    path = os.path.join(folder, name, "misc")
    try:
        with open(path, "r+") as file:
            file.write("DISPLAY_LEVEL 2\n")
    except OSError:
        pass  # without the log; a device that another driver holds (DROP_MODE) refuses writes
    try:
        with open(path, errors="replace") as file:
            return file.read(MISC_MAX)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
