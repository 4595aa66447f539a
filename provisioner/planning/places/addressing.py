"""Where an address belongs, and which address belongs to a place: one bijection. Pure.

Every number of a place has its bits in the address (`Widths`), so that both directions are shifts.
A switch has one running number, from which its loopback and its AS number follow; a tenant's number
is its VNI and route target.
"""

from __future__ import annotations

import ipaddress
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from provisioner.model.place import RailEnd, SwitchPlace, TenantPlace
from provisioner.planning.places.address_plan import COUNTED, AddressPlan


class _Bits(NamedTuple):
    """Where one number stands in an address."""

    shift: int
    mask: int
    many: int


class Addressing:
    """The numbers of a plan without `problems`."""

    def __init__(self, plan: AddressPlan) -> None:
        self.plan = plan
        self._ipv4 = ipaddress.IPv4Network(plan.ipv4)
        self._ipv6 = ipaddress.IPv6Network(plan.ipv6)
        self._loopbacks = ipaddress.IPv4Network(plan.loopbacks)
        self._base4 = int(self._ipv4.network_address)
        shift, bits = 1, {}
        for name in reversed(COUNTED):
            width = getattr(plan.widths, name)
            bits[name] = _Bits(shift, (1 << width) - 1, plan.counts[name])
            shift += width
        self._total = shift
        self._rail, self._plane, self._pod = bits["rail"], bits["plane"], bits["pod"]
        self._unit, self._node, self._link = bits["unit"], bits["node"], bits["link"]

    # rails

    def offset(self, end: RailEnd) -> int:
        """The place of an end within the network. A place outside the plan is our bug."""
        for number, bits in (
            (end.rail, self._rail),
            (end.plane, self._plane),
            (end.pod, self._pod),
            (end.unit, self._unit),
            (end.node, self._node),
            (end.link, self._link),
        ):
            assert 0 <= number < bits.many, end
        return (
            end.rail << self._rail.shift
            | end.plane << self._plane.shift
            | end.pod << self._pod.shift
            | end.unit << self._unit.shift
            | end.node << self._node.shift
            | end.link << self._link.shift
            | end.end
        )

    def end_at(self, offset: int) -> RailEnd | None:
        """The end at a place within the network; None for numbers that the plan does not use."""
        if offset < 0 or offset >> self._total:
            return None
        end = RailEnd(
            offset >> self._pod.shift & self._pod.mask,
            offset >> self._unit.shift & self._unit.mask,
            offset >> self._node.shift & self._node.mask,
            offset >> self._rail.shift & self._rail.mask,
            offset >> self._plane.shift & self._plane.mask,
            offset >> self._link.shift & self._link.mask,
            offset & 1,
        )
        return end if self.has(end) else None

    def has(self, end: RailEnd) -> bool:
        """Whether the plan has this place."""
        return (
            0 <= end.rail < self._rail.many
            and 0 <= end.plane < self._plane.many
            and 0 <= end.pod < self._pod.many
            and 0 <= end.unit < self._unit.many
            and 0 <= end.node < self._node.many
            and 0 <= end.link < self._link.many
        )

    def ipv4(self, end: RailEnd) -> str:
        """The address of an end with its prefix length: "172.224.0.18/31"."""
        return f"{IPv4Address(self._base4 + self.offset(end))}/31"

    def ipv6(self, end: RailEnd) -> str:
        """The same place in IPv6, a /127 (RFC 6164)."""
        return f"{IPv6Address(int(self._ipv6.network_address) + self.offset(end))}/127"

    def rail_end(self, address: str) -> RailEnd | None:
        """Where a rail's address belongs, of either kind, with or without prefix length."""
        try:
            found = ipaddress.ip_interface(address)
        except ValueError:
            return None
        network = self._ipv4 if found.version == 4 else self._ipv6
        if found.ip not in network:
            return None
        return self.end_at(int(found.ip) - int(network.network_address))

    # switches

    @cached_property
    def _first(self) -> dict[str, int]:
        """Running number of the first switch of each tier."""
        counts = self.plan.switches
        return {
            "leaf": 0,
            "spine": counts["leaf"],
            "superspine": counts["leaf"] + counts["spine"],
        }

    def number(self, switch: SwitchPlace) -> int:
        """The running number of a switch within the site, from 0."""
        plan, at = self.plan, switch
        if switch.tier == "leaf":
            inner = (at.pod * plan.units + at.unit) * plan.leaves + at.number
        elif switch.tier == "spine":
            inner = at.pod * plan.spines + at.number
        else:
            inner = at.number
        return self._first[switch.tier] + inner * plan.planes + at.plane

    def switch(self, number: int) -> SwitchPlace | None:
        """The switch with this running number; None if there is none."""
        plan = self.plan
        if number < 0:
            return None
        for tier in ("superspine", "spine", "leaf"):
            inner = number - self._first[tier]
            if inner < 0:
                continue
            if inner >= plan.switches[tier]:
                return None
            rest, plane = divmod(inner, plan.planes)
            if tier == "superspine":
                return SwitchPlace(tier, 0, 0, rest, plane)
            if tier == "spine":
                pod, at = divmod(rest, plan.spines)
                return SwitchPlace(tier, pod, 0, at, plane)
            above, at = divmod(rest, plan.leaves)
            return SwitchPlace(tier, *divmod(above, plan.units), at, plane)
        return None

    def has_switch(self, switch: SwitchPlace) -> bool:
        """Whether the plan has this switch."""
        return min(switch[1:]) >= 0 and self.switch(self.number(switch)) == switch

    def asn(self, switch: SwitchPlace) -> int:
        """Its AS number."""
        return self.plan.asn_first + self.number(switch)

    def switch_of_asn(self, asn: int) -> SwitchPlace | None:
        """The switch with this AS number."""
        return self.switch(asn - self.plan.asn_first)

    def loopback(self, switch: SwitchPlace) -> str:
        """Its loopback, "10.240.0.0/32"."""
        return f"{self._loopbacks[self.number(switch)]}/32"

    def switch_of_loopback(self, address: str) -> SwitchPlace | None:
        """The switch with this loopback."""
        try:
            found = ipaddress.ip_interface(address).ip
        except ValueError:
            return None
        if found not in self._loopbacks:
            return None
        return self.switch(int(found) - int(self._loopbacks.network_address))

    # tenants

    def vni(self, tenant: TenantPlace) -> int:
        """The tenant's L3VNI. A number outside the plan is our bug."""
        assert 0 <= tenant.number < self.plan.tenants
        return self.plan.vni_first + tenant.number

    def route_target(self, tenant: TenantPlace) -> str:
        """The tenant's route target, "65000:4001"."""
        return f"{self.plan.route_target_as}:{self.vni(tenant)}"

    def tenant(self, vni: int) -> TenantPlace | None:
        """The tenant with this VNI."""
        number = vni - self.plan.vni_first
        return TenantPlace(number) if 0 <= number < self.plan.tenants else None

    def tenant_of_target(self, route_target: str) -> TenantPlace | None:
        """The tenant with this route target."""
        head, _, tail = route_target.partition(":")
        if head != str(self.plan.route_target_as) or not tail.isdecimal() or len(tail) > 8:
            return None
        found = self.tenant(int(tail))
        return found if found and self.route_target(found) == route_target else None


def network_of(address: str) -> str | None:
    """The network of an interface address: "172.0.0.0/31" of "172.0.0.1/31"."""
    try:
        return str(ipaddress.ip_interface(address).network)
    except ValueError:
        return None
