"""Names and ports of places: the leaf port of a rail, and the neighbours seen by LLDP. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from provisioner.model.location import LEAF, TIERS, NodePlace, RailEnd, SwitchPlace, Uplink
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.model.tenant_network import MARK, FilterMatch, GroupRule, PortFilter, Protocol
from provisioner.planning.places import address_plan
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing

# ------------------------------------------------------------------------------
# The filter of each port of a tenant's nodes, from its security groups. Pure.
#
# A port has one filter at a time: the union of the rules of all groups that name it. The filters of
# a tenant depend on its groups alone, so that a leaf's configuration stays when nodes come and go;
# only what is bound to a port depends on the node behind it.


_ALWAYS = (
    FilterMatch("permit", protocol="icmp"),
    FilterMatch("permit", protocol="tcp", established=True),
)
_ELSE = (FilterMatch("deny"),)


def mark_filters(vrf: str) -> str:
    """Return the beginning of the names of a tenant's filters; no VRF's name has a "_"."""
    return f"{MARK}{vrf}_"


def plan_port_filter(tenant: Tenant, node: str, rail: int) -> tuple[str, PortFilter]:
    """Return name and rules of the filter of a node's port in this tenant; "" if it has none."""
    groups = [
        g
        for g in tenant.security_groups
        if (not g.nodes or node in g.nodes) and (not g.rails or rail in g.rails)
    ]
    if not groups:
        return "", ()
    groups.sort(key=lambda group: group.name)
    name = mark_filters(tenant.vrf) + "_".join(group.name for group in groups)
    permits = dict.fromkeys(match for g in groups for r in g.rules for match in _list_matches(r))
    return name, (*_ALWAYS, *permits, *_ELSE)


def list_filters(tenant: Tenant) -> dict[str, PortFilter]:
    groups = tenant.security_groups
    # one node and one rail of those that are in the same groups
    nodes = {
        frozenset(g.name for g in groups if not g.nodes or node in g.nodes): node
        for node in ("", *(name for g in groups for name in g.nodes))
    }
    rails = {
        frozenset(g.name for g in groups if not g.rails or rail in g.rails): rail
        for rail in (-1, *(number for g in groups for number in g.rails))
    }
    filters = (
        plan_port_filter(tenant, node, rail) for node in nodes.values() for rail in rails.values()
    )
    return {name: rules for name, rules in filters if name}


def plan_guards(tenant: Tenant, nodes: Iterable[Node], switch: str) -> dict[str, str]:
    """Return the filter of each port of the tenant's nodes on one leaf; "" where it has none."""
    return {
        port.interface: plan_port_filter(tenant, node.id, port.rail)[0]
        for node in nodes
        if node.tenant == tenant.name
        for port in node.ports
        if port.switch == switch and not port.guid
    }


def _list_matches(rule: GroupRule) -> Iterator[FilterMatch]:
    source = "" if rule.source == "0.0.0.0/0" else rule.source
    for port in rule.ports or (0,):
        yield FilterMatch("permit", Protocol(rule.protocol).value, source, rule.target, port)


_PORT = re.compile(r"swp([1-9][0-9]{0,2})(?:s([0-7]))?")  # Cumulus: cage, and lane of a breakout
End = tuple[str, str]  # (name of the device, name of its interface), as in LLDP


class Ports:
    def __init__(self, addressing: Addressing) -> None:
        self.addressing = addressing
        self._plan = addressing.plan
        self._names = addressing.plan.names

    # names of things

    def name_node(self, place: NodePlace | RailEnd) -> str:
        numbers = {"pod": place.pod, "unit": place.unit, "node": place.node}
        return address_plan.write_name(self._names.node, numbers)

    def find_node(self, name: str) -> NodePlace | None:
        numbers = address_plan.read(self._names.node, name)
        if numbers is None:
            return None
        place = NodePlace(numbers.get("pod", 0), numbers.get("unit", 0), numbers["node"])
        return place if self.addressing.has_end(RailEnd(*place, 0)) else None

    def name_rack(self, place: NodePlace | RailEnd) -> str:
        rack = place.node // self._plan.nodes_per_rack
        numbers = {"pod": place.pod, "unit": place.unit, "rack": rack}
        return address_plan.write_name(self._names.rack, numbers)

    def name_card(self, end: RailEnd) -> str:
        return address_plan.write_name(self._names.card, _cable(end))

    def name_host_interface(self, end: RailEnd) -> str:
        return address_plan.write_name(self._names.host_interface, _cable(end))

    def name_switch(self, place: SwitchPlace) -> str:
        numbers = dict(zip(("pod", "unit", "number", "plane"), place[1:], strict=True))
        return address_plan.write_name(getattr(self._names, place.tier), numbers)

    def find_switch(self, name: str) -> SwitchPlace | None:
        for tier in TIERS:
            numbers = address_plan.read(getattr(self._names, tier), name)
            if numbers is None:
                continue
            place = SwitchPlace(
                tier,
                numbers.get("pod", 0),
                numbers.get("unit", 0),
                numbers["number"],
                numbers.get("plane", 0),
            )
            if self.addressing.has_switch(place):
                return place
        return None

    # ports

    def find_leaf(self, end: RailEnd) -> SwitchPlace:
        number = end.rail // self._plan.rails_per_leaf
        return SwitchPlace("leaf", end.pod, end.unit, number, end.plane)

    def name_leaf_port(self, end: RailEnd) -> str:
        """Return the leaf's interface: all rails of a node side by side, then the next node."""
        plan = self._plan
        at = end.node * plan.rails_per_leaf + end.rail % plan.rails_per_leaf
        return self.name_port(at * plan.links + end.link)

    def find_end(self, leaf: SwitchPlace, interface: str) -> RailEnd | None:
        """Return the leaf's end of the cable in a port; None for a port without a rail."""
        at = self._index(interface)
        if at is None or leaf.tier != "leaf":
            return None
        cable, link = divmod(at, self._plan.links)
        node, rail = divmod(cable, self._plan.rails_per_leaf)
        rail += leaf.number * self._plan.rails_per_leaf
        end = RailEnd(leaf.pod, leaf.unit, node, rail, leaf.plane, link, LEAF)
        return end if self.addressing.has_end(end) and self.find_leaf(end) == leaf else None

    def count_uplinks(self, lower: SwitchPlace) -> int:
        """Return how many cables a switch has to the tier above."""
        plan = self._plan
        if lower.tier == "leaf":
            return plan.spines * plan.links_per_spine
        if lower.tier == "spine" and plan.tiers == 3:
            return plan.superspines * plan.links_per_superspine
        return 0

    def find_uplink_ends(self, uplink: Uplink) -> tuple[End, End]:
        """Return both ends of a cable between switches: the lower one, then the upper one."""
        plan = self._plan
        low = uplink.lower
        if low.tier == "leaf":
            number, link = divmod(uplink.number, plan.links_per_spine)
            upper = SwitchPlace("spine", low.pod, 0, number, low.plane)
            first = (plan.first_uplink - 1) * plan.breakout
            below = (low.unit * plan.leaves + low.number) * plan.links_per_spine + link
        else:
            # the spines of one number, one in each pod, share a group of superspines
            at, link = divmod(uplink.number, plan.links_per_superspine)
            number = low.number * plan.superspines + at
            upper = SwitchPlace("superspine", 0, 0, number, low.plane)
            first = plan.units * plan.leaves * plan.links_per_spine
            below = low.pod * plan.links_per_superspine + link
        return (
            (self.name_switch(low), self.name_port(first + uplink.number)),
            (self.name_switch(upper), self.name_port(below)),
        )

    # neighbours in LLDP

    def name_host_end(self, end: RailEnd) -> End:
        """Return (node, interface) of a rail's cable."""
        return self.name_node(end), self.name_host_interface(end)

    def name_leaf_end(self, end: RailEnd) -> End:
        """Return (leaf, interface) of a rail's cable."""
        return self.name_switch(self.find_leaf(end)), self.name_leaf_port(end)

    def name_port(self, at: int) -> str:
        """Return the port at this number of a switch, from 0."""
        cage, lane = divmod(at, self._plan.breakout)
        return f"swp{cage + 1}s{lane}" if self._plan.breakout > 1 else f"swp{cage + 1}"

    def _index(self, interface: str) -> int | None:
        match = _PORT.fullmatch(interface)
        if match is None or (match[2] is None) != (self._plan.breakout == 1):
            return None
        lane = int(match[2] or 0)
        return (
            (int(match[1]) - 1) * self._plan.breakout + lane if lane < self._plan.breakout else None
        )


def _cable(end: RailEnd) -> dict[str, int]:
    return {"rail": end.rail, "plane": end.plane, "link": end.link}


@lru_cache(maxsize=4)
def _ports(plan: AddressPlan) -> Ports:
    return Ports(Addressing(plan))


@lru_cache(maxsize=1 << 14)
def find_switch(name: str, plan: AddressPlan | None) -> SwitchPlace | None:
    return None if plan is None else _ports(plan).find_switch(name)


def list_switch_groups(name: str, plan: AddressPlan | None) -> tuple[str, ...]:
    """Return the groups of a switch above the leaves, of which one has to carry on: the superspines
    of a spine's number, and those of a plane. A name that no plan writes is cut at its number.
    """
    if plan is None or (place := find_switch(name, plan)) is None:
        group = name.rpartition("-")[0]
        return (f"{group} switches of one plane",) if group and name[:5] != "leaf-" else ()
    tier, pod, unit, number, plane = place
    spines, superspines = _name_groups(place, plan)
    if tier == "superspine":
        served = number // max(1, plan.superspines)
        of_plane = f", plane {plane}" if plan.planes > 1 else ""
        return f"superspines of spine number {served}{of_plane}", superspines
    if tier == "front":
        return (f"front switches of pod {pod}, unit {unit}",)
    return (spines,) if tier == "spine" else ()


def name_groups_above(leaf: str, plan: AddressPlan | None) -> tuple[str, str]:
    """Return the groups of all spines, and of all superspines, that a leaf's paths are spread over;
    "" for what the plan does not know or have.
    """
    if plan is None or (place := find_switch(leaf, plan)) is None or place.tier != "leaf":
        return "", ""
    spines, superspines = _name_groups(place, plan)
    return spines, superspines if plan.tiers == 3 else ""


def _name_groups(place: SwitchPlace, plan: AddressPlan) -> tuple[str, str]:
    of_plane = f", plane {place.plane}" if plan.planes > 1 else ""
    return f"spines of pod {place.pod}{of_plane}", f"superspines{of_plane}"
