"""Reads and changes a SONiC switch by its own tools: sonic-cfggen, config, sonic-installer.

CONFIG_DB is changed by `config apply-patch` only, which validates the whole against the YANG models
and changes all or nothing. Sources: sonic-net, SONiC_Generic_Config_Update_and_Rollback_Design.md
and sonic-utilities, doc/Command-Reference.md.
"""

from __future__ import annotations

import json
import os
import re
import tempfile

from ansible_collections.provisioner.fleet.plugins.module_utils import tools

STARTUP = "/etc/sonic/config_db.json"
VRF_PREFIX = "Vrf"  # SONiC requires it in names of VRFs
_LINE = re.compile(r"^(Current|Next): *(\S+)\s*$")
_IMAGE = re.compile(r"^\S+$")


def parse_images(text):
    """Return the running, the next and all installed images, from `sonic-installer list`."""
    selected, held, listing = {}, [], False
    for line in text.splitlines():
        entry = line.strip()
        match = _LINE.match(entry)
        if match:
            selected[match[1].lower()] = match[2]
        elif entry == "Available:":
            listing = True
        elif listing and _IMAGE.match(entry):
            held.append(entry)
    if "current" not in selected or "next" not in selected or selected["current"] not in held:
        raise tools.Unreadable("sonic-installer lists no running image")
    return {"running": selected["current"], "next": selected["next"], "held": sorted(held)}


def read_configuration():
    """Return the current CONFIG_DB."""
    return parse_tables(tools.read(["sonic-cfggen", "-d", "--print-data"]), "sonic-cfggen")


def read_startup():
    """Return the configuration for the next start; {} where none was ever saved."""
    try:
        with open(STARTUP, encoding="utf-8") as file:
            return parse_tables(file.read(tools.OUTPUT_MAX), STARTUP)
    except FileNotFoundError:
        return {}


def parse_tables(text, source):
    """Return the tables of a configuration: table -> key -> fields."""
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError):
        raise tools.Unreadable(f"{source}: no JSON") from None
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise tools.Unreadable(f"{source}: no tables")
    return tables


def require_tables(config):
    """Refuse input that SONiC accepts without effect: a VRF without its prefix, a non-table."""
    for table, rows in config.items():
        if not isinstance(rows, dict):
            raise tools.Refused(f"{table} is not a table")
        names = list(rows) if table == "VRF" else []
        names += [r["vrf_name"] for r in rows.values() if isinstance(r, dict) and "vrf_name" in r]
        bad = [n for n in names if not str(n).startswith(VRF_PREFIX)]
        if bad:
            raise tools.Refused(f"VRF {bad[0]}: names must begin with {VRF_PREFIX}")


def build_patch(have, want):
    """Return a JSON patch (RFC 6902) that merges `want` into `have`; a null removes a key."""
    steps = []
    for key, value in sorted(want.items()):
        _add_steps(steps, "/" + _escape_pointer(key), have, key, value)
    return steps


def _add_steps(steps, path, have, key, value):
    current = have.get(key)
    if value is None:
        if key in have:
            steps.append({"op": "remove", "path": path})
    elif not isinstance(value, dict):
        if current != _convert_value(value):
            steps.append({"op": "add", "path": path, "value": _convert_value(value)})
    elif not isinstance(current, dict):
        steps.append({"op": "add", "path": path, "value": _convert_value(value)})
    else:
        for inner, inner_value in sorted(value.items()):
            _add_steps(steps, f"{path}/{_escape_pointer(inner)}", current, inner, inner_value)


def _convert_value(value):
    """Convert a value to CONFIG_DB's form: text and lists of text."""
    if isinstance(value, dict):
        return {str(k): _convert_value(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [str(v) for v in value]
    return str(value)


def _escape_pointer(key):
    return str(key).replace("~", "~0").replace("/", "~1")


def apply_patch(steps, lock):
    """Apply all of a patch or nothing. Raises `tools.Refused` with SONiC's message."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(steps, file)
    try:
        tools.write(["config", "apply-patch", file.name], lock)
    finally:
        os.unlink(file.name)
