"""Obstacles to a tenant's network on a leaf, from the leaf's observed state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.model.expected import DEFAULT_OS
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.tenancy.vrf_plan import VRFS_MAX, LeafPlan

Path = tuple[str, ...]


@dataclass(frozen=True)
class SeenLeaf:
    """A leaf as it was read: `applied` is its configuration, the other fields are operational
    state.

    `vnis` has the requested VRFs. `saved`: the startup configuration equals the applied one.
    """

    switch: str
    applied: Mapping[str, Any]
    vrfs: frozenset[str]
    ports: Mapping[str, str]  # interface -> VRF
    vnis: Mapping[str, frozenset[str]] = field(default_factory=dict)
    saved: bool = True


def list_obstacles(
    leaf: LeafPlan,
    wanted: Mapping[str, Any],
    seen: SeenLeaf,
    *,
    managed: Sequence[str],
    gone: Sequence[str],
) -> tuple[Blocker, ...]:
    """Return every blocker that must be removed before the leaf may be changed; () if none.

    `gone`: VRFs that are to be removed from it.
    """
    mine = {v for v in wanted.get("vrf", {}) if v in managed}
    blockers = [*_unprepared(leaf, seen, wanted), *list_occupied(seen, gone)]
    blockers += [*_conflicts(seen, wanted, mine, managed), *_uplinks(leaf, seen, mine)]
    after = {v for v in list_vrf_names(seen) if v not in gone} | mine
    if len(after - {"default"}) > VRFS_MAX:
        detail = f"{len(after)} VRFs are more than its {VRFS_MAX} tables hold"
        remedy = "Limit tenants to scalable units, or delete one."
        blockers.append(make_blocker(Reason.QUOTA, leaf.switch, detail, remedy))
    return tuple(blockers)


def _unprepared(leaf: LeafPlan, seen: SeenLeaf, wanted: Mapping[str, Any]) -> Iterator[Blocker]:
    """Return blockers for missing parts of the leaf's base configuration."""
    if not wanted:
        return
    if leaf.os != DEFAULT_OS:
        detail = f"no form of a tenant's L3VNI, targets and policy is published for {leaf.os}"
        remedy = "Let the site prepare the VRF, and list the tenant without a number."
        yield make_blocker(Reason.NOT_OFFERED, leaf.switch, detail, remedy)
        return
    remedy = "Bring the leaf's base configuration to the plan first."
    for feature, path in (("EVPN", ("evpn",)), ("VXLAN", ("nve", "vxlan"))):
        tree = read_subtree(seen.applied, path)
        if tree.get("enable") != "on" and tree.get("state") != "enabled":
            detail = f"{feature} is not enabled, and tenants' routes use it"
            yield make_blocker(Reason.PRECONDITION, leaf.switch, detail, remedy)
    own = read_subtree(seen.applied, ("router", "bgp")).get("autonomous-system")
    if own is not None and str(own) != str(leaf.asn):
        detail = f"its AS number is {str(own)[:20]}, and the plan's is {leaf.asn}"
        yield make_blocker(Reason.PRECONDITION, leaf.switch, detail, remedy)
    storage = {v for v, t in wanted["vrf"].items() if "evpn" not in t}
    for name in sorted(v for v in storage if not has_vrf(seen, v)):
        detail = f"there is no VRF {name} here to import from"
        yield make_blocker(Reason.PRECONDITION, f"{leaf.switch}/{name}", detail, remedy)


def list_occupied(seen: SeenLeaf, gone: Iterable[str]) -> Iterator[Blocker]:
    """Return blockers for VRFs that have a port, by configuration or by operational state."""
    configured = {
        name: read_subtree(entry, ("ip",)).get("vrf")
        for name, entry in read_subtree(seen.applied, ("interface",)).items()
        if isinstance(entry, Mapping)
    }
    for vrf in gone:
        inside = {n for where in (seen.ports, configured) for n, v in where.items() if v == vrf}
        if inside:
            listed = ", ".join(sorted(inside)[:4]) + (" ..." if len(inside) > 4 else "")
            detail = f"{len(inside)} ports are in it: {listed}"
            remedy = "Reclaim the nodes; it is removed when no port is in it."
            yield make_blocker(Reason.ISOLATION, f"{seen.switch}/{vrf}", detail, remedy)


def _conflicts(
    seen: SeenLeaf, wanted: Mapping[str, Any], mine: set[str], managed: Sequence[str]
) -> Iterator[Blocker]:
    """Return blockers for our VNIs or targets in foreign VRFs, and for our VRFs with foreign
    VNIs.
    """
    held = {v: t for v, t in read_subtree(seen.applied, ("vrf",)).items() if isinstance(t, Mapping)}
    for vrf in sorted(mine):
        tree = wanted["vrf"][vrf]
        vnis, targets = set(read_subtree(tree, ("evpn", "vni"))), _targets(tree)
        foreign_vnis = set(read_subtree(held.get(vrf, {}), ("evpn", "vni"))) - vnis
        if foreign_vnis:
            detail = f"it is there with VNI {', '.join(sorted(map(str, foreign_vnis)))[:60]}"
            remedy = "It is a foreign VRF: choose another name, or remove it there."
            yield make_blocker(Reason.ISOLATION, f"{seen.switch}/{vrf}", detail, remedy)
        for foreign in sorted(set(held) - {vrf} - set(managed)):
            both = (vnis & set(read_subtree(held[foreign], ("evpn", "vni")))) | (
                targets & _targets(held[foreign])
            )
            if both:
                detail = f"it uses {', '.join(sorted(both))}, which is {vrf}'s"
                remedy = "Remove it there: its routes and the tenant's would mix."
                yield make_blocker(
                    Reason.ISOLATION, f"{seen.switch}/{foreign}"[:80], detail, remedy
                )


def _uplinks(leaf: LeafPlan, seen: SeenLeaf, mine: set[str]) -> Iterator[Blocker]:
    for port in leaf.uplinks:
        if seen.ports.get(port) in mine:
            detail = f"an uplink is in {seen.ports[port]}: adaptive routing stops there"
            remedy = "Bring it back to the default VRF."
            yield make_blocker(Reason.ISOLATION, f"{leaf.switch}/{port}", detail, remedy)


def _targets(vrf: Mapping[str, Any]) -> set[str]:
    bgp = read_subtree(vrf, ("router", "bgp"))
    return set(read_subtree(bgp, ("route-import", "from-evpn", "route-target"))) | set(
        read_subtree(bgp, ("route-export", "to-evpn", "route-target"))
    )


def has_vrf(seen: SeenLeaf, vrf: str) -> bool:
    """Return whether the leaf has this VRF, by configuration or by operational state."""
    return vrf in list_vrf_names(seen)


def list_vrf_names(seen: SeenLeaf) -> set[str]:
    """Return the names of all VRFs of the leaf."""
    return set(seen.vrfs) | set(read_subtree(seen.applied, ("vrf",)))


def read_subtree(tree: object, path: Path) -> Mapping[str, Any]:
    """Return the mapping at a path; {} where a switch has another value or none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def make_blocker(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    """Return a blocker of these fields."""
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
