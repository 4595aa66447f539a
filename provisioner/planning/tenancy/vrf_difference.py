"""The change that brings a leaf to the desired state of all tenants, as a whole. Pure.

A state that cannot be read blocks, and a VRF with a port in it is never removed. Sets that isolate
(route targets, VNI, imports, sessions, prefixes) must be equal to the desired ones, never larger:
one extra target leads into another tenant's network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant
from provisioner.model.tenant_network import (
    FilteredPort,
    FilterRow,
    LeafNetworks,
    NetworkChange,
    NetworkState,
    PortGuard,
    VrfImports,
    VrfNetwork,
)
from provisioner.planning.places.place_ports import mark_filters, plan_port_filter
from provisioner.planning.tenancy.vrf_plan import LeafPlan, network_differs, owned_mark

# ------------------------------------------------------------------------------
# Obstacles to a tenant's network on a leaf, from the leaf's observed state. Pure.


def list_obstacles(
    leaf: LeafPlan,
    desired: LeafNetworks,
    state: NetworkState,
    *,
    managed: Collection[str],
    removed: Collection[str],
) -> tuple[Blocker, ...]:
    """Return every blocker that must be removed before the leaf may be changed; () if none.

    `removed`: VRFs that are to be removed from it.
    """
    blockers = [*_list_unprepared(leaf, state, desired), *list_occupied(state, removed)]
    blockers += [*_list_conflicts(state, desired, managed), *_list_uplinks(leaf, state, desired)]
    after = ({v for v in state.vrf_names if v not in removed} | set(desired.vrfs)) - {"default"}
    vrfs_max = leaf.limits.vrfs_max
    if vrfs_max is not None and len(after) > vrfs_max:
        detail = f"{len(after)} VRFs are more than its {vrfs_max} tables hold"
        remedy = "Limit tenants to scalable units, or delete one."
        blockers.append(make_blocker(Reason.QUOTA, leaf.switch, detail, remedy))
    return tuple(blockers)


def _list_unprepared(
    leaf: LeafPlan, state: NetworkState, desired: LeafNetworks
) -> Iterator[Blocker]:
    """Return blockers for missing parts of the leaf's base configuration."""
    if not desired.vrfs:
        return
    if not leaf.limits.tenant_networks:
        detail = "no form of a tenant's L3VNI, targets and policy is published for its system"
        remedy = "Let the site prepare the VRF, and list the tenant without a number."
        yield make_blocker(Reason.NOT_OFFERED, leaf.switch, detail, remedy)
        return
    remedy = "Bring the leaf's base configuration to the plan first."
    for feature, is_on in (("EVPN", state.has_evpn), ("VXLAN", state.has_vxlan)):
        if not is_on:
            detail = f"{feature} is not enabled, and tenants' routes use it"
            yield make_blocker(Reason.PRECONDITION, leaf.switch, detail, remedy)
    if state.asn is not None and state.asn != leaf.asn:
        detail = f"its AS number is {state.asn}, and the plan's is {leaf.asn}"
        yield make_blocker(Reason.PRECONDITION, leaf.switch, detail, remedy)
    for name in sorted(desired.site_imports.keys() - state.vrf_names):
        detail = f"there is no VRF {name} here to import from"
        yield make_blocker(Reason.PRECONDITION, f"{leaf.switch}/{name}", detail, remedy)


def list_occupied(state: NetworkState, removed: Iterable[str]) -> Iterator[Blocker]:
    """Return blockers for VRFs that have a port, by configuration or by operational state."""
    for vrf in removed:
        inside = {
            port
            for ports in (state.ports, state.ports_applied)
            for port, name in ports.items()
            if name == vrf
        }
        if inside:
            listed = ", ".join(sorted(inside)[:4]) + (" ..." if len(inside) > 4 else "")
            detail = f"{len(inside)} ports are in it: {listed}"
            remedy = "Reclaim the nodes; it is removed when no port is in it."
            yield make_blocker(Reason.ISOLATION, f"{state.switch}/{vrf}", detail, remedy)


def _list_conflicts(
    state: NetworkState, desired: LeafNetworks, managed: Collection[str]
) -> Iterator[Blocker]:
    """Return blockers for our VNIs or targets in foreign VRFs, and for ours with foreign VNIs."""
    for vrf, network in sorted(desired.vrfs.items()):
        foreign_vnis = state.vrfs.get(vrf, VrfNetwork()).vnis - network.vnis
        if foreign_vnis:
            detail = f"it is there with VNI {', '.join(map(str, sorted(foreign_vnis)))[:60]}"
            remedy = "It is a foreign VRF: choose another name, or remove it there."
            yield make_blocker(Reason.ISOLATION, f"{state.switch}/{vrf}", detail, remedy)
        for foreign in sorted(set(state.vrfs) - {vrf} - set(managed)):
            other = state.vrfs[foreign]
            both = {str(vni) for vni in network.vnis & other.vnis}
            both |= _list_targets(network) & _list_targets(other)
            if both:
                detail = f"it uses {', '.join(sorted(both))}, which is {vrf}'s"
                remedy = "Remove it there: its routes and the tenant's would mix."
                subject = f"{state.switch}/{foreign}"[:80]
                yield make_blocker(Reason.ISOLATION, subject, detail, remedy)


def _list_uplinks(leaf: LeafPlan, state: NetworkState, desired: LeafNetworks) -> Iterator[Blocker]:
    for port in leaf.uplinks:
        if state.ports.get(port) in desired.vrfs:
            detail = f"an uplink is in {state.ports[port]}: adaptive routing stops there"
            remedy = "Bring it back to the default VRF."
            yield make_blocker(Reason.ISOLATION, f"{leaf.switch}/{port}", detail, remedy)


def _list_targets(network: VrfNetwork) -> frozenset[str]:
    return network.import_targets | network.export_targets


def make_blocker(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)


# ------------------------------------------------------------------------------
# The filters of a tenant's ports, from the state that a leaf shows of itself. Pure.


Cabled = Mapping[tuple[str, str], tuple[Node, Port]]  # (leaf, interface) -> what is behind it


def list_filtered_ports(
    tenant: Tenant, state: NetworkState, cabled: Cabled
) -> Iterator[FilteredPort]:
    """Yield each port that is in the tenant's VRF by its leaf's operational state."""
    for interface, vrf in sorted(state.ports.items()):
        behind = cabled.get((state.switch, interface))
        if vrf != tenant.vrf or behind is None:
            continue  # loopbacks and the VRF's own device
        node, port = behind
        name, rules = plan_port_filter(tenant, node.id, port.rail)
        bound = state.bound_in_force.get(interface, frozenset())
        held = [state.filters_in_force.get(n) for n in sorted(bound)]
        yield FilteredPort(
            switch=state.switch,
            interface=interface,
            node=node.id,
            rail=port.rail,
            filters=tuple(sorted(bound)),
            rules=tuple(FilterRow(**match._asdict()) for one in held for match in one or ()),
            as_recorded=bound == ({name} if name else set()) and held == ([rules] if name else []),
        )


@dataclass(frozen=True)
class LeafChange:
    """The change of one leaf, and the state that proves it."""

    switch: str
    networks: NetworkChange = field(default_factory=NetworkChange)
    # VRF -> VNI, to be verified afterwards
    present: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()  # VRFs that must be gone afterwards
    whole: NetworkChange = field(default_factory=NetworkChange)  # the desired state

    @property
    def empty(self) -> bool:
        return self.networks.empty

    @property
    def wanted(self) -> NetworkChange:
        """What is brought: also policies that were as desired when it was planned."""
        policies = {**self.whole.policies, **self.networks.policies}
        return replace(self.networks, policies=policies)


def plan_leaf_change(
    leaf: LeafPlan,
    desired: LeafNetworks,
    state: NetworkState | Blocker,
    *,
    managed: Sequence[str],
    focus: Collection[str] = (),
) -> LeafChange | tuple[Blocker, ...]:
    """Return the change that brings one leaf to its desired state, or all blockers.

    `managed`: VRFs of all tenants with a number, including those that leave; one that is not
    desired does not belong on this leaf. `focus`: those whose presence is to be proved.
    """
    if isinstance(state, Blocker):
        return (state,)
    removed = frozenset(managed) & state.vrf_names - desired.vrfs.keys()
    obstacles = list_obstacles(leaf, desired, state, managed=managed, removed=sorted(removed))
    if obstacles:
        return obstacles
    marks = tuple(owned_mark(vrf) for vrf in managed)
    filter_marks = tuple(mark_filters(vrf) for vrf in managed)
    whole = NetworkChange(
        removed_vrfs=removed,
        vrfs=desired.vrfs,
        site_imports=_plan_site_imports(desired, state, frozenset(managed)),
        policies=desired.policies,
        removed_policies=frozenset(
            name
            for name in state.policies
            if name.startswith(marks) and name not in desired.policies
        ),
        filters=desired.filters,
        removed_filters=frozenset(
            name
            for name in state.filters
            if name.startswith(filter_marks) and name not in desired.filters
        ),
        bound=_plan_bound(desired, state, frozenset(managed)),
    )
    return LeafChange(
        switch=leaf.switch,
        whole=whole,
        networks=find_missing_change(whole, state),
        present={v: min(n.vnis) for v, n in sorted(desired.vrfs.items()) if v in focus},
        absent=removed,
    )


def find_missing_change(change: NetworkChange, state: NetworkState) -> NetworkChange:
    """Return the part of a change that the leaf's applied configuration lacks."""
    imports = {}
    for vrf, wish in change.site_imports.items():
        network = state.vrfs.get(vrf, VrfNetwork())
        active = network.imported_vrfs if network.imports_vrfs else frozenset()
        imports[vrf] = VrfImports(wish.added - active, wish.removed & network.imported_vrfs)
    return NetworkChange(
        removed_vrfs=change.removed_vrfs & state.vrfs.keys(),
        vrfs={v: n for v, n in change.vrfs.items() if network_differs(n, state.vrfs.get(v))},
        site_imports={v: i for v, i in imports.items() if not i.empty},
        policies={n: p for n, p in change.policies.items() if state.policies.get(n) != p},
        removed_policies=change.removed_policies & state.policies.keys(),
        filters={n: f for n, f in change.filters.items() if state.filters.get(n) != f},
        removed_filters=change.removed_filters & state.filters.keys(),
        bound={
            port: guard
            for port, guard in change.bound.items()
            # one that was moved since has the filter of its move
            if state.ports_applied.get(port, "default") == guard.vrf
            and state.bound.get(port, frozenset()) != _name_set(guard)
        },
    )


def find_unproved(change: LeafChange, state: NetworkState) -> tuple[Blocker, ...]:
    """Why a change is not yet in force, or would not survive a restart; () if it is proved."""
    in_force = state.vrfs_in_force
    wrong = {v: "the switch has no such VRF" for v in change.present if v not in in_force}
    wrong |= {v: "the switch still has this VRF" for v in change.absent if v in in_force}
    for vrf, vni in change.present.items():
        if vrf not in wrong and state.vnis_in_force.get(vrf) != frozenset({vni}):
            wrong[vrf] = f"its routes do not use VNI {vni} yet"
    wrong |= _find_unguarded(change.whole, state)
    blockers = [
        make_blocker(
            Reason.ISOLATION,
            f"{change.switch}/{vrf}",
            f"applied, but {problem}",
            "Examine the switch's log, then ask again.",
        )
        for vrf, problem in sorted(wrong.items())
    ]
    if not state.saved:
        detail = "it would start with another configuration than the applied one"
        remedy = "Ask again: it is saved then."
        blockers.append(make_blocker(Reason.ISOLATION, change.switch, detail, remedy))
    return tuple(blockers)


def _find_unguarded(whole: NetworkChange, state: NetworkState) -> dict[str, str]:
    """Return the ports whose filter is not in force as desired, and the filters with other rules.

    What is not applied yet is not judged here: `find_missing_change` has it.
    """
    wrong = {}
    for port, guard in whole.bound.items():
        applied = state.bound.get(port, frozenset()) == _name_set(guard)
        in_force = state.bound_in_force.get(port, frozenset()) == _name_set(guard)
        if applied and not in_force and state.ports.get(port, "default") == guard.vrf:
            wrong[port] = "its filter is not in force"
    for name, rules in whole.filters.items():
        if state.filters.get(name) == rules and state.filters_in_force.get(name) != rules:
            wrong[name] = "its rules are not in force"
    return wrong


def _plan_bound(
    desired: LeafNetworks, state: NetworkState, managed: frozenset[str]
) -> dict[str, PortGuard]:
    """Return the filter of each port: of its node in its tenant, and of no tenant elsewhere.

    A port in a tenant's VRF whose node is not the tenant's keeps what it has: the watch reports it.
    """
    bound = {}
    for port in sorted({*state.ports_applied, *state.bound}):
        vrf = state.ports_applied.get(port, "default")
        guards = desired.guards.get(vrf)
        if guards is None or vrf not in managed:
            bound[port] = PortGuard(vrf, "")
        elif port in guards:
            bound[port] = PortGuard(vrf, guards[port])
    return bound


def _name_set(guard: PortGuard) -> frozenset[str]:
    return frozenset({guard.name} if guard.name else ())


def _plan_site_imports(
    desired: LeafNetworks, state: NetworkState, managed: frozenset[str]
) -> dict[str, VrfImports]:
    """Return the imports of tenants' VRFs by the site's own; other imports there are the site's."""
    imports = {}
    for vrf in sorted((state.vrfs.keys() | desired.site_imports.keys()) - managed):
        tenants = desired.site_imports.get(vrf, frozenset())
        imports[vrf] = VrfImports(added=tenants, removed=managed - tenants)
    return imports
