"""Convert between places and addresses, in both directions. Pure.

Every number of a place has its own bits in the address (`Widths`), so that both directions are
shifts. A switch has a running number, which gives its loopback and AS number; a tenant's number
gives its VNI and route target.
"""

from __future__ import annotations

import ipaddress
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from provisioner.model.location import RailEnd, SwitchPlace, TenantPlace
from provisioner.planning.places.address_plan import COUNTED, AddressPlan


class _Bits(NamedTuple):
    shift: int
    mask: int
    many: int


class Addressing:
    """The addresses and numbers of a plan without problems."""

    def __init__(self, plan: AddressPlan) -> None:
        self.plan = plan
        self._ipv4 = ipaddress.IPv4Network(plan.ipv4)
        self._ipv6 = ipaddress.IPv6Network(plan.ipv6)
        self._loopbacks = ipaddress.IPv4Network(plan.loopbacks)
        self._base4 = int(self._ipv4.network_address)
        shift = 1
        bits = {}
        for name in reversed(COUNTED):
            width = getattr(plan.widths, name)
            bits[name] = _Bits(shift, (1 << width) - 1, plan.counts[name])
            shift += width
        self._total = shift
        self._rail = bits["rail"]
        self._plane = bits["plane"]
        self._pod = bits["pod"]
        self._unit = bits["unit"]
        self._node = bits["node"]
        self._link = bits["link"]

    # rails

    def compute_offset(self, end: RailEnd) -> int:
        """Return the offset of an end within the network.

        A place outside the plan is a fault of the caller (`AssertionError`).
        """
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

    def find_end(self, offset: int) -> RailEnd | None:
        """Return the end at an offset within the network; None if the plan does not use it."""
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
        return end if self.has_end(end) else None

    def has_end(self, end: RailEnd) -> bool:
        return (
            0 <= end.rail < self._rail.many
            and 0 <= end.plane < self._plane.many
            and 0 <= end.pod < self._pod.many
            and 0 <= end.unit < self._unit.many
            and 0 <= end.node < self._node.many
            and 0 <= end.link < self._link.many
        )

    def format_ipv4(self, end: RailEnd) -> str:
        """Return the IPv4 address of an end with its prefix length: "172.224.0.18/31"."""
        return f"{IPv4Address(self._base4 + self.compute_offset(end))}/31"

    def format_ipv6(self, end: RailEnd) -> str:
        """Return the IPv6 address of an end, with /127 (RFC 6164)."""
        return f"{IPv6Address(int(self._ipv6.network_address) + self.compute_offset(end))}/127"

    def find_rail_end(self, address: str) -> RailEnd | None:
        """Return the end with this IPv4 or IPv6 address (a prefix length is ignored), or None."""
        try:
            interface = ipaddress.ip_interface(address)
        except ValueError:
            return None
        network = self._ipv4 if interface.version == 4 else self._ipv6
        if interface.ip not in network:
            return None
        return self.find_end(int(interface.ip) - int(network.network_address))

    # switches

    @cached_property
    def _first(self) -> dict[str, int]:
        """Return the running number of the first switch of each tier."""
        counts = self.plan.switches
        above = counts["leaf"] + counts["spine"]
        # the front-end comes last, so that a plan which gets one keeps all its numbers
        front = above + counts["superspine"]
        return {"leaf": 0, "spine": counts["leaf"], "superspine": above, "front": front}

    def get_switch_number(self, switch: SwitchPlace) -> int:
        """Return the running number of a switch within the site, from 0."""
        plan = self.plan
        at = switch
        if switch.tier == "leaf":
            inner = (at.pod * plan.units + at.unit) * plan.leaves + at.number
        elif switch.tier == "spine":
            inner = at.pod * plan.spines + at.number
        elif switch.tier == "front":
            unit = at.pod * plan.units + at.unit
            return self._first["front"] + unit * plan.front_leaves + at.number
        else:
            inner = at.number
        return self._first[switch.tier] + inner * plan.planes + at.plane

    def find_switch(self, number: int) -> SwitchPlace | None:
        plan = self.plan
        if number < 0:
            return None
        for tier in ("front", "superspine", "spine", "leaf"):
            inner = number - self._first[tier]
            if inner < 0:
                continue
            if inner >= plan.switches[tier]:
                return None
            if tier == "front":
                above, at = divmod(inner, plan.front_leaves)
                return SwitchPlace(tier, *divmod(above, plan.units), at)
            position, plane = divmod(inner, plan.planes)
            if tier == "superspine":
                return SwitchPlace(tier, 0, 0, position, plane)
            if tier == "spine":
                pod, at = divmod(position, plan.spines)
                return SwitchPlace(tier, pod, 0, at, plane)
            above, at = divmod(position, plan.leaves)
            return SwitchPlace(tier, *divmod(above, plan.units), at, plane)
        return None

    def has_switch(self, switch: SwitchPlace) -> bool:
        return min(switch[1:]) >= 0 and self.find_switch(self.get_switch_number(switch)) == switch

    def get_asn(self, switch: SwitchPlace) -> int:
        return self.plan.asn_first + self.get_switch_number(switch)

    def find_switch_by_asn(self, asn: int) -> SwitchPlace | None:
        return self.find_switch(asn - self.plan.asn_first)

    def get_loopback(self, switch: SwitchPlace) -> str:
        """Return the loopback of a switch: "10.240.0.0/32"."""
        return f"{self._loopbacks[self.get_switch_number(switch)]}/32"

    def find_switch_by_loopback(self, address: str) -> SwitchPlace | None:
        try:
            ip = ipaddress.ip_interface(address).ip
        except ValueError:
            return None
        if ip not in self._loopbacks:
            return None
        return self.find_switch(int(ip) - int(self._loopbacks.network_address))

    # tenants

    def get_vni(self, tenant: TenantPlace) -> int:
        """Return the tenant's L3VNI.

        A number outside the plan is a fault of the caller (`AssertionError`).
        """
        assert 0 <= tenant.number < self.plan.tenants
        return self.plan.vni_first + tenant.number

    def get_route_target(self, tenant: TenantPlace) -> str:
        """Return the tenant's route target: "65000:4001"."""
        return f"{self.plan.route_target_as}:{self.get_vni(tenant)}"

    def find_tenant(self, vni: int) -> TenantPlace | None:
        number = vni - self.plan.vni_first
        return TenantPlace(number) if 0 <= number < self.plan.tenants else None

    def find_tenant_by_target(self, route_target: str) -> TenantPlace | None:
        head, _, tail = route_target.partition(":")
        if head != str(self.plan.route_target_as) or not tail.isdecimal() or len(tail) > 8:
            return None
        tenant = self.find_tenant(int(tail))
        return tenant if tenant and self.get_route_target(tenant) == route_target else None


def network_of(address: str) -> str | None:
    """Return the network of an interface address ("172.0.0.0/31" of "172.0.0.1/31"), or None."""
    try:
        return str(ipaddress.ip_interface(address).network)
    except ValueError:
        return None
