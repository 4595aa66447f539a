"""From what a leaf must hold of the tenants and what it was seen to hold, to one revision. Pure.

Rule: what cannot be seen blocks, and a VRF with a port in it is never removed. Sets that isolate
(route targets, VNI, imports, sessions, policy rules) must be equal, not merely contain what is
wanted: one target too many is a way into another tenant's network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.tenancy.vrf_obstacles import Path, SeenLeaf, at, blocker, has, obstacles
from provisioner.planning.tenancy.vrf_plan import LeafPlan, Tree, owned_mark

# where every key that is not wanted is taken away; * is any key
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
    """One revision of one leaf: paths to take away, then a tree to merge. Empty: nothing to do."""

    switch: str
    unset: tuple[Path, ...] = ()
    wanted: Tree = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)  # VRF -> VNI, to be seen afterwards
    absent: frozenset[str] = frozenset()  # VRFs that must be gone afterwards

    @property
    def empty(self) -> bool:
        """Whether the leaf holds what it must hold."""
        return not self.unset and not self.wanted

    def lines(self) -> tuple[str, ...]:
        """The same as commands of the switch, for a person; the order is the order of the work."""
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
    """What would bring one leaf to what it must hold, or everything that stands in the way.

    `managed`: VRFs of all tenants that have a number, also of those that leave: whichever of them
    is not in `wanted` has no business on this leaf. `focus`: those whose presence is to be proved.
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
    """What of a tree another one does not hold. Scalars are compared as the switch writes them."""
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
    """Why a change is not yet what the switch does, and will do after its next start; () if so."""
    wrong = {v: "the switch has no such VRF" for v in change.present if v not in seen.vrfs}
    wrong |= {v: "the switch still has this VRF" for v in change.absent if v in seen.vrfs}
    for vrf, vni in change.present.items():
        if vrf not in wrong and seen.vnis.get(vrf) != frozenset({vni}):
            wrong[vrf] = f"its routes do not go by VNI {vni} yet"
    found = [
        blocker(
            Reason.ISOLATION,
            f"{change.switch}/{vrf}",
            f"applied, but {problem}",
            "Look at the switch's log, then ask again.",
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
    """Tenants in the allow-lists of VRFs that are not ours, who have no business there."""
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
