"""Reads what a BMC was asked for: its resources as they came, by path, and what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.reading import json_of, mapping, sequence

Resources = Mapping[str, Mapping[str, Any]]  # path -> body

RESOURCES_MAX = 20_000
# a resource that the service does not have is no silence; everything else is
_NOT_THERE = "not_offered"


def resources_of(text: str) -> Resources:
    """{"resources": {path: body}, "gaps": [[path, reason, detail], ...]}.

    Raises `Unreadable` if the BMC left anything unanswered: what is missing may be the fault.
    """
    document = mapping(json_of(text, "Redfish"), "Redfish")
    listed = mapping(document.get("resources"), "resources")
    if not listed or len(listed) > RESOURCES_MAX:
        raise Unreadable(f"Redfish: {len(listed)} resources")
    for entry in sequence(document.get("gaps", []), "gaps"):
        gap = [str(cell) for cell in sequence(entry, "gap")]
        if len(gap) != 3:
            raise Unreadable("Redfish: a gap that is none")
        if gap[1] != _NOT_THERE:
            raise Unreadable(f"Redfish: {gap[0][:120]}: {gap[1]}: {gap[2][:80]}")
    return {path: mapping(body, path[-80:]) for path, body in listed.items()}
