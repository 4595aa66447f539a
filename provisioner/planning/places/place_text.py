"""Places as text, "site/pod0/su0/rack2/n09/rail7/host", both ways; and all that is known of one.

`found` accepts whatever a person has at hand: an address, a loopback, AS4200000003, vni:4001, a
route target, the name of a node, a switch, or one of its interfaces. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from provisioner.model.place import (
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

_PART = re.compile(r"(pod|su|rack|n|rail|plane|link|leaf|spine|superspine|up|tenant)([0-9]{1,6})")
_ENDS = {"host": HOST, "leaf": LEAF}
TEXT_MAX = 200


class NoPlace(ValueError):
    """A text that names no place of this plan; says why."""


class Gazetteer:
    """Reads and writes places of one plan."""

    def __init__(self, addressing: Addressing) -> None:
        self.addressing = addressing
        self.ports = Ports(addressing)
        self._plan = addressing.plan

    def text(self, place: Place) -> str:
        """The location as one word, which `place` reads back."""
        plan = self._plan
        if isinstance(place, TenantPlace):
            return f"{plan.site}/tenant{place.number}"
        if isinstance(place, Uplink):
            return f"{self.text(place.lower)}/up{place.number}"
        if isinstance(place, SwitchPlace):
            above = {"leaf": f"pod{place.pod}/su{place.unit}/", "spine": f"pod{place.pod}/"}
            plane = f"/plane{place.plane}" if plan.planes > 1 else ""
            return f"{plan.site}/{above.get(place.tier, '')}{place.tier}{place.number}{plane}"
        rack = place.node // plan.nodes_per_rack
        words = [plan.site, f"pod{place.pod}", f"su{place.unit}", f"rack{rack}"]
        words.append(f"n{place.node:02}")
        if isinstance(place, RailEnd):
            words.append(f"rail{place.rail}")
            words += [f"plane{place.plane}"] if plan.planes > 1 else []
            words += [f"link{place.link}"] if plan.links > 1 else []
            words.append("leaf" if place.end == LEAF else "host")
        return "/".join(words)

    def place(self, text: str) -> Place:
        """The place of a location. A missing pod, plane or link is 0. Raises NoPlace."""
        words = text.strip().split("/") if len(text) <= TEXT_MAX else [""]
        if words[0] == self._plan.site:
            words = words[1:]
        end = _ENDS[words.pop()] if words and words[-1] in _ENDS else None
        numbers: dict[str, int] = {}
        for word in words:
            part = _PART.fullmatch(word)
            if part is None or part[1] in numbers:
                raise NoPlace(f"{word[:40]!r} is no part of a location of {self._plan.site}")
            numbers[part[1]] = int(part[2])
        place = _built(numbers, end)
        if place is None:
            raise NoPlace("this names no node, rail, switch or tenant")
        self._check(place, numbers)
        return place

    def _check(self, place: Place, numbers: dict[str, int]) -> None:
        """Raises NoPlace for what the plan does not have."""
        plan = self._plan
        if isinstance(place, TenantPlace):
            known = place.number < plan.tenants
        elif isinstance(place, Uplink):
            known = self.addressing.has_switch(place.lower) and place.number < self.ports.uplinks(
                place.lower
            )
        elif isinstance(place, SwitchPlace):
            known = self.addressing.has_switch(place)
        else:
            known = self.addressing.has(RailEnd(*place[:3], 0) if len(place) == 3 else place)
            rack = place.node // plan.nodes_per_rack
            if known and numbers.get("rack", rack) != rack:
                raise NoPlace(f"n{place.node:02} stands in rack{rack}, not rack{numbers['rack']}")
        if not known:
            raise NoPlace("the site has no such place: one of the numbers is too large")

    def found(self, word: str) -> Place:
        """The place of whatever a person has at hand. Raises NoPlace."""
        word = word.strip()[:TEXT_MAX]
        kind, _, rest = word.partition(":")
        a = self.addressing
        candidates: list[Place | None] = [
            a.rail_end(word),
            a.switch_of_loopback(word),
            a.switch_of_asn(int(word[2:])) if re.fullmatch(r"(?i)AS[0-9]{1,10}", word) else None,
            a.tenant(int(rest)) if kind.lower() == "vni" and _short(rest) else None,
            a.tenant_of_target(rest if kind.lower() == "rt" else word),
            self.ports.node_called(word),
            self.ports.switch_called(word),
            self._interface(word),
        ]
        for candidate in candidates:
            if candidate is not None:
                return candidate
        return self.place(word)

    def _interface(self, word: str) -> Place | None:
        """ "leaf-su0-r3/swp5s1" """
        name, _, interface = word.partition("/")
        leaf = self.ports.switch_called(name)
        return self.ports.end_of(leaf, interface) if leaf is not None else None

    def told(self, place: Place) -> dict[str, Any]:
        """All that the plan says of a place, for people and as JSON."""
        a, ports = self.addressing, self.ports
        base: dict[str, Any] = {"location": self.text(place), "site": self._plan.site}
        if isinstance(place, TenantPlace):
            return base | {
                "tenant": place.number,
                "vni": a.vni(place),
                "route_target": a.route_target(place),
            }
        if isinstance(place, Uplink):
            lower, upper = ports.uplink_ends(place)
            return base | {"lower": "/".join(lower), "upper": "/".join(upper)}
        if isinstance(place, SwitchPlace):
            return base | {
                "switch": ports.switch(place),
                "tier": place.tier,
                "asn": a.asn(place),
                "loopback": a.loopback(place),
                "uplinks": ports.uplinks(place),
            }
        base |= {
            "pod": place.pod,
            "scalable_unit": place.unit,
            "rack": ports.rack(place),
            "node": ports.node(place),
        }
        if isinstance(place, NodePlace):
            return base | {"rails": [self.told(end) for end in self.rails(place)]}
        return base | self._rail(place)

    def _rail(self, end: RailEnd) -> dict[str, Any]:
        a, ports = self.addressing, self.ports
        host, leaf = end._replace(end=HOST), end._replace(end=LEAF)
        return {
            "rail": end.rail,
            "plane": end.plane,
            "link": end.link,
            "end": "leaf" if end.end == LEAF else "host",
            "card": ports.card(end),
            "host_interface": ports.host_interface(end),
            "leaf": ports.switch(ports.leaf_of(end)),
            "leaf_port": ports.leaf_port(end),
            "ipv4": a.ipv4(end),
            "peer_ipv4": a.ipv4(end.other),
            "ipv6": a.ipv6(end),
            "leaf_asn": a.asn(ports.leaf_of(end)),
            "lldp_at_host": "/".join(ports.leaf_end(leaf)),
            "lldp_at_leaf": "/".join(ports.host_end(host)),
        }

    def rails(self, place: NodePlace) -> list[RailEnd]:
        """Every rail of a node, at the host's end."""
        plan = self._plan
        return [
            RailEnd(*place, rail, plane, link)
            for rail in range(plan.rails)
            for plane in range(plan.planes)
            for link in range(plan.links)
        ]


def _built(numbers: dict[str, int], end: int | None) -> Place | None:
    """The place that these parts name; None if they name none."""
    got = set(numbers) - {"pod", "plane", "link", "rack"}
    pod, plane = numbers.get("pod", 0), numbers.get("plane", 0)
    if got == {"tenant"} and end is None:
        return TenantPlace(numbers["tenant"])
    tiers = [t for t in TIERS if t in got]
    if len(tiers) == 1 and end is None:
        tier = tiers[0]
        if got - {"up"} != ({"su", "leaf"} if tier == "leaf" else {tier}):
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
