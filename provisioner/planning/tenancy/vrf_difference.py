"""The change that brings a leaf to the desired state of all tenants, as a whole. Pure.

A state that cannot be read blocks, and a VRF with a port in it is never removed. Sets that isolate
(route targets, VNI, imports, sessions, prefixes) must be equal to the desired ones, never larger:
one extra target leads into another tenant's network.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant_network import (
    LeafNetworks,
    NetworkChange,
    NetworkState,
    VrfImports,
    VrfNetwork,
)
from provisioner.planning.tenancy.vrf_obstacles import list_obstacles, make_blocker
from provisioner.planning.tenancy.vrf_plan import LeafPlan, owned_mark


@dataclass(frozen=True)
class LeafChange:
    """The change of one leaf, and the state that proves it."""

    switch: str
    networks: NetworkChange = field(default_factory=NetworkChange)
    # VRF -> VNI, to be verified afterwards
    present: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()  # VRFs that must be gone afterwards

    @property
    def empty(self) -> bool:
        """Return whether the leaf already has the desired configuration."""
        return self.networks.empty


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
    )
    return LeafChange(
        switch=leaf.switch,
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
        vrfs={v: n for v, n in change.vrfs.items() if state.vrfs.get(v) != n},
        site_imports={v: i for v, i in imports.items() if not i.empty},
        policies={n: p for n, p in change.policies.items() if state.policies.get(n) != p},
        removed_policies=change.removed_policies & state.policies.keys(),
    )


def find_unproved(change: LeafChange, state: NetworkState) -> tuple[Blocker, ...]:
    """Return why a change is not yet in force, or would not survive a restart; () if it is
    proved.
    """
    in_force = state.vrfs_in_force
    wrong = {v: "the switch has no such VRF" for v in change.present if v not in in_force}
    wrong |= {v: "the switch still has this VRF" for v in change.absent if v in in_force}
    for vrf, vni in change.present.items():
        if vrf not in wrong and state.vnis_in_force.get(vrf) != frozenset({vni}):
            wrong[vrf] = f"its routes do not use VNI {vni} yet"
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


def _plan_site_imports(
    desired: LeafNetworks, state: NetworkState, managed: frozenset[str]
) -> dict[str, VrfImports]:
    """Return the imports of tenants' VRFs by the site's own; other imports there are the site's."""
    imports = {}
    for vrf in sorted((state.vrfs.keys() | desired.site_imports.keys()) - managed):
        tenants = desired.site_imports.get(vrf, frozenset())
        imports[vrf] = VrfImports(added=tenants, removed=managed - tenants)
    return imports
