"""A tenant's BGP and EVPN state in NVUE's answers.

Shapes: NVUE reference, "nv show evpn vni <vni-id> bgp-info", whose names in brackets are lists; "nv
show vrf <vrf-id> router bgp neighbor".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SESSIONS_MAX = 4096  # of one VRF; a tenant has a few
TARGETS_MAX = 1024


def read_targets(answer: Any) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the route targets that a VNI imports and exports; None if they cannot be read."""
    if not isinstance(answer, Mapping):
        return None
    found = []
    for name in ("import-route-target", "export-route-target"):
        value = answer.get(name)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, Mapping | list) or len(listed) > TARGETS_MAX:
            return None
        if not all(isinstance(target, str) for target in listed):
            return None
        found.append(frozenset(listed))
    return found[0], found[1]


def read_states(answer: Any) -> dict[str, str] | None:
    """Return neighbour -> state of its session in lower case; None if one cannot be read."""
    if not isinstance(answer, Mapping) or len(answer) > SESSIONS_MAX:
        return None
    states = {n: e.get("state") if isinstance(e, Mapping) else None for n, e in answer.items()}
    if not all(isinstance(s, str) for s in states.values()):
        return None
    return {str(n): str(s).lower() for n, s in states.items()}
