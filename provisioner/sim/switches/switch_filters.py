"""The effect of a port's access lists on a packet, by the switch's operational state.

Source: Cumulus Linux guide, "Access Control List Configuration" (rules of a list are tried in the
order of their numbers and the first match decides; packets without a match pass) and NVUE
reference, "ACL" (`match ip source-ip`, `dest-ip`, `protocol`; `action permit`, `deny`).
"""

from __future__ import annotations

import ipaddress
from typing import Any

from provisioner.sim.switches.switch import Switch

ICMP = "icmp"


def is_denied(
    switch: Switch, interface: str, way: str, ends: tuple[str, str], protocol: str = ICMP
) -> bool:
    """Whether a list on this port and way ("inbound", "outbound") drops a packet between `ends`."""
    if switch.planted.filters_ignored:
        return False
    tree = switch.operational
    bound = tree["interface"].get(interface, {}).get("acl", {})
    lists = [tree.get("acl", {}).get(name, {}) for name, ways in bound.items() if way in ways]
    return any(_decides(one, ends, protocol) == "deny" for one in lists)


def _decides(acl: dict[str, Any], ends: tuple[str, str], protocol: str) -> str:
    for number in sorted(acl.get("rule", {}), key=int):
        rule = acl["rule"][number]
        match = rule.get("match", {}).get("ip", {})
        prefixes = (match.get("source-ip"), match.get("dest-ip"))
        both = all(_is_in(end, net) for end, net in zip(ends, prefixes, strict=True))
        if both and match.get("protocol", protocol) == protocol:
            return "deny" if "deny" in rule.get("action", {}) else "permit"
    return ""


def _is_in(address: str, network: str | None) -> bool:
    if not network or network == "ANY":
        return True
    prefix = ipaddress.ip_network(network)
    one = ipaddress.ip_address(address)
    return one.version == prefix.version and one in prefix
