"""The plan of a site's front-end: a bond of each node, with a leg on each front leaf of its unit.

A file of its own beside the address plan, since only sites whose leaves the daemon bonds have one.
Everything follows from a node's place: the member by its number in the unit, the VLAN as well (a
unit has leaves of its own), segment, VNI and network by its number in the site.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

from pydantic import Field, ValidationError

from provisioner.integrations.places.gazetteer import Gazetteer
from provisioner.model.base import Record
from provisioner.model.location import Bond, NodePlace, Port, SwitchPlace
from provisioner.planning.matrix.located_yaml import load
from provisioner.planning.places.address_plan import VNI_MAX, AddressPlan

VLAN_MAX = 4094  # IEEE 802.1Q


class FrontBonds(Record):
    """The plan. Without `segment_mac` the leaves of a unit are an MLAG."""

    ipv4: str  # of all bonds: two addresses for each node, the odd one at the leaves
    cards: tuple[str, ...] = Field(min_length=2, max_length=16)  # the NIC's slot of each leg
    segment_mac: str = Field("", pattern=r"^([0-9a-f]{2}(:[0-9a-f]{2}){5})?$")
    vlan_first: int = Field(101, ge=2, le=VLAN_MAX)  # of a unit's first node
    vni_first: int = Field(0, ge=0, le=VNI_MAX)  # of the site's first node; 0: its VLAN has none
    mtu: int = Field(9216, ge=552, le=9216)  # what leaves take


def parse(source: str, text: str, plan: AddressPlan) -> FrontBonds:
    """Read the plan from YAML. Raises InputError for the first fault."""
    located = load(source, text)
    if not isinstance(located.tree, dict):
        raise located.build_error((), "this is no plan of bonds", "Write lines of `name: value`.")
    try:
        bonds = FrontBonds.model_validate(located.tree)
    except ValidationError as error:
        remedy = "See docs/addressing.md#bonds-of-the-front-end."
        raise located.build_model_error(error, remedy) from None
    for field, problem, remedy in _find_problems(bonds, plan):
        raise located.build_error((field,), problem, remedy)
    return bonds


def _find_problems(bonds: FrontBonds, plan: AddressPlan) -> list[tuple[str, str, str]]:
    nodes = plan.pods * plan.units * plan.nodes
    faults = []
    try:
        network = IPv4Network(bonds.ipv4)
    except ValueError as error:
        return [("ipv4", f"{bonds.ipv4:.40}: {error}", "Write a network.")]
    if network.num_addresses < 2 * nodes:
        problem = f"{network} has {network.num_addresses} addresses for {nodes} nodes"
        faults.append(("ipv4", problem, "Take a larger network."))
    faults += [
        ("ipv4", f"{network} overlaps {text}", "Take another network.")
        for text in (plan.ipv4, plan.loopbacks, *plan.reserved)
        if ":" not in text and network.overlaps(IPv4Network(text))
    ]
    if len(bonds.cards) != plan.front_leaves:
        problem = (
            f"a bond of {len(bonds.cards)} legs, and a unit has {plan.front_leaves} front leaves"
        )
        faults.append(("cards", problem, "Name one card for each of `front_leaves`."))
    if plan.nodes > plan.switch_ports * plan.breakout:
        faults.append(("cards", f"{plan.nodes} nodes on one leaf", "It has no port for each."))
    if bonds.vlan_first + plan.nodes - 1 > VLAN_MAX:
        problem = f"{plan.nodes} nodes from VLAN {bonds.vlan_first}"
        faults.append(("vlan_first", problem, f"Begin lower: {VLAN_MAX} is the last."))
    first = bonds.vni_first
    last = first + nodes - 1
    if first and (last > VNI_MAX or _overlap(first, last, plan)):
        problem = f"{first} to {last} is beyond {VNI_MAX}, or has VNIs of tenants"
        faults.append(("vni_first", problem, "Begin elsewhere."))
    if bonds.segment_mac and not first:
        problem = "a segment needs the VNI of its VLAN"
        faults.append(("vni_first", problem, "Give one: EVPN tells it to the other leaves."))
    return faults


def _overlap(first: int, last: int, plan: AddressPlan) -> bool:
    return first < plan.vni_first + plan.tenants and plan.vni_first <= last


def plan_node(
    bonds: FrontBonds, gazetteer: Gazetteer, plan: AddressPlan, at: NodePlace
) -> list[Port]:
    """Return the legs of a node's bond, as its ports in the list of expected hardware."""
    number = (at.pod * plan.units + at.unit) * plan.nodes + at.node
    network = IPv4Network(bonds.ipv4)
    local = f"{number + 1:06x}"
    segment = ":".join(("03", bonds.segment_mac, local[:2], local[2:4], local[4:]))
    bond = Bond(
        name=f"bond{at.node + 1}",
        members=(gazetteer.ports.name_port(at.node),),
        segment=segment if bonds.segment_mac else "",
        mlag=0 if bonds.segment_mac else at.node + 1,
        made=True,
        vni=bonds.vni_first and bonds.vni_first + number,
        mtu=bonds.mtu,
    )
    return [
        Port(
            switch=gazetteer.ports.name_switch(SwitchPlace("front", at.pod, at.unit, leg)),
            interface=f"vlan{bonds.vlan_first + at.node}",
            rail=-1,
            nic_slot=card,
            address=f"{network[2 * number + 1]}/31",
            bond=bond,
        )
        for leg, card in enumerate(bonds.cards)
    ]


def describe(ports: list[Port]) -> list[dict[str, Any]]:
    """Return ports as the list takes them, without what has its default."""
    return [port.model_dump(mode="json", exclude_defaults=True) for port in ports]
