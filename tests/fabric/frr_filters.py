"""NVUE's access lists as the kernel's packet filter: what to load, and what is loaded. Pure.

An access list is a chain of the table `mangle`, and bound to a port by a jump from PREROUTING
(inbound) or POSTROUTING (outbound), so that it meets what is forwarded and what is meant for the
switch itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

COMMANDS = {"ipv4": "iptables", "ipv6": "ip6tables"}
_WAYS = {"inbound": ("PREROUTING", "-i"), "outbound": ("POSTROUTING", "-o")}
_JUMP = re.compile(r"-A (PREROUTING|POSTROUTING) -[io] (\S+) -j (\S+)")
_RULE = re.compile(r"-A (\S+)((?: -[sdp] \S+)*) -j (DROP|RETURN)")

Bound = Mapping[str, Mapping[str, Collection[str]]]  # port -> access list -> ways


def table(acls: Mapping[str, Any], bound: Bound, ports: Collection[str], family: str) -> str:
    """The whole table of one VRF with these ports, as `iptables-restore` takes it."""
    used = {name for port in ports for name in bound.get(port, {})}
    mine = {n: acl for n, acl in acls.items() if acl.get("type") == family and n in used}
    lines = ["*mangle", *(f":{name} - [0:0]" for name in mine)]
    for name, acl in mine.items():
        for number in sorted(acl.get("rule", {}), key=int):
            rule = acl["rule"][number]
            ip = rule.get("match", {}).get("ip", {})
            words = [f"-A {name}"]
            words += [f"{flag} {ip[key]}" for flag, key in _ENDS if key in ip]
            lines.append(f"{' '.join(words)} -j {'DROP' if 'deny' in rule['action'] else 'RETURN'}")
    for port in sorted(ports):
        for name in sorted(bound.get(port, {})):
            if name in mine:
                for way in sorted(bound[port][name]):
                    chain, flag = _WAYS[way]
                    lines.append(f"-A {chain} {flag} {port} -j {name}")
    return "\n".join([*lines, "COMMIT", ""])


_ENDS = (("-s", "source-ip"), ("-d", "dest-ip"), ("-p", "protocol"))


def read(saved: str, family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Access lists, and which of them each port has, from what `iptables-save` printed."""
    acls: dict[str, Any] = {}
    bound: dict[str, Any] = {}
    ways = {chain: way for way, (chain, _) in _WAYS.items()}
    for line in saved.splitlines():
        if jump := _JUMP.fullmatch(line):
            chain, port, name = jump.groups()
            bound.setdefault(port, {}).setdefault(name, {})[ways[chain]] = {}
        elif rule := _RULE.fullmatch(line):
            name, ends, action = rule.groups()
            told = acls.setdefault(name, {"type": family, "rule": {}})["rule"]
            told[str(10 * (len(told) + 1))] = {
                "match": ends.strip() or "any",
                "action": "deny" if action == "DROP" else "permit",
            }
    return acls, bound
