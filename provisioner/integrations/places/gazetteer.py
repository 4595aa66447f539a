"""Convert places to text ("site/pod0/su0/rack2/n09/rail7/host") and back, and describe them. Pure.

`find_place` accepts every identifier that an operator may have: an address, a loopback,
AS4200000003, vni:4001, a route target, the name of a node or switch, or an interface of a
switch.
"""

from __future__ import annotations

import re
from typing import Any

from provisioner.model.location import (
    HOST,
    LEAF,
    TIERS,
    NodePlace,
    Place,
    RailEnd,
    SwitchPlace,
    TenantPlace,
    Uplink,
)
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

_PART = re.compile(
    r"(pod|su|rack|n|rail|plane|link|leaf|spine|superspine|front|up|tenant)([0-9]{1,6})"
)
_ENDS = {"host": HOST, "leaf": LEAF}
TEXT_MAX = 200


class NoPlace(ValueError):
    """A text that names no place of this plan; its message gives the cause."""


class Gazetteer:
    """Reads, writes and describes the places of one plan."""

    def __init__(self, addressing: Addressing) -> None:
        self.addressing = addressing
        self.ports = Ports(addressing)
        self._plan = addressing.plan

    def format_place(self, place: Place) -> str:
        """Return the location as one word, which `parse_place` reads back."""
        plan = self._plan
        if isinstance(place, TenantPlace):
            return f"{plan.site}/tenant{place.number}"
        if isinstance(place, Uplink):
            return f"{self.format_place(place.lower)}/up{place.number}"
        if isinstance(place, SwitchPlace):
            unit = f"pod{place.pod}/su{place.unit}/"
            above = {"leaf": unit, "front": unit, "spine": f"pod{place.pod}/"}
            plane = f"/plane{place.plane}" if plan.planes > 1 and place.tier != "front" else ""
            return f"{plan.site}/{above.get(place.tier, '')}{place.tier}{place.number}{plane}"
        rack = place.node // plan.nodes_per_rack
        parts = [plan.site, f"pod{place.pod}", f"su{place.unit}", f"rack{rack}"]
        parts.append(f"n{place.node:02}")
        if isinstance(place, RailEnd):
            parts.append(f"rail{place.rail}")
            parts += [f"plane{place.plane}"] if plan.planes > 1 else []
            parts += [f"link{place.link}"] if plan.links > 1 else []
            parts.append("leaf" if place.end == LEAF else "host")
        return "/".join(parts)

    def parse_place(self, text: str) -> Place:
        """Return the place of a location. A missing pod, plane or link is 0. Raises NoPlace."""
        parts = text.strip().split("/") if len(text) <= TEXT_MAX else [""]
        if parts[0] == self._plan.site:
            parts = parts[1:]
        end = _ENDS[parts.pop()] if parts and parts[-1] in _ENDS else None
        numbers: dict[str, int] = {}
        for word in parts:
            match = _PART.fullmatch(word)
            if match is None or match[1] in numbers:
                raise NoPlace(f"{word[:40]!r} is no part of a location of {self._plan.site}")
            numbers[match[1]] = int(match[2])
        place = _build_place(numbers, end)
        if place is None:
            raise NoPlace("this names no node, rail, switch or tenant")
        self._check(place, numbers)
        return place

    def _check(self, place: Place, numbers: dict[str, int]) -> None:
        """Raise NoPlace for a place that the plan does not have."""
        plan = self._plan
        if isinstance(place, TenantPlace):
            exists = place.number < plan.tenants
        elif isinstance(place, Uplink):
            exists = self.addressing.has_switch(
                place.lower
            ) and place.number < self.ports.count_uplinks(place.lower)
        elif isinstance(place, SwitchPlace):
            exists = self.addressing.has_switch(place)
        else:
            exists = self.addressing.has_end(RailEnd(*place[:3], 0) if len(place) == 3 else place)
            rack = place.node // plan.nodes_per_rack
            if exists and numbers.get("rack", rack) != rack:
                raise NoPlace(f"n{place.node:02} stands in rack{rack}, not rack{numbers['rack']}")
        if not exists:
            raise NoPlace("the site has no such place: one of the numbers is too large")

    def find_place(self, word: str) -> Place:
        """Return the place of an address, number, name or location. Raises NoPlace."""
        word = word.strip()[:TEXT_MAX]
        kind, _, value = word.partition(":")
        a = self.addressing
        candidates: list[Place | None] = [
            a.find_rail_end(word),
            a.find_switch_by_loopback(word),
            a.find_switch_by_asn(int(word[2:]))
            if re.fullmatch(r"(?i)AS[0-9]{1,10}", word)
            else None,
            a.find_tenant(int(value)) if kind.lower() == "vni" and _short(value) else None,
            a.find_tenant_by_target(value if kind.lower() == "rt" else word),
            self.ports.find_node(word),
            self.ports.find_switch(word),
            self._interface(word),
        ]
        for candidate in candidates:
            if candidate is not None:
                return candidate
        return self.parse_place(word)

    def _interface(self, word: str) -> Place | None:
        """Return the place of an interface such as "leaf-su0-r3/swp5s1", or None."""
        name, _, interface = word.partition("/")
        leaf = self.ports.find_switch(name)
        return self.ports.find_end(leaf, interface) if leaf is not None else None

    def describe_place(self, place: Place) -> dict[str, Any]:
        """Return everything that the plan defines for a place, as a JSON object."""
        a = self.addressing
        ports = self.ports
        base: dict[str, Any] = {"location": self.format_place(place), "site": self._plan.site}
        if isinstance(place, TenantPlace):
            return base | {
                "tenant": place.number,
                "vni": a.get_vni(place),
                "route_target": a.get_route_target(place),
            }
        if isinstance(place, Uplink):
            lower, upper = ports.find_uplink_ends(place)
            return base | {"lower": "/".join(lower), "upper": "/".join(upper)}
        if isinstance(place, SwitchPlace):
            return base | {
                "switch": ports.name_switch(place),
                "tier": place.tier,
                "asn": a.get_asn(place),
                "loopback": a.get_loopback(place),
                "uplinks": ports.count_uplinks(place),
            }
        base |= {
            "pod": place.pod,
            "scalable_unit": place.unit,
            "rack": ports.name_rack(place),
            "node": ports.name_node(place),
        }
        if isinstance(place, NodePlace):
            return base | {"rails": [self.describe_place(end) for end in self.list_rails(place)]}
        return base | self._rail(place)

    def _rail(self, end: RailEnd) -> dict[str, Any]:
        a = self.addressing
        ports = self.ports
        host = end._replace(end=HOST)
        leaf = end._replace(end=LEAF)
        return {
            "rail": end.rail,
            "plane": end.plane,
            "link": end.link,
            "end": "leaf" if end.end == LEAF else "host",
            "card": ports.name_card(end),
            "host_interface": ports.name_host_interface(end),
            "leaf": ports.name_switch(ports.find_leaf(end)),
            "leaf_port": ports.name_leaf_port(end),
            "ipv4": a.format_ipv4(end),
            "peer_ipv4": a.format_ipv4(end.other),
            "ipv6": a.format_ipv6(end),
            "leaf_asn": a.get_asn(ports.find_leaf(end)),
            "lldp_at_host": "/".join(ports.name_leaf_end(leaf)),
            "lldp_at_leaf": "/".join(ports.name_host_end(host)),
        }

    def list_rails(self, place: NodePlace) -> list[RailEnd]:
        plan = self._plan
        return [
            RailEnd(*place, rail, plane, link)
            for rail in range(plan.rails)
            for plane in range(plan.planes)
            for link in range(plan.links)
        ]


def _build_place(numbers: dict[str, int], end: int | None) -> Place | None:
    """Return the place that these parts name; None if they name none."""
    got = set(numbers) - {"pod", "plane", "link", "rack"}
    pod = numbers.get("pod", 0)
    plane = numbers.get("plane", 0)
    if got == {"tenant"} and end is None:
        return TenantPlace(numbers["tenant"])
    tiers = [t for t in TIERS if t in got]
    if len(tiers) == 1 and end is None:
        tier = tiers[0]
        if got - {"up"} != ({"su", tier} if tier in ("leaf", "front") else {tier}):
            return None
        switch = SwitchPlace(tier, pod, numbers.get("su", 0), numbers[tier], plane)
        return Uplink(switch, numbers["up"]) if "up" in got else switch
    if got == {"su", "n"} and end is None:
        return NodePlace(pod, numbers["su"], numbers["n"])
    if got == {"su", "n", "rail"}:
        link = numbers.get("link", 0)
        at = (pod, numbers["su"], numbers["n"], numbers["rail"], plane, link)
        return RailEnd(*at, HOST if end is None else end)
    return None


def _short(digits: str) -> bool:
    return digits.isdecimal() and len(digits) <= 8
