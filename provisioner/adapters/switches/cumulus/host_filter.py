"""The filter between hosts in NVUE's form: an `acl` of type ipv4, its rules, and merges of them.

A merge writes only rules that differ, because NVUE keeps all that a PATCH does not name; null takes
a rule, or a part of one, away. Shapes: NVUE reference, "ACL" (`match ip source-ip`, `dest-ip`,
`protocol`, `action permit`, `deny`; a lower number is matched first).
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
