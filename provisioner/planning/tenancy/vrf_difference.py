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
from provisioner.planning.tenancy.vrf_obstacles import Path, SeenLeaf, at, blocker, has, obstacles
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

    def lines(self) -> tuple[str, ...]:
        """Return the change as commands of the switch, for a person, in the order of execution."""
        return (
            *(f"nv unset {' '.join(path)}" for path in self.unset),
            *(f"nv set {' '.join(words)}" for words in _words(self.wanted)),
        )


def difference(
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
    gone = tuple(v for v in managed if v not in mine and has(seen, v))
    if blockers := obstacles(leaf, wanted, seen, managed=managed, gone=gone):
        return blockers
    unset = (
        *(("vrf", v) for v in gone if v in at(seen.applied, ("vrf",))),
        *_surplus(seen.applied, wanted, mine),
        *_old_imports(seen.applied, wanted, managed, gone),
        *_old_policies(seen.applied, wanted, managed),
    )
    return LeafChange(
        switch=leaf.switch,
        unset=tuple(dict.fromkeys(unset)),
        wanted=missing(wanted, seen.applied),
        present={
            v: next(iter(wanted["vrf"][v]["evpn"]["vni"])) for v in sorted(mine) if v in focus
        },
        absent=frozenset(gone),
    )


def missing(wanted: Mapping[str, Any], held: object) -> Tree:
    """Return the part of a tree that another one lacks. Scalars are compared as the switch
    prints them.
    """
    have = held if isinstance(held, Mapping) else {}
    found: Tree = {}
    for key, value in wanted.items():
        if isinstance(value, Mapping):
            if key not in have:
                found[key] = value
            elif inner := missing(value, have[key]):
                found[key] = inner
        elif str(have.get(key)).lower() != str(value).lower():
            found[key] = value
    return found


def proved(change: LeafChange, seen: SeenLeaf) -> tuple[Blocker, ...]:
    """Return why a change is not yet in force, or would not survive a restart; () if it is
    proved.
    """
    wrong = {v: "the switch has no such VRF" for v in change.present if v not in seen.vrfs}
    wrong |= {v: "the switch still has this VRF" for v in change.absent if v in seen.vrfs}
    for vrf, vni in change.present.items():
        if vrf not in wrong and seen.vnis.get(vrf) != frozenset({vni}):
            wrong[vrf] = f"its routes do not use VNI {vni} yet"
    found = [
        blocker(
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
        found.append(blocker(Reason.ISOLATION, change.switch, detail, remedy))
    return tuple(found)


def _surplus(applied: Mapping[str, Any], wanted: Mapping[str, Any], mine: set[str]) -> list[Path]:
    found: list[Path] = []
    for vrf in sorted(mine):
        for pattern in _CLOSED:
            path = tuple(vrf if word == "*" else word for word in pattern)
            if path[-1] == "from-vrf":
                if at(wanted, path[:-1]).get("from-vrf") is None and at(applied, path):
                    found.append(path)
                    continue
                path = (*path, "list")
            found += [(*path, k) for k in at(applied, path) if k not in at(wanted, path)]
    return found


def _old_imports(
    applied: Mapping[str, Any],
    wanted: Mapping[str, Any],
    managed: Sequence[str],
    gone: Sequence[str],
) -> list[Path]:
    """Return import paths of tenants in the site's own VRFs that are no longer desired."""
    found: list[Path] = []
    for vrf in at(applied, ("vrf",)):
        if vrf in managed or vrf in gone:
            continue
        path = ("vrf", vrf, *_IMPORTS)
        kept = at(wanted, path)
        found += [(*path, k) for k in at(applied, path) if k in managed and k not in kept]
    return found


def _old_policies(
    applied: Mapping[str, Any], wanted: Mapping[str, Any], managed: Sequence[str]
) -> list[Path]:
    marks = tuple(owned_mark(v) for v in managed)
    found: list[Path] = []
    for kind in ("route-map", "prefix-list"):
        path = ("router", "policy", kind)
        kept = at(wanted, path)
        for name, entry in at(applied, path).items():
            if not name.startswith(marks) or not marks:
                continue
            if name not in kept:
                found.append((*path, name))
                continue
            rules = kept[name]["rule"]
            for number, rule in at(entry, ("rule",)).items():
                rule_at = (*path, name, "rule", number)
                if number not in rules:
                    found.append(rule_at)
                elif kind == "prefix-list":
                    extra = set(at(rule, ("match",))) - set(rules[number]["match"])
                    found += [(*rule_at, "match", prefix) for prefix in sorted(extra)]
    return found


def _words(tree: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from ((key, *rest) for rest in _words(value))
        else:
            yield (key,) if isinstance(value, Mapping) else (key, str(value))
