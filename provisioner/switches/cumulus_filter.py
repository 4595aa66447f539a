"""The filter that keeps hosts apart on the network where maintenance agents are looked up.

Rule: what a host sends to that network is denied at its own port, but for the addresses that the
site names (the daemon, gateways, name servers) and the doors of a test that runs. No rule permits
the rest: a site's own filters on the same port still count. Shapes: NVUE reference, "ACL" (`match
ip source-ip`, `dest-ip`, `protocol`, `action permit`, `deny`; a lower number is matched first).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NAME = "provisioner_apart4"
FAMILY = "ipv4"
# numbers of rules: doors come before what is always permitted, and that before what is denied
PERMITS_FROM, DENIES_FROM = 20_000, 30_000
DOORS_MAX = 1024  # each is two rules; a leaf's tables hold some thousands
ANY = (None, "", "ANY", "any", "0.0.0.0/0")

Tree = dict[str, Any]
Door = tuple[str, str]  # in-band addresses of two hosts that may connect to each other
Rule = tuple[str, str, str, str]  # action, source, destination, protocol


def filter_tree(
    networks: Sequence[str], reached: Sequence[str], doors: Iterable[Door] = ()
) -> Tree:
    """Return the whole filter: doors, what every host may reach, and the denied networks."""
    rules: Tree = {}
    pairs = [pair for one, other in sorted(doors) for pair in ((one, other), (other, one))]
    for number, (source, target) in enumerate(pairs[: 2 * DOORS_MAX], 1):
        ends = {"source-ip": f"{source}/32", "dest-ip": f"{target}/32", "protocol": "tcp"}
        rules[str(number)] = {"action": {"permit": {}}, "match": {"ip": ends}}
    for number, network in enumerate(reached, PERMITS_FROM):
        rules[str(number)] = {"action": {"permit": {}}, "match": {"ip": {"dest-ip": network}}}
    for number, network in enumerate(networks, DENIES_FROM):
        rules[str(number)] = {"action": {"deny": {}}, "match": {"ip": {"dest-ip": network}}}
    return {"type": FAMILY, "rule": rules}


def missing_rules(held: Any, wanted: Tree, *, with_doors: bool) -> Tree:
    """Return what a filter's rules need to become the wanted ones, to be merged; None takes away.

    Without `with_doors` its doors are left as they are.
    """
    have = _rules(held)
    needed: Tree = {}
    for number, rule in wanted["rule"].items():
        if (with_doors or not _is_door(number)) and have.get(number) != _read(rule):
            needed[number] = _merged(held["rule"].get(number) if number in have else None, rule)
    for number in have:
        if number not in wanted["rule"] and (with_doors or not _is_door(number)):
            needed[number] = None
    return needed


def holds(held: Any, wanted: Tree, *, with_doors: bool) -> bool:
    """Return whether a configured filter is the wanted one."""
    typed = isinstance(held, Mapping) and held.get("type") == FAMILY
    return typed and not missing_rules(held, wanted, with_doors=with_doors)


def count_rules(held: Any) -> int:
    """Return how many rules a filter has, whatever they say; 0 if there is none."""
    rules = held.get("rule") if isinstance(held, Mapping) else None
    return len(rules) if isinstance(rules, Mapping) else 0


def _merged(held: Any, wanted: Tree) -> Tree:
    """Return the merge that makes `wanted` of what is there."""
    if not isinstance(held, Mapping):
        return wanted
    merge: Tree = {key: None for key in held if key not in wanted}
    for key, value in wanted.items():
        merge[key] = _merged(held.get(key), value) if isinstance(value, dict) else value
    return merge


def _is_door(number: str) -> bool:
    return number.isdigit() and int(number) < PERMITS_FROM


def _rules(held: Any) -> dict[str, Rule | None]:
    rules = held.get("rule") if isinstance(held, Mapping) else None
    if not isinstance(rules, Mapping):
        return {}
    return {str(number): _read(rule) for number, rule in rules.items()}


def _read(rule: Any) -> Rule | None:
    """Return what a rule means; None if it is unreadable or matches by anything else."""
    action = rule.get("action") if isinstance(rule, Mapping) else None
    match = rule.get("match") if isinstance(rule, Mapping) else None
    ip = match.get("ip") if isinstance(match, Mapping) else None
    if not isinstance(action, Mapping) or len(action) != 1 or not isinstance(ip, Mapping):
        return None
    if set(match or ()) != {"ip"}:
        return None
    ends = {k: "" if v in ANY else str(v).lower() for k, v in ip.items() if not _empty(v)}
    if set(ends) - {"source-ip", "dest-ip", "protocol"}:
        return None
    words = (ends.get("source-ip", ""), ends.get("dest-ip", ""), ends.get("protocol", ""))
    return (str(next(iter(action))), *words)


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)
