"""Decide which acts on an adopted node its grants allow. Pure.

A node that was taken in empty is the daemon's own and needs no grant. Of an adopted node nothing
is allowed but reading, until a person grants a capability for it, its rack, its unit or the site.
Of a detached node nothing but reading is allowed at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from provisioner.model.adoption.capability import LADDER, Capability, Grant, GrantScope
from provisioner.model.node import Node, Origin

GRANT_REMEDY = (
    "Grant it with `provisioner capability grant`, after its dry run (docs/adopting.md); or leave "
    "the act to the system that manages the node."
)
_WIDTH = tuple(GrantScope)
# what a request to a BMC needs, by the first pattern that its path has; the last one has them all
_REQUESTS = (
    (re.compile(r"/accountservice(/|$)|/accounts(/|$)"), Capability.CREDENTIALS),
    (re.compile(r"/eventservice(/|$)"), Capability.WATCH),
    (re.compile(r"/updateservice(/|$)|\.simpleupdate$|\.reset$"), Capability.FIRMWARE),
    (re.compile(""), Capability.CERTIFICATION),
)
# plays that write firmware; those of switches install images
_FIRMWARE_PLAYS = ("bluefield_bundle", "nic_firmware", "nic_reset", "switch_")


def covers_node(grant: Grant, node: Node) -> bool:
    """Return whether a decision is about a node."""
    match grant.scope:
        case GrantScope.SITE:
            return True
        case GrantScope.UNIT:
            return grant.name == name_unit(node)
        case GrantScope.RACK:
            return bool(grant.name) and grant.name == node.location.rack
        case GrantScope.NODE:
            return grant.name == node.id


def name_unit(node: Node) -> str:
    """Return the scalable unit of a node, as grants name it."""
    return f"pod{node.location.pod}/su{node.location.scalable_unit}"


def list_decisions(node: Node, grants: Iterable[Grant]) -> Mapping[Capability, Grant]:
    """Return the decision that counts for each capability: the narrowest one."""
    chosen: dict[Capability, Grant] = {}
    for grant in grants:
        rival = chosen.get(grant.capability)
        if covers_node(grant, node) and (
            rival is None or _WIDTH.index(grant.scope) > _WIDTH.index(rival.scope)
        ):
            chosen[grant.capability] = grant
    return chosen


def list_allowed(node: Node, grants: Iterable[Grant]) -> frozenset[Capability]:
    """Return the capabilities in force: each one that is granted with all before it."""
    if node.origin is Origin.TAKEN_IN:
        return frozenset(LADDER)
    if node.origin is Origin.DETACHED:
        return frozenset()
    decisions = list_decisions(node, grants)
    allowed = set()
    for capability in LADDER:
        if capability not in decisions or not decisions[capability].granted:
            break
        allowed.add(capability)
    return frozenset(allowed)


def plan_withdrawal(
    withdrawn: Grant, grants: Iterable[Grant], nodes: Iterable[Node]
) -> tuple[Grant, ...]:
    """Return the decisions of a withdrawal, which ends narrower grants inside its scope too."""
    inside = [n for n in nodes if covers_node(withdrawn, n)]
    narrower = [
        g
        for g in grants
        if g.granted
        and g.capability is withdrawn.capability
        and _WIDTH.index(g.scope) > _WIDTH.index(withdrawn.scope)
        and (withdrawn.scope is GrantScope.SITE or any(covers_node(g, n) for n in inside))
    ]
    by = {"granted": False, "by": withdrawn.by, "at": withdrawn.at, "reason": withdrawn.reason}
    return (withdrawn, *(g.model_copy(update=by) for g in narrower))


def find_change(
    node: Node, before: Iterable[Grant], after: Iterable[Grant]
) -> tuple[frozenset[Capability], frozenset[Capability]]:
    """Return the capabilities that a node gains and loses by a change of decisions."""
    had = list_allowed(node, before)
    has = list_allowed(node, after)
    return has - had, had - has


def find_need_of_request(path: str) -> Capability:
    """Return the capability that a request to a BMC needs, if it changes anything."""
    plain = path.lower().partition("?")[0]
    return next(need for pattern, need in _REQUESTS if pattern.search(plain))


def find_need_of_play(play: str) -> Capability:
    """Return the capability that a play on a host needs."""
    return Capability.FIRMWARE if play.startswith(_FIRMWARE_PLAYS) else Capability.CERTIFICATION


def describe_refusal(node: Node, need: Capability, grants: Iterable[Grant]) -> str:
    """Return why an act that needs a capability is refused on a node; "" if it is allowed."""
    grants = tuple(grants)
    if need in list_allowed(node, grants):
        return ""
    if node.origin is Origin.DETACHED:
        return f"{node.id} is detached: another system has it, and no grant is in force over it"
    decisions = list_decisions(node, grants)
    lacking = next(c for c in LADDER if c not in decisions or not decisions[c].granted)
    before = f", which {need} builds upon," if lacking is not need else ""
    return f"{node.id} is adopted, and {lacking}{before} is not granted over it"
