"""Names and ports of places: the leaf port of a rail, and who sees whom by LLDP. Pure."""

from __future__ import annotations

import re

from provisioner.model.place import LEAF, NodePlace, RailEnd, SwitchPlace, Uplink
from provisioner.planning.places import place_names
from provisioner.planning.places.addressing import Addressing

_PORT = re.compile(r"swp([1-9][0-9]{0,2})(?:s([0-7]))?")  # Cumulus: cage, and lane of a breakout
End = tuple[str, str]  # (name of the device, name of its interface), as LLDP tells them


class Ports:
    """Names and ports of a plan."""

    def __init__(self, addressing: Addressing) -> None:
        self.addressing = addressing
        self._plan = addressing.plan
        self._names = addressing.plan.names

    # names of things

    def node(self, place: NodePlace | RailEnd) -> str:
        """The node's name."""
        numbers = {"pod": place.pod, "unit": place.unit, "node": place.node}
        return place_names.written(self._names.node, numbers)

    def node_called(self, name: str) -> NodePlace | None:
        """The place of a node by its name."""
        found = place_names.read(self._names.node, name)
        if found is None:
            return None
        place = NodePlace(found.get("pod", 0), found.get("unit", 0), found["node"])
        return place if self.addressing.has(RailEnd(*place, 0)) else None

    def rack(self, place: NodePlace | RailEnd) -> str:
        """The name of the rack that a node stands in."""
        rack = place.node // self._plan.nodes_per_rack
        numbers = {"pod": place.pod, "unit": place.unit, "rack": rack}
        return place_names.written(self._names.rack, numbers)

    def card(self, end: RailEnd) -> str:
        """The slot of the SuperNIC."""
        return place_names.written(self._names.card, _cable(end))

    def host_interface(self, end: RailEnd) -> str:
        """The network interface of the SuperNIC, as the host names it."""
        return place_names.written(self._names.host_interface, _cable(end))

    def switch(self, place: SwitchPlace) -> str:
        """The switch's name."""
        numbers = dict(zip(("pod", "unit", "number", "plane"), place[1:], strict=True))
        return place_names.written(getattr(self._names, place.tier), numbers)

    def switch_called(self, name: str) -> SwitchPlace | None:
        """The place of a switch by its name."""
        for tier in ("leaf", "spine", "superspine"):
            found = place_names.read(getattr(self._names, tier), name)
            if found is None:
                continue
            place = SwitchPlace(
                tier,
                found.get("pod", 0),
                found.get("unit", 0),
                found["number"],
                found.get("plane", 0),
            )
            if self.addressing.has_switch(place):
                return place
        return None

    # ports

    def leaf_of(self, end: RailEnd) -> SwitchPlace:
        """The leaf that a rail is cabled to."""
        number = end.rail // self._plan.rails_per_leaf
        return SwitchPlace("leaf", end.pod, end.unit, number, end.plane)

    def leaf_port(self, end: RailEnd) -> str:
        """The leaf's interface: the rails of a node side by side, then the next node."""
        plan = self._plan
        at = end.node * plan.rails_per_leaf + end.rail % plan.rails_per_leaf
        return self._port(at * plan.links + end.link)

    def end_of(self, leaf: SwitchPlace, interface: str) -> RailEnd | None:
        """The leaf's end of the cable that belongs into one of its ports; None for another port."""
        at = self._index(interface)
        if at is None or leaf.tier != "leaf":
            return None
        rest, link = divmod(at, self._plan.links)
        node, rail = divmod(rest, self._plan.rails_per_leaf)
        rail += leaf.number * self._plan.rails_per_leaf
        end = RailEnd(leaf.pod, leaf.unit, node, rail, leaf.plane, link, LEAF)
        return end if self.addressing.has(end) and self.leaf_of(end) == leaf else None

    def uplinks(self, lower: SwitchPlace) -> int:
        """How many cables a switch has to the tier above."""
        plan = self._plan
        if lower.tier == "leaf":
            return plan.spines * plan.links_per_spine
        if lower.tier == "spine" and plan.tiers == 3:
            return plan.superspines * plan.links_per_superspine
        return 0

    def uplink_ends(self, uplink: Uplink) -> tuple[End, End]:
        """Both ends of a cable between switches: the lower one, the upper one."""
        plan, low = self._plan, uplink.lower
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
            (self.switch(low), self._port(first + uplink.number)),
            (self.switch(upper), self._port(below)),
        )

    # who sees whom

    def host_end(self, end: RailEnd) -> End:
        """(node, interface) of a rail's cable."""
        return self.node(end), self.host_interface(end)

    def leaf_end(self, end: RailEnd) -> End:
        """(leaf, interface) of a rail's cable."""
        return self.switch(self.leaf_of(end)), self.leaf_port(end)

    def _port(self, at: int) -> str:
        cage, lane = divmod(at, self._plan.breakout)
        return f"swp{cage + 1}s{lane}" if self._plan.breakout > 1 else f"swp{cage + 1}"

    def _index(self, interface: str) -> int | None:
        found = _PORT.fullmatch(interface)
        if found is None or (found[2] is None) != (self._plan.breakout == 1):
            return None
        lane = int(found[2] or 0)
        return (
            (int(found[1]) - 1) * self._plan.breakout + lane if lane < self._plan.breakout else None
        )


def _cable(end: RailEnd) -> dict[str, int]:
    return {"rail": end.rail, "plane": end.plane, "link": end.link}
