"""The filters of a tenant's ports, from the state that a leaf shows of itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.model.tenant_network import FilteredPort, FilterRow, NetworkState
from provisioner.planning.places.port_filters import plan_port_filter

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
