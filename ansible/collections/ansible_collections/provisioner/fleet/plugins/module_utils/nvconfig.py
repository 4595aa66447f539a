"""Parses a card's NV configuration as `mlxconfig -e -j /dev/stdout q` prints it.

A value is "True(1)", "ETH(2)" or a bare number; only the number is compared.
"""

from __future__ import annotations

import json
import re

from ansible_collections.provisioner.fleet.plugins.module_utils.tools import Refused, Unreadable

PARAMETER = re.compile(r"^[A-Z][A-Z0-9_]{1,63}(\[\d{1,3}\])?$")
VALUE = re.compile(r"^-?[A-Za-z0-9_.]{1,64}$")
_CODE = re.compile(r"^.{0,64}\((?P<code>-?(?:0x)?[0-9a-fA-F]{1,16})\)$")


def parse_config(text, device):
    """Return {"type", "table": {parameter: {"current", "next", "read_only"}}}; or `Unreadable`."""
    try:
        document = json.loads(text[max(text.find("{"), 0) :])
        entries = [e for e in document.values() if isinstance(e, dict)]
    except (ValueError, AttributeError, RecursionError):
        raise Unreadable(f"mlxconfig printed no JSON about {device}") from None
    if len(entries) != 1 or not isinstance(entries[0].get("tlv_configuration"), dict):
        raise Unreadable(f"mlxconfig printed no configuration of {device}")
    table = {}
    for name, facts in entries[0]["tlv_configuration"].items():
        if isinstance(facts, dict) and "next_value" in facts:
            table[name] = {
                "current": normalize_value(facts.get("current_value")),
                "next": normalize_value(facts["next_value"]),
                "read_only": facts.get("read_only") is True,
            }
    if not table:  # what waits for a reset is read from it: no row is no answer
        raise Unreadable(f"mlxconfig printed no parameter of {device}")
    return {"type": str(entries[0].get("device_type", "")), "table": table}


def normalize_value(value):
    """Return one form for "True(1)", True, "1", "0x1" and 1."""
    if isinstance(value, bool):
        return str(int(value))
    text = str(value).strip()
    match = _CODE.match(text)
    text = match["code"] if match else text
    if re.match(r"^0x[0-9a-fA-F]{1,16}$", text):
        return str(int(text, 16))
    return text


def require_parameters(parameters):
    """Refuse names and values that the tool could interpret in another way."""
    for name, value in parameters.items():
        if not PARAMETER.match(str(name)) or not VALUE.match(str(value)):
            raise Refused(f"{name!r}={value!r} is not an NV-config parameter"[:200])


def find_differences(table, parameters, device):
    """Return the parameters to write, in order; refuse a parameter that the card does not have."""
    changes = {}
    for name, value in parameters.items():
        if name not in table:
            raise Refused(f"{device} has no parameter {name}")
        if table[name]["next"] == normalize_value(value):
            continue
        if table[name]["read_only"]:
            raise Refused(f"{name} of {device} cannot be written")
        changes[name] = str(value)
    return changes
