"""Reads and changes a SONiC switch by its own tools: sonic-cfggen, config, sonic-installer.

Rule: CONFIG_DB is changed by `config apply-patch` only: it checks the whole against the YANG models
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
VRF_PREFIX = "Vrf"  # SONiC's own rule for names of VRFs
_LINE = re.compile(r"^(Current|Next): *(\S+)\s*$")
_IMAGE = re.compile(r"^\S+$")


def images(text):
    """Running image, next image, and all that are installed, of `sonic-installer list`."""
    found, held, listing = {}, [], False
    for line in text.splitlines():
        words = line.strip()
        match = _LINE.match(words)
        if match:
            found[match[1].lower()] = match[2]
        elif words == "Available:":
            listing = True
        elif listing and _IMAGE.match(words):
            held.append(words)
    if "current" not in found or "next" not in found or found["current"] not in held:
        raise tools.Unreadable("sonic-installer lists no running image")
    return {"running": found["current"], "next": found["next"], "held": sorted(held)}


def configuration():
    """CONFIG_DB as it is."""
    return parse(tools.read(["sonic-cfggen", "-d", "--print-data"]), "sonic-cfggen")


def startup():
    """What the switch starts with; {} where nothing was ever saved."""
    try:
        with open(STARTUP, encoding="utf-8") as file:
            return parse(file.read(tools.OUTPUT_MAX), STARTUP)
    except FileNotFoundError:
        return {}


def parse(text, source):
    """Tables of a configuration: table to key to fields."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise tools.Unreadable(f"{source}: no JSON") from None
    if not isinstance(found, dict) or not all(isinstance(t, dict) for t in found.values()):
        raise tools.Unreadable(f"{source}: no tables")
    return found


def check(config):
    """Refuse what SONiC would take and then not do: a VRF without its prefix, no tables."""
    for table, rows in config.items():
        if not isinstance(rows, dict):
            raise tools.Refused(f"{table} is no table")
        names = list(rows) if table == "VRF" else []
        names += [r["vrf_name"] for r in rows.values() if isinstance(r, dict) and "vrf_name" in r]
        bad = [n for n in names if not str(n).startswith(VRF_PREFIX)]
        if bad:
            raise tools.Refused(f"VRF {bad[0]}: names must begin with {VRF_PREFIX}")


def patch(have, want):
    """A JSON patch (RFC 6902) that makes `have` hold `want`; a null takes a key away."""
    steps = []
    for key, value in sorted(want.items()):
        _step(steps, "/" + _pointer(key), have, key, value)
    return steps


def _step(steps, path, have, key, value):
    there = have.get(key)
    if value is None:
        if key in have:
            steps.append({"op": "remove", "path": path})
    elif not isinstance(value, dict):
        if there != _value(value):
            steps.append({"op": "add", "path": path, "value": _value(value)})
    elif not isinstance(there, dict):
        steps.append({"op": "add", "path": path, "value": _value(value)})
    else:
        for inner, wanted in sorted(value.items()):
            _step(steps, f"{path}/{_pointer(inner)}", there, inner, wanted)


def _value(value):
    """CONFIG_DB knows text and lists of text."""
    if isinstance(value, dict):
        return {str(k): _value(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [str(v) for v in value]
    return str(value)


def _pointer(key):
    return str(key).replace("~", "~0").replace("/", "~1")


def apply_patch(steps, lock):
    """All of it or nothing; raises `tools.Refused` with SONiC's words."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(steps, file)
    try:
        tools.write(["config", "apply-patch", file.name], lock)
    finally:
        os.unlink(file.name)
