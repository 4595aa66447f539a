"""Filters of tenants' ports in NVUE's form: an `acl` of type ipv4, bound outbound to the port.

Outbound of the leaf is what comes to the host. Shapes: NVUE reference, "ACL" (`match ip protocol`,
`source-ip`, `dest-ip`, `tcp dest-port`, `udp dest-port`, `tcp state established`; a lower number is
matched first) and "Interface" (`nv set interface swp1 acl EXAMPLE1 outbound`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.host_filter import (
    FilterRule,
    HostFilter,
    SeenFilter,
    list_differing_rules,
)
from provisioner.model.tenant_network import MARK, FilterMatch, NetworkChange, PortFilter

# ------------------------------------------------------------------------------
# The filter between hosts in NVUE's form: an `acl` of type ipv4, its rules, and merges of them.
#
# A merge writes only rules that differ, because NVUE keeps all that a PATCH does not name; null
# takes a rule, or a part of one, away. Shapes: NVUE reference, "ACL" (`match ip source-ip`,
# `dest-ip`,
# `protocol`, `action permit`, `deny`; a lower number is matched first).


NAME = "provisioner_apart4"
FAMILY = "ipv4"
ANY = (None, "", "ANY", "any", "0.0.0.0/0")

Tree = dict[str, Any]


def encode_missing_rules(held: SeenFilter | None, wanted: HostFilter, *, with_doors: bool) -> Tree:
    """Return the merge that makes the desired filter of the held one; None takes a rule away.

    Without `with_doors` its doors are left as they are.
    """
    native = _rules_of(None if held is None else held.native)
    merge: Tree = {}
    for number in list_differing_rules(held, wanted, with_doors=with_doors):
        if number in wanted:
            merge[str(number)] = _merge(native.get(str(number)), _encode_rule(wanted[number]))
        elif number >= 0:
            merge[str(number)] = None
    return merge | {name: None for name in native if not _is_number(name)}


def read_filter(tree: Any) -> SeenFilter:
    """Return a filter as one tree of NVUE has it. Rules without a plain number are unreadable."""
    typed = isinstance(tree, Mapping) and tree.get("type") == FAMILY
    rules: dict[int, FilterRule | None] = {}
    for place, (name, rule) in enumerate(_rules_of(tree).items(), 1):
        if _is_number(name):
            rules[int(name)] = _read_rule(rule)
        else:
            rules[-place] = None  # a number of its own, so that it is counted
    return SeenFilter(rules, typed=typed, native=tree)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name


def _encode_rule(rule: FilterRule) -> Tree:
    ends = {"source-ip": rule.source, "dest-ip": rule.target, "protocol": rule.protocol}
    match = {"ip": {key: value for key, value in ends.items() if value}}
    return {"action": {rule.action: {}}, "match": match}


def _merge(held: Any, wanted: Tree) -> Tree:
    """Return the merge that makes `wanted` of a held rule."""
    if not isinstance(held, Mapping):
        return wanted
    merge: Tree = {key: None for key in held if key not in wanted}
    for key, value in wanted.items():
        merge[key] = _merge(held.get(key), value) if isinstance(value, dict) else value
    return merge


def _rules_of(tree: Any) -> dict[str, Any]:
    rules = tree.get("rule") if isinstance(tree, Mapping) else None
    return {str(name): rule for name, rule in rules.items()} if isinstance(rules, Mapping) else {}


def _read_rule(rule: Any) -> FilterRule | None:
    """Return a rule; None if it is unreadable or matches by anything else."""
    action = rule.get("action") if isinstance(rule, Mapping) else None
    match = rule.get("match") if isinstance(rule, Mapping) else None
    ip = match.get("ip") if isinstance(match, Mapping) else None
    if not isinstance(action, Mapping) or len(action) != 1 or not isinstance(ip, Mapping):
        return None
    if set(match or ()) != {"ip"}:
        return None
    ends = {k: "" if v in ANY else str(v).lower() for k, v in ip.items() if not _is_empty(v)}
    if set(ends) - {"source-ip", "dest-ip", "protocol"}:
        return None
    parts = (ends.get("source-ip", ""), ends.get("dest-ip", ""), ends.get("protocol", ""))
    return FilterRule(str(next(iter(action))), *parts)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)


STEP = 10  # between the numbers of two rules
EVERYTHING = "0.0.0.0/0"
PORT_FILTER_ANY = (None, "", "ANY", "any", EVERYTHING)
WAY = "outbound"
ESTABLISHED = "established"


def encode_filter(rules: PortFilter) -> Tree:
    """Return the whole filter as a tree."""
    numbered = {str(STEP * n): _encode_rule_port_filter(rule) for n, rule in enumerate(rules, 1)}
    return {"type": FAMILY, "rule": numbered}


def read_filters(acls: Any) -> dict[str, PortFilter | None]:
    """Return the filters of tenants in an `acl` tree; None for one of another form than ours."""
    listed = acls if isinstance(acls, Mapping) else {}
    return {str(n): _read_filter(tree) for n, tree in listed.items() if str(n).startswith(MARK)}


def read_bound(interface: Any) -> frozenset[str]:
    """Return the filters of tenants on one port, in whichever way they are bound."""
    bound = interface.get("acl") if isinstance(interface, Mapping) else None
    names = bound if isinstance(bound, Mapping) else {}
    return frozenset(
        str(name) if isinstance(ways, Mapping) and set(ways) == {WAY} else f"{name} (otherwise)"
        for name, ways in names.items()
        if str(name).startswith(MARK)
    )


def _encode_rule_port_filter(rule: FilterMatch) -> Tree:
    ip: Tree = {"source-ip": rule.source or EVERYTHING, "dest-ip": rule.target or EVERYTHING}
    if rule.protocol:
        ip["protocol"] = rule.protocol
    inner: Tree = {"dest-port": {str(rule.port): {}}} if rule.port else {}
    if rule.established:
        inner["state"] = ESTABLISHED
    if inner:
        ip[rule.protocol] = inner
    return {"action": {rule.action: {}}, "match": {"ip": ip}}


def _read_filter(tree: Any) -> PortFilter | None:
    rules = tree.get("rule") if isinstance(tree, Mapping) else None
    if not isinstance(rules, Mapping) or tree.get("type") != FAMILY:
        return None
    if not all(str(number).isascii() and str(number).isdigit() for number in rules):
        return None
    read = [_read_rule_port_filter(rules[number]) for number in sorted(rules, key=int)]
    return None if None in read else tuple(rule for rule in read if rule is not None)


def _read_rule_port_filter(rule: Any) -> FilterMatch | None:
    """Return a rule; None if it matches by anything that ours do not."""
    action = rule.get("action") if isinstance(rule, Mapping) else None
    match = rule.get("match") if isinstance(rule, Mapping) else None
    ip = match.get("ip") if isinstance(match, Mapping) else None
    if not isinstance(action, Mapping) or len(action) != 1 or not isinstance(ip, Mapping):
        return None
    protocol = str(ip.get("protocol") or "")
    inner = ip.get(protocol) or {}
    known = {"source-ip", "dest-ip", "protocol", protocol}
    if set(match or ()) != {"ip"} or set(ip) - known or not isinstance(inner, Mapping):
        return None
    ports = inner.get("dest-port") or {}
    state = inner.get("state") or ""
    listed = [ports] if isinstance(ports, int | str) else list(ports)
    if set(inner) - {"dest-port", "state"} or len(listed) > 1 or not _is_known(state):
        return None
    if listed and not str(listed[0]).isdigit():
        return None
    port = int(listed[0]) if listed else 0
    source = _read_end(ip, "source-ip")
    target = _read_end(ip, "dest-ip")
    return FilterMatch(str(next(iter(action))), protocol, source, target, port, bool(state))


def _read_end(ip: Mapping[str, Any], name: str) -> str:
    return "" if ip.get(name) in PORT_FILTER_ANY else str(ip[name])


def _is_known(state: Any) -> bool:
    """Return whether a state of TCP is none, or the one that we match, as a value or as a key."""
    return state in ("", ESTABLISHED) or (
        isinstance(state, Mapping) and set(state) == {ESTABLISHED}
    )


def encode_guards(change: NetworkChange, applied: Any) -> tuple[list[tuple[str, ...]], Tree]:
    """Return what a change of filters and of their ports unsets first, and what it then sets.

    A filter that differs is written anew as a whole: one revision is applied at once.
    """
    held = _subtree(applied, "acl")
    interfaces = _subtree(applied, "interface")
    rewritten = sorted({*change.removed_filters, *change.filters} & held.keys())
    unset: list[tuple[str, ...]] = []
    tree: Tree = {}
    for port, guard in change.bound.items():
        names = [n for n in _subtree(interfaces.get(port), "acl") if n.startswith(MARK)]
        unset += [("interface", port, "acl", name) for name in names]
        if guard.name:
            tree.setdefault("interface", {})[port] = {"acl": {guard.name: {WAY: {}}}}
    unset += [("acl", name) for name in rewritten]
    if change.filters:
        tree["acl"] = {name: encode_filter(rules) for name, rules in change.filters.items()}
    return unset, tree


def _subtree(tree: Any, key: str) -> Mapping[str, Any]:
    inner = tree.get(key) if isinstance(tree, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}
