"""The change that brings a leaf to the desired state of all tenants, as one revision. Pure.

A state that cannot be read blocks, and a VRF with a port in it is never removed. Sets that isolate
(route targets, VNI, imports, sessions, policy rules) must be equal to the desired ones, never
larger: one extra target leads into another tenant's network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.tenancy.vrf_obstacles import (
    Path,
    SeenLeaf,
    has_vrf,
    list_obstacles,
    make_blocker,
    read_subtree,
)
from provisioner.planning.tenancy.vrf_plan import LeafPlan, Tree, owned_mark

# where every key that is not desired is removed; * is any key
_CLOSED: tuple[Path, ...] = (
    ("vrf", "*", "evpn", "vni"),
    ("vrf", "*", "router", "bgp", "route-export", "to-evpn", "route-target"),
    ("vrf", "*", "router", "bgp", "route-import", "from-evpn", "route-target"),
    ("vrf", "*", "router", "bgp", "address-family", "ipv4-unicast", "route-import", "from-vrf"),
    ("vrf", "*", "router", "bgp", "neighbor"),
)
_IMPORTS = ("router", "bgp", "address-family", "ipv4-unicast", "route-import", "from-vrf", "list")


@dataclass(frozen=True)
class LeafChange:
    """One revision of one leaf: paths to remove, then a tree to merge. Empty: no change."""

    switch: str
    unset: tuple[Path, ...] = ()
    wanted: Tree = field(default_factory=dict)
    # VRF -> VNI, to be verified afterwards
    present: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()  # VRFs that must be gone afterwards

    @property
    def empty(self) -> bool:
        """Return whether the leaf already has the desired state."""
        return not self.unset and not self.wanted

    def render_commands(self) -> tuple[str, ...]:
        """Return the change as commands of the switch, for a person, in the order of execution."""
        return (
            *(f"nv unset {' '.join(path)}" for path in self.unset),
            *(f"nv set {' '.join(command)}" for command in _words(self.wanted)),
        )


def plan_leaf_change(
    leaf: LeafPlan,
    wanted: Mapping[str, Any],
    seen: SeenLeaf | Blocker,
    *,
    managed: Sequence[str],
    focus: Collection[str] = (),
) -> LeafChange | tuple[Blocker, ...]:
    """Return the change that brings one leaf to its desired state, or all blockers.

    `managed`: VRFs of all tenants with a number, including those that leave; one that is not in
    `wanted` does not belong on this leaf. `focus`: those whose presence is to be proved.
    """
    if isinstance(seen, Blocker):
        return (seen,)
    mine = {v for v in wanted.get("vrf", {}) if v in managed}
    removed = tuple(v for v in managed if v not in mine and has_vrf(seen, v))
    if blockers := list_obstacles(leaf, wanted, seen, managed=managed, gone=removed):
        return blockers
    unset = (
        *(("vrf", v) for v in removed if v in read_subtree(seen.applied, ("vrf",))),
        *_surplus(seen.applied, wanted, mine),
        *_old_imports(seen.applied, wanted, managed, removed),
        *_old_policies(seen.applied, wanted, managed),
    )
    return LeafChange(
        switch=leaf.switch,
        unset=tuple(dict.fromkeys(unset)),
        wanted=find_missing_tree(wanted, seen.applied),
        present={
            v: next(iter(wanted["vrf"][v]["evpn"]["vni"])) for v in sorted(mine) if v in focus
        },
        absent=frozenset(removed),
    )


def find_missing_tree(wanted: Mapping[str, Any], held: object) -> Tree:
    """Return the part of a tree that another one lacks. Scalars are compared as the switch
    prints them.
    """
    have = held if isinstance(held, Mapping) else {}
    lacking: Tree = {}
    for key, value in wanted.items():
        if isinstance(value, Mapping):
            if key not in have:
                lacking[key] = value
            elif inner := find_missing_tree(value, have[key]):
                lacking[key] = inner
        elif str(have.get(key)).lower() != str(value).lower():
            lacking[key] = value
    return lacking


def find_unproved(change: LeafChange, seen: SeenLeaf) -> tuple[Blocker, ...]:
    """Return why a change is not yet in force, or would not survive a restart; () if it is
    proved.
    """
    wrong = {v: "the switch has no such VRF" for v in change.present if v not in seen.vrfs}
    wrong |= {v: "the switch still has this VRF" for v in change.absent if v in seen.vrfs}
    for vrf, vni in change.present.items():
        if vrf not in wrong and seen.vnis.get(vrf) != frozenset({vni}):
            wrong[vrf] = f"its routes do not use VNI {vni} yet"
    blockers = [
        make_blocker(
            Reason.ISOLATION,
            f"{change.switch}/{vrf}",
            f"applied, but {problem}",
            "Examine the switch's log, then ask again.",
        )
        for vrf, problem in sorted(wrong.items())
    ]
    if not seen.saved:
        detail = "it would start with another configuration than the applied one"
        remedy = "Ask again: it is saved then."
        blockers.append(make_blocker(Reason.ISOLATION, change.switch, detail, remedy))
    return tuple(blockers)


def _surplus(applied: Mapping[str, Any], wanted: Mapping[str, Any], mine: set[str]) -> list[Path]:
    paths: list[Path] = []
    for vrf in sorted(mine):
        for pattern in _CLOSED:
            path = tuple(vrf if word == "*" else word for word in pattern)
            if path[-1] == "from-vrf":
                if read_subtree(wanted, path[:-1]).get("from-vrf") is None and read_subtree(
                    applied, path
                ):
                    paths.append(path)
                    continue
                path = (*path, "list")
            paths += [
                (*path, k)
                for k in read_subtree(applied, path)
                if k not in read_subtree(wanted, path)
            ]
    return paths


def _old_imports(
    applied: Mapping[str, Any],
    wanted: Mapping[str, Any],
    managed: Sequence[str],
    gone: Sequence[str],
) -> list[Path]:
    """Return import paths of tenants in the site's own VRFs that are no longer desired."""
    paths: list[Path] = []
    for vrf in read_subtree(applied, ("vrf",)):
        if vrf in managed or vrf in gone:
            continue
        path = ("vrf", vrf, *_IMPORTS)
        desired = read_subtree(wanted, path)
        paths += [
            (*path, k) for k in read_subtree(applied, path) if k in managed and k not in desired
        ]
    return paths


def _old_policies(
    applied: Mapping[str, Any], wanted: Mapping[str, Any], managed: Sequence[str]
) -> list[Path]:
    marks = tuple(owned_mark(v) for v in managed)
    paths: list[Path] = []
    for kind in ("route-map", "prefix-list"):
        path = ("router", "policy", kind)
        desired = read_subtree(wanted, path)
        for name, entry in read_subtree(applied, path).items():
            if not name.startswith(marks) or not marks:
                continue
            if name not in desired:
                paths.append((*path, name))
                continue
            rules = desired[name]["rule"]
            for number, rule in read_subtree(entry, ("rule",)).items():
                rule_at = (*path, name, "rule", number)
                if number not in rules:
                    paths.append(rule_at)
                elif kind == "prefix-list":
                    extra = set(read_subtree(rule, ("match",))) - set(rules[number]["match"])
                    paths += [(*rule_at, "match", prefix) for prefix in sorted(extra)]
    return paths


def _words(tree: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from ((key, *path) for path in _words(value))
        else:
            yield (key,) if isinstance(value, Mapping) else (key, str(value))
