"""Obstacles to a tenant's network on a leaf, from the leaf's observed state. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant_network import LeafNetworks, NetworkState, VrfNetwork
from provisioner.planning.tenancy.vrf_plan import LeafPlan


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
    """Return blockers for our VNIs or targets in foreign VRFs, and for our VRFs with foreign
    VNIs.
    """
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
    """Return a blocker of these fields."""
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
