"""What a simulated switch does for tenants' VRFs: route targets of their VNIs, and sessions.

Faults: "rt_stale" (EVPN goes on with nothing), "session_down" (nobody answers outside).
"""

from __future__ import annotations

from typing import Any

from provisioner.sim.switch import Switch
from provisioner.sim.switch_config import Tree


def targets(switch: Switch, vni: str) -> Tree | None:
    """`nv show evpn vni VNI bgp-info` of an L3VNI; None if there is none."""
    for entry in switch.operational.get("vrf", {}).values():
        if vni in _at(entry, "evpn", "vni"):
            stale = "rt_stale" in switch.faults
            bgp = _at(entry, "router", "bgp")
            brought = _at(bgp, "route-import", "from-evpn", "route-target")
            sent = _at(bgp, "route-export", "to-evpn", "route-target")
            return {
                "type": "L3",
                "in-kernel": "on",
                "import-route-target": {} if stale else {target: {} for target in brought},
                "export-route-target": {} if stale else {target: {} for target in sent},
            }
    return None


def sessions(switch: Switch, vrf: str) -> Tree | None:
    """State of each session of a VRF, by neighbour; None where there is no such VRF."""
    known = switch.operational.get("vrf", {})
    if vrf not in known:
        return None
    state = "active" if "session_down" in switch.faults else "established"
    return {peer: {"state": state} for peer in _at(known[vrf], "router", "bgp", "neighbor")}


def _at(tree: Any, *path: str) -> Tree:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}
