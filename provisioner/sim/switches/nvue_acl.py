"""What NVUE refuses in a body about filters: names and values of `acl`, and of a port's lists.

source: NVUE reference of Cumulus Linux 5, "ACL" of the commands that set and unset (in
CumulusNetworks/docs, content/nvue-reference, read 2026-11-28): the properties of `match ip` and
their values, and "Interface": `acl <acl-id> inbound|outbound`. Assumed: the numbers of rules are 1
to 65535, a refusal is HTTP 400, and a port with a list that is not there is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
MATCHES = frozenset({"ip", "mac"})
OF_IP = frozenset(
    (
        *("connection-state", "dest-ip", "dest-port", "dscp", "ecn", "fragment", "hashlimit"),
        *("icmp-type", "icmpv6-type", "protocol", "recent-list", "source-ip", "source-port"),
        *("tcp", "udp"),
    )
)
OF_LAYER_4 = {
    "tcp": frozenset(
        ("all-mss-except", "dest-port", "flags", "mask", "mss", "source-port", "state")
    ),
    "udp": frozenset({"dest-port", "source-port"}),
}
PROTOCOLS = ("tcp", "udp", "ospf", "pim", "icmp", "icmpv6", "igmp")
ACTIONS = frozenset(
    (
        *("deny", "erspan", "log", "permit", "police", "recent", "set", "source-nat"),
        *("dest-nat", "span"),
    )
)
TYPES = ("ipv4", "ipv6", "mac")
WAYS = frozenset({"inbound", "outbound"})
RULES_LAST = 65_535
PORTS_LAST = 65_535


def find_acl_violation(parts: tuple[str, ...], body: Tree) -> str:
    """Why a body of a PATCH at this path is refused; "" if it is taken. Null takes a part away."""
    tree = body
    for part in reversed(parts):
        tree = {part: tree}
    for name, acl in _inner(tree, "acl"):
        for error in _list_acl_errors(acl):
            return f"acl/{name}: {error}"
    for name, interface in _inner(tree, "interface"):
        for bound, ways in _inner(interface, "acl"):
            if strange := sorted(ways.keys() - WAYS):
                return f"interface/{name}/acl/{bound}: {strange[0]} is not a property"
    return ""


def _list_acl_errors(acl: Tree) -> Iterator[str]:
    if acl.get("type") not in (None, *TYPES):
        yield f"type {acl['type']} is not one of {', '.join(TYPES)}"
    for number, rule in _inner(acl, "rule"):
        if not (number.isascii() and number.isdigit() and 0 < int(number) <= RULES_LAST):
            yield f"rule {number} is no number of a rule"
        for key in (rule.get("action") or {}).keys() - ACTIONS:
            yield f"rule/{number}/action: {key} is not a property"
        for key in (rule.get("match") or {}).keys() - MATCHES:
            yield f"rule/{number}/match: {key} is not a property"
        ip = (rule.get("match") or {}).get("ip") or {}
        yield from (f"rule/{number}/match/ip: {error}" for error in _list_ip_errors(ip))


def _list_ip_errors(ip: Tree) -> Iterator[str]:
    for key in sorted(ip.keys() - OF_IP):
        yield f"{key} is not a property"
    if ip.get("protocol") not in (None, *PROTOCOLS):
        yield f"protocol {ip['protocol']} is not one of {', '.join(PROTOCOLS)}"
    for name, known in OF_LAYER_4.items():
        inner = ip.get(name) or {}
        for key in sorted(inner.keys() - known):
            yield f"{name}/{key} is not a property"
        if inner.get("state") not in (None, "established"):
            yield f"{name}/state: {inner['state']} is not established"
        for port in inner.get("dest-port") or {}:
            low, _, high = str(port).partition("-")
            if not all(p.isdigit() and 0 < int(p) <= PORTS_LAST for p in (low, high or low)):
                yield f"{name}/dest-port: {port} is no port"


def _inner(tree: Tree, key: str) -> Iterator[tuple[str, Tree]]:
    """Yield the objects below a key; what is taken away (null) is not among them."""
    listed = tree.get(key)
    for name, value in (listed if isinstance(listed, dict) else {}).items():
        if isinstance(value, dict):
            yield str(name), value
