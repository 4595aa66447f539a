"""Parses the firmware facts that `flint -d DEVICE q` and `flint -i IMAGE q` print.

Format: mstflint, flint/subcommands.cpp. "FW Version(Running)" is printed only if the running
version differs from the one in flash.
"""

from __future__ import annotations

import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import Unreadable

_LINE = re.compile(r"^(?P<name>[A-Za-z][\w ()]*?):\s+(?P<value>\S.*?)\s*$")
_VERSION = re.compile(r"^\d{1,4}(\.\d{1,5}){2}$")
_PSID = re.compile(r"^[A-Z0-9_]{3,16}$")


def parse_firmware(text, subject):
    """Return {"burned": ..., "running": ..., "psid": ...}. Raises `Unreadable`."""
    values = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            values.setdefault(match["name"], match["value"])
    burned = values.get("FW Version", "")
    running = values.get("FW Version(Running)", burned)
    psid = values.get("PSID", "")
    for name, value, shape in (
        ("version", burned, _VERSION),
        ("running version", running, _VERSION),
        ("PSID", psid, _PSID),
    ):
        if not shape.match(value):
            raise Unreadable(f"flint printed no {name} of {subject}")
    return {"burned": burned, "running": running, "psid": psid}
