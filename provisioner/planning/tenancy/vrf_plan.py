"""The desired configuration of each leaf for all tenants: VRF, L3VNI, route targets, policy. Pure.

A tenant's host ports are in its VRF, the uplinks stay in the default VRF, and an EVPN L3VNI
connects them. Cumulus' adaptive routing works only for next hops in the default VRF, so a VRF with
uplinks of its own would lose it; NICs need the inter-packet gap of such an overlay.

Bodies: the Cumulus guide's chapters "Inter-subnet Routing", "VRF Route Leaking" and "Route
Filtering", and NVIDIA's own NVUE templates for tenants (NICo).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from provisioner.model.base import Record
from provisioner.model.expected import DEFAULT_OS
from provisioner.model.node import Node, NodeKind
from provisioner.model.place import TenantPlace, Uplink
from provisioner.model.tenant import MAINTENANCE_VRF, Outside, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

Tree = dict[str, Any]
Dialect = Literal["enable", "state"]  # `enable on`, or since Cumulus Linux 5.15 `state enabled`

VRF_NAME_MAX = 15  # characters: an interface's name in Linux (Cumulus and SONiC alike)
VRFS_MAX = 255  # Cumulus: tables 1001 to 1255
RESERVED = frozenset({"default", "mgmt", "global", "main", "local", MAINTENANCE_VRF.lower()})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")  # no "_": it ends the name in `owned_mark`
LAST_RULE = "65535"  # of a route map: routes that no earlier rule permits are denied


class LeafPlan(Record):
    """One leaf, with the facts that tenants' networks depend on."""

    switch: str
    pod: int
    unit: int
    asn: int
    router_id: str  # its loopback, without length
    uplinks: tuple[str, ...]
    os: str = "cumulus"
    dialect: Dialect = "enable"


class FabricPlan(Record):
    """All leaves of a site, with the plan that numbers them. `unknown`: cabled, but not in it."""

    plan: AddressPlan
    leaves: tuple[LeafPlan, ...]
    unknown: tuple[str, ...] = ()
    partitions: bool = False  # InfiniBand isolates tenants: there may be no leaf

    def select_leaves(self, tenant: Tenant) -> tuple[LeafPlan, ...]:
        """Return the leaves that need the tenant's network: of its units, and with its sessions."""
        borders = {o.switch for o in tenant.outside}
        return tuple(
            leaf
            for leaf in self.leaves
            if tenant.may_have(leaf.pod, leaf.unit) or leaf.switch in borders
        )


def plan_fabric(
    plan: AddressPlan, nodes: Iterable[Node], versions: Mapping[str, str] | None = None
) -> FabricPlan:
    """Return the leaves among the nodes of a site. `versions`: of their operating systems.

    A leaf without a recorded version is configured as the newest release that has `enable`.
    """
    addressing = Addressing(plan)
    ports = Ports(addressing)
    listed = list(nodes)
    leaves = []
    systems = {n.id: _get_system(n) for n in listed if n.kind is NodeKind.SWITCH}
    for name in sorted(systems):
        place = ports.find_switch(name)
        if place is not None and place.tier == "leaf":
            numbers = range(ports.count_uplinks(place))
            leaves.append(
                LeafPlan(
                    switch=name,
                    pod=place.pod,
                    unit=place.unit,
                    asn=addressing.get_asn(place),
                    router_id=addressing.get_loopback(place).partition("/")[0],
                    uplinks=tuple(ports.find_uplink_ends(Uplink(place, n))[0][1] for n in numbers),
                    os=systems[name],
                    dialect=dialect_of((versions or {}).get(name, "")),
                )
            )
    hosts = [n for n in listed if n.kind is NodeKind.HOST]
    cabled = {p.switch for n in hosts for p in n.ports if not p.guid}  # InfiniBand is UFM's
    unknown = tuple(sorted(cabled - {leaf.switch for leaf in leaves}))
    return FabricPlan(plan=plan, leaves=tuple(leaves), unknown=unknown)


def _get_system(node: Node) -> str:
    """Return a switch's operating system; of rows from before it was recorded, by the address."""
    return node.os or ("sonic" if node.address.startswith("ssh://") else DEFAULT_OS)


def dialect_of(version: str) -> Dialect:
    """Return the keyword with which a release of Cumulus Linux enables a feature.

    NVUE reference: "5.14 and earlier, you specify enable on".
    """
    numbers = re.match(r"(\d{1,3})\.(\d{1,3})", version)
    newer = numbers is not None and (int(numbers[1]), int(numbers[2])) >= (5, 15)
    return "state" if newer else "enable"


def name_problem(vrf: str, system: str = "cumulus") -> str | None:
    """Return why a VRF cannot have this name on a switch with this operating system, or None."""
    if len(vrf) > VRF_NAME_MAX:
        return f"VRF name {vrf[:40]} is longer than {VRF_NAME_MAX} characters"
    if not _NAME.fullmatch(vrf):
        return f"VRF name {vrf!r:.40} is not made of letters, digits and -"
    if vrf.lower() in RESERVED:
        return f"VRF name {vrf} is the switch's or ours"
    if system == "sonic" and len(vrf.removeprefix("Vrf")) > VRF_NAME_MAX - len("Vrf"):
        return f"VRF name {vrf} with Vrf before it, as SONiC asks, is longer than {VRF_NAME_MAX}"
    return None


def plan_trees(tenants: Sequence[Tenant], fabric: FabricPlan) -> dict[str, Tree]:
    """Return the desired configuration of every leaf for these tenants, as NVUE trees.

    Everything outside of these trees is the site's, including tenants without a number.
    """
    trees: dict[str, Tree] = {leaf.switch: {} for leaf in fabric.leaves}
    for tenant in sorted((t for t in tenants if t.number is not None), key=lambda t: t.name):
        for leaf in fabric.select_leaves(tenant):
            merge(trees[leaf.switch], tenant_tree(tenant, leaf, fabric.plan))
    return trees


def tenant_tree(tenant: Tenant, leaf: LeafPlan, plan: AddressPlan) -> Tree:
    """Return the desired configuration of one leaf for one tenant."""
    assert tenant.number is not None
    addressing, place = Addressing(plan), TenantPlace(tenant.number)
    target, on = addressing.get_route_target(place), _on(leaf.dialect)
    unicast: Tree = {
        **on,
        "redistribute": {"connected": on},
        "route-export": {"to-evpn": on},
    }
    if tenant.storage:
        unicast["route-import"] = {"from-vrf": {**on, "list": {v: {} for v in tenant.storage}}}
    bgp: Tree = {
        **on,
        "autonomous-system": leaf.asn,
        "router-id": leaf.router_id,
        "route-export": {"to-evpn": {"route-target": {target: {}}}},
        "route-import": {"from-evpn": {"route-target": {target: {}}}},
        "address-family": {"ipv4-unicast": unicast},
    }
    vni: Tree = {str(addressing.get_vni(place)): {}}
    tree: Tree = {"vrf": {tenant.vrf: {"evpn": {**on, "vni": vni}, "router": {"bgp": bgp}}}}
    # BGP imports one way only: routes that storage may use for its answers are in its own list
    for storage in tenant.storage:
        back = {"from-vrf": {**on, "list": {tenant.vrf: {}}}}
        family = {"ipv4-unicast": {"route-import": back}}
        tree["vrf"][storage] = {"router": {"bgp": {"address-family": family}}}
    sessions = [o for o in tenant.outside if o.switch == leaf.switch]
    for session in sessions:
        policy = policy_names(tenant.vrf, session.peer)
        names = {"inbound": {"route-map": policy[0]}, "outbound": {"route-map": policy[1]}}
        bgp.setdefault("neighbor", {})[session.peer] = {
            "type": "numbered",
            "remote-as": session.remote_as,
            "address-family": {"ipv4-unicast": {**on, "policy": names}},
        }
        merge(tree, _policy(session, policy))
    return tree


def policy_names(vrf: str, peer: str) -> tuple[str, str]:
    """Return the names of the prefix lists and route maps of a session: in, out.

    The mark at their beginning identifies them as ours.
    """
    name = owned_mark(vrf) + peer.replace(".", "-")
    return f"{name}_in", f"{name}_out"


def owned_mark(vrf: str) -> str:
    """Return the prefix of the names of all policies that are made for a tenant."""
    return f"tenant_{vrf}_"


def merge(tree: Tree, more: Mapping[str, Any]) -> None:
    """Add a tree to another one in place; where both have a value, the values must be equal."""
    for key, value in more.items():
        if isinstance(value, Mapping):
            merge(tree.setdefault(key, {}), value)
        else:
            assert tree.setdefault(key, value) == value, key


def _policy(session: Outside, names: tuple[str, str]) -> Tree:
    """Return the policy of a session. It is closed: without a listed prefix, no route passes."""
    lists: Tree = {}
    maps: Tree = {}
    for name, prefixes, parts in (
        (names[0], session.accepts, False),
        (names[1], session.sends, True),  # links are parts of the announced prefixes
    ):
        rules: Tree = {LAST_RULE: {"action": {"deny": {}}}}
        if prefixes:
            limit = {"max-prefix-len": 32} if parts else {}
            lists[name] = {
                "type": "ipv4",
                "rule": {
                    str(10 * (i + 1)): {"action": "permit", "match": {p: dict(limit)}}
                    for i, p in enumerate(prefixes)
                },
            }
            match = {"type": "ipv4", "ip-prefix-list": name}
            rules["10"] = {"action": {"permit": {}}, "match": match}
        maps[name] = {"rule": rules}
    policy: Tree = {"route-map": maps}
    if lists:
        policy["prefix-list"] = lists
    return {"router": {"policy": policy}}


def _on(dialect: Dialect) -> Tree:
    return {"enable": "on"} if dialect == "enable" else {"state": "enabled"}
