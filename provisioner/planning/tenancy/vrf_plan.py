"""The desired networks of each leaf for all tenants: VRF, L3VNI, route targets, policy. Pure.

A tenant's host ports are in its VRF, the uplinks stay in the default VRF, and an EVPN L3VNI
connects them. Adaptive routing works only for next hops in the default VRF, so a VRF with uplinks
of its own would lose it; NICs need the inter-packet gap of such an overlay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from provisioner.model.base import Record
from provisioner.model.location import TenantPlace, Uplink
from provisioner.model.node import Node, NodeKind, Origin
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, Tenant
from provisioner.model.tenant_network import (
    GRACEFUL_SHUTDOWN,
    FilterMatch,
    LeafNetworks,
    NetworkChange,
    NetworkLimits,
    NetworkState,
    OutsideSession,
    RoutePolicy,
    VrfNetwork,
)
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports, list_filters, plan_guards

# ------------------------------------------------------------------------------
# A change of tenants' networks as lines for a person, in the fabric's words. Pure.


def describe_change(change: NetworkChange, state: NetworkState) -> tuple[str, ...]:
    """Return one line for each part that changes, removals first."""
    return (
        *(f"remove VRF {vrf}" for vrf in sorted(change.removed_vrfs)),
        *(f"remove policy {name}" for name in sorted(change.removed_policies)),
        *(
            f"VRF {vrf}: {line}"
            for vrf, network in sorted(change.vrfs.items())
            for line in _describe_vrf(network, state.vrfs.get(vrf, VrfNetwork()))
        ),
        *(
            f"VRF {vrf}: {line}"
            for vrf, imports in sorted(change.site_imports.items())
            for line in _describe_set("import of VRF", imports.added, imports.removed)
        ),
        *(
            f"policy {name}: permit {_describe_policy(policy)}"
            for name, policy in sorted(change.policies.items())
        ),
        *(f"remove filter {name}" for name in sorted(change.removed_filters)),
        *(
            f"filter {name}: {describe_match(match)}"
            for name, rules in sorted(change.filters.items())
            for match in rules
        ),
        *(
            f"port {port}: {f'filter {guard.name}' if guard.name else 'no filter'}"
            for port, guard in sorted(change.bound.items())
        ),
    )


def describe_match(match: FilterMatch) -> str:
    """Return one rule of a port's filter in words."""
    port = f" port {match.port}" if match.port else ""
    state = " of open connections" if match.established else ""
    target = f" to {match.target}" if match.target else ""
    ends = f"from {match.source or 'anywhere'}{target}"
    return f"{match.action} {match.protocol or 'everything'}{port}{state} {ends}"


def _describe_vrf(desired: VrfNetwork, applied: VrfNetwork) -> Iterator[str]:
    sets: tuple[tuple[str, Iterable[object], Iterable[object]], ...] = (
        ("L3VNI", desired.vnis, applied.vnis),
        ("imported route target", desired.import_targets, applied.import_targets),
        ("exported route target", desired.export_targets, applied.export_targets),
        ("import of VRF", desired.imported_vrfs, applied.imported_vrfs),
    )
    for label, after, before in sets:
        yield from _describe_set(label, set(after) - set(before), set(before) - set(after))
    if desired.imports_vrfs != applied.imports_vrfs:
        yield f"{'begin' if desired.imports_vrfs else 'cease'} to import from other VRFs"
    if desired.asn != applied.asn:
        yield f"set AS number {desired.asn}"
    if desired.router_id != applied.router_id:
        yield f"set router id {desired.router_id}"
    if desired.is_announced != applied.is_announced:
        yield "announce connected routes by BGP and EVPN"
    if desired.with_ipv6 and not applied.with_ipv6:
        yield "announce connected IPv6 routes by BGP and EVPN"
    for peer in sorted(applied.sessions.keys() - desired.sessions.keys()):
        yield f"remove session {peer}"
    for peer, session in sorted(desired.sessions.items()):
        if session_differs(session, applied.sessions.get(peer)):
            names = f"policies {session.policy_in} and {session.policy_out}"
            limit = f", at most {session.prefixes_max} routes" if session.prefixes_max else ""
            sent = ", with communities" if session.sends_communities else ""
            yield f"set session {peer} to AS {session.remote_as}, {names}{limit}{sent}"


def session_differs(desired: OutsideSession, held: OutsideSession | None) -> bool:
    """Return whether a leaf's session has to be changed; what nobody asked for is left."""
    if held is None:
        return True
    same = replace(
        held,
        prefixes_max=held.prefixes_max if desired.prefixes_max else None,
        sends_communities=held.sends_communities and desired.sends_communities,
    )
    return same != desired


def network_differs(desired: VrfNetwork, held: VrfNetwork | None) -> bool:
    """Return whether a leaf's VRF has to be changed, by the same rule."""
    if held is None or held.sessions.keys() != desired.sessions.keys():
        return True
    if any(session_differs(s, held.sessions[peer]) for peer, s in desired.sessions.items()):
        return True
    with_ipv6 = held.with_ipv6 and desired.with_ipv6
    return replace(held, sessions=desired.sessions, with_ipv6=with_ipv6) != desired


def _describe_set(label: str, added: Iterable[object], removed: Iterable[object]) -> Iterator[str]:
    yield from (f"remove {label} {item}" for item in sorted(map(str, removed)))
    yield from (f"add {label} {item}" for item in sorted(map(str, added)))


def _describe_policy(policy: RoutePolicy) -> str:
    if not policy.prefixes:
        return "no route"
    words = ", ".join(policy.prefixes) + (" with their parts" if policy.with_parts else "")
    if policy.communities:
        words += f", community {' '.join(policy.communities)}"
    if policy.local_preference is not None:
        words += f", local preference {policy.local_preference}"
    return words


def plan_shutdown(change: NetworkChange, state: NetworkState) -> NetworkChange:
    """Return what makes routers outside go around the sessions that a change ends, as RFC 8326 has
    it: what is sent says so, and what is received is preferred least.

    A session whose policies have a foreign form, or let nothing pass, has nothing to be told.
    """
    vrfs: dict[str, VrfNetwork] = {}
    policies: dict[str, RoutePolicy] = {}
    for vrf in sorted({*change.removed_vrfs, *change.vrfs}):
        held = state.vrfs.get(vrf, VrfNetwork())
        after = change.vrfs.get(vrf)
        is_reset = after is None or (after.asn, after.router_id) != (held.asn, held.router_id)
        kept = {} if is_reset or after is None else after.sessions
        told = {}
        for peer, session in held.sessions.items():
            if not session.is_on or (peer in kept and kept[peer].remote_as == session.remote_as):
                continue
            sent = state.policies.get(session.policy_out)
            if sent is not None and sent.prefixes:
                marks = tuple(sorted({*sent.communities, GRACEFUL_SHUTDOWN}))
                policies[session.policy_out] = replace(sent, communities=marks)
                told[peer] = replace(session, sends_communities=True)
            got = state.policies.get(session.policy_in)
            if got is not None and got.prefixes:
                policies[session.policy_in] = replace(got, local_preference=0)
        if told and held.is_announced and held.asn is not None:
            vrfs[vrf] = replace(held, sessions={**held.sessions, **told})
    return NetworkChange(vrfs=vrfs, policies=policies)


# ------------------------------------------------------------------------------
# Proof of a tenant's BGP and EVPN state on a leaf, in addition to its configuration. Pure.
#
# Route targets: the L3VNI's own, as the leaf imports and exports them, equal the tenant's and no
# others. Sessions: each one of the tenant to the outside is established, and there is no other.


def find_leaf_differences(
    tenant: Tenant,
    switch: str,
    target: str,
    targets: tuple[frozenset[str], frozenset[str]] | None,
    states: Mapping[str, str] | None,
) -> tuple[Blocker, ...]:
    """Return the differences of the leaf's state from this tenant's; () if there are none."""
    problems = []
    if targets is None:
        problems.append("its route targets cannot be read")
    else:
        for word, have in zip(("imports", "exports"), targets, strict=True):
            if have != {target}:
                listed = ", ".join(sorted(have)[:4]) or "nothing"
                problems.append(f"it {word} {listed}, not {target} alone")
    peers = {o.peer for o in tenant.outside if o.switch == switch}
    if states is None:
        problems.append("its BGP sessions cannot be read")
    else:
        problems += [
            f"the session to {peer} is {state}"
            for peer in sorted(peers)
            if (state := states.get(peer, "not there")) != "established"
        ]
        problems += [f"it has a session to {peer}" for peer in sorted(set(states) - peers)]
    return tuple(
        Blocker(
            reason=Reason.ISOLATION,
            subject=f"{switch}/{tenant.vrf}",
            detail="".join(c if c.isprintable() else " " for c in problem)[:300],
            unblock="Examine the leaf's BGP and the router outside; it is tried again.",
        )
        for problem in problems
    )


RESERVED = frozenset({"default", "mgmt", "global", "main", "local", MAINTENANCE_VRF.lower()})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")  # no "_": it ends the name in `owned_mark`


class LeafPlan(Record):
    """One leaf, with the facts that tenants' networks depend on."""

    switch: str
    pod: int
    unit: int
    asn: int
    router_id: str  # its loopback, without length
    uplinks: tuple[str, ...]
    limits: NetworkLimits = NetworkLimits()


class FabricPlan(Record):
    """All leaves of a site, with the plan that numbers them. `unknown`: cabled, but not in it."""

    plan: AddressPlan
    leaves: tuple[LeafPlan, ...]
    unknown: tuple[str, ...] = ()
    partitions: bool = False  # InfiniBand isolates tenants: there may be no leaf
    prefixes_max: int = 0  # of a session to the outside without a limit of its own; 0: none

    def select_leaves(self, tenant: Tenant) -> tuple[LeafPlan, ...]:
        """Return the leaves that need the tenant's network: of its units, and with its sessions."""
        borders = {o.switch for o in tenant.outside}
        return tuple(
            leaf
            for leaf in self.leaves
            if tenant.may_have(leaf.pod, leaf.unit) or leaf.switch in borders
        )


def plan_fabric(
    plan: AddressPlan, nodes: Iterable[Node], limits: Mapping[str, NetworkLimits]
) -> FabricPlan:
    """Return the leaves among the nodes of a site. `limits`: by the id of a switch.

    A switch without limits is one that no adapter speaks to: it gets no tenant's network. Detached
    switches are another system's.
    """
    addressing = Addressing(plan)
    ports = Ports(addressing)
    listed = [n for n in nodes if n.origin is not Origin.DETACHED]
    leaves = []
    for name in sorted(n.id for n in listed if n.kind is NodeKind.SWITCH):
        place = ports.find_switch(name)
        if place is not None and place.tier in ("leaf", "front"):
            numbers = range(ports.count_uplinks(place))
            leaves.append(
                LeafPlan(
                    switch=name,
                    pod=place.pod,
                    unit=place.unit,
                    asn=addressing.get_asn(place),
                    router_id=addressing.get_loopback(place).partition("/")[0],
                    uplinks=tuple(ports.find_uplink_ends(Uplink(place, n))[0][1] for n in numbers),
                    limits=limits.get(name, NetworkLimits()),
                )
            )
    hosts = [n for n in listed if n.kind is NodeKind.HOST]
    cabled = {p.switch for n in hosts for p in n.ports if not p.guid}  # InfiniBand is UFM's
    unknown = tuple(sorted(cabled - {leaf.switch for leaf in leaves}))
    return FabricPlan(plan=plan, leaves=tuple(leaves), unknown=unknown)


def find_name_problem(vrf: str, name_max: int) -> str | None:
    """Return why a VRF cannot have this name on a switch that takes `name_max` characters."""
    if len(vrf) > name_max:
        return f"VRF name {vrf[:40]} is longer than {name_max} characters"
    if not _NAME.fullmatch(vrf):
        return f"VRF name {vrf!r:.40} is not made of letters, digits and -"
    if vrf.lower() in RESERVED:
        return f"VRF name {vrf} is the switch's or ours"
    return None


def plan_networks(
    tenants: Sequence[Tenant], fabric: FabricPlan, nodes: Sequence[Node] = ()
) -> dict[str, LeafNetworks]:
    """Return the desired networks of every leaf for these tenants, with the filters of their nodes.

    The rest of a leaf's configuration is the site's, including tenants without a number.
    """
    numbered = sorted((t for t in tenants if t.number is not None), key=lambda t: t.name)
    plans = {}
    for leaf in fabric.leaves:
        present = [t for t in numbered if leaf in fabric.select_leaves(t)]
        storage = sorted({vrf for tenant in present for vrf in tenant.storage})
        plans[leaf.switch] = LeafNetworks(
            vrfs={t.vrf: _plan_vrf(t, leaf, fabric) for t in present},
            # BGP imports one way only: storage needs the tenants' routes for its answers
            site_imports={
                vrf: frozenset(t.vrf for t in present if vrf in t.storage) for vrf in storage
            },
            policies={n: p for t in present for n, p in _plan_policies(t, leaf).items()},
            filters={n: f for t in present for n, f in list_filters(t).items()},
            guards={
                t.vrf: plan_guards(t, nodes, leaf.switch) for t in present if t.security_groups
            },
        )
    return plans


def name_policies(vrf: str, peer: str) -> tuple[str, str]:
    """Return the names of the policies of a session: in, out.

    The mark at their beginning identifies them as ours.
    """
    name = owned_mark(vrf) + peer.replace(".", "-").replace(":", "-")
    return f"{name}_in", f"{name}_out"


def owned_mark(vrf: str) -> str:
    """Return the prefix of the names of all policies that are made for a tenant."""
    return f"tenant_{vrf}_"


def _plan_vrf(tenant: Tenant, leaf: LeafPlan, fabric: FabricPlan) -> VrfNetwork:
    assert tenant.number is not None
    addressing = Addressing(fabric.plan)
    place = TenantPlace(tenant.number)
    targets = frozenset({addressing.get_route_target(place)})
    sessions = {}
    for outside in (o for o in tenant.outside if o.switch == leaf.switch):
        names = name_policies(tenant.vrf, outside.peer)
        sessions[outside.peer] = OutsideSession(
            outside.remote_as,
            *names,
            prefixes_max=outside.prefixes_max or fabric.prefixes_max or None,
            sends_communities=True,  # the leaf's own graceful shutdown is one too
        )
    return VrfNetwork(
        vnis=frozenset({addressing.get_vni(place)}),
        import_targets=targets,
        export_targets=targets,
        asn=leaf.asn,
        router_id=leaf.router_id,
        is_announced=True,
        # on every leaf of it: what a border leaf learns is for all of its nodes
        with_ipv6=any(":" in o.peer for o in tenant.outside),
        imports_vrfs=bool(tenant.storage),
        imported_vrfs=frozenset(tenant.storage),
        sessions=sessions,
    )


def _plan_policies(tenant: Tenant, leaf: LeafPlan) -> dict[str, RoutePolicy]:
    """Return the policies of a tenant's sessions. Without a listed prefix, no route passes."""
    policies = {}
    for outside in (o for o in tenant.outside if o.switch == leaf.switch):
        name_in, name_out = name_policies(tenant.vrf, outside.peer)
        wide = outside.accepts_parts and bool(outside.accepts)
        policies[name_in] = RoutePolicy(outside.accepts, with_parts=wide)
        marks = tuple(sorted(set(outside.communities))) if outside.sends else ()
        # links are parts of the announced prefixes
        policies[name_out] = RoutePolicy(outside.sends, bool(outside.sends), marks)
    return policies
