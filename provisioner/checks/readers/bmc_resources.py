"""Reads the answers of a BMC: its resources unchanged, by path, and the gaps in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import parse_json, require_list, require_object

Resources = Mapping[str, Mapping[str, Any]]  # path -> body

RESOURCES_MAX = 20_000
# a resource that the service does not offer is no gap in the evidence; every other gap is
_NOT_THERE = "not_offered"


def read_resources(text: str) -> Resources:
    """Return the resources of {"resources": {path: body}, "gaps": [[path, reason, detail], ...]}.

    Raises `Unreadable` if the BMC left a request unanswered: the missing part may be the fault.
    """
    document = require_object(parse_json(text, "Redfish"), "Redfish")
    listed = require_object(document.get("resources"), "resources")
    if not listed or len(listed) > RESOURCES_MAX:
        raise Unreadable(f"Redfish: {len(listed)} resources")
    for entry in require_list(document.get("gaps", []), "gaps"):
        gap = [str(cell) for cell in require_list(entry, "gap")]
        if len(gap) != 3:
            raise Unreadable("Redfish: a malformed gap")
        if gap[1] != _NOT_THERE:
            raise Unreadable(f"Redfish: {gap[0][:120]}: {gap[1]}: {gap[2][:80]}")
    return {path: require_object(body, path[-80:]) for path, body in listed.items()}
