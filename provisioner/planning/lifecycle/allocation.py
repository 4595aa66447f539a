"""Assign certified nodes to tenants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Phase, Tenant


def allocate_nodes(nodes: Iterable[Node], tenants: Sequence[Tenant]) -> tuple[tuple[str, str], ...]:
    """Return the (node, tenant) pairs to assign now, at most as many as each tenant requests.

    Nodes are taken in the order of their location. Only a tenant with a ready network gets nodes,
    and only from its scalable units. Existing allocations stay. The same input gives the same
    pairs.
    """
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    held = Counter(n.tenant for n in hosts)
    free = sorted(
        (n for n in hosts if n.state is State.CERTIFIED and not n.tenant),
        key=lambda n: (str(n.location), n.id),
    )
    pairs = []
    for node in free:
        candidates = [
            t
            for t in tenants
            if t.phase is Phase.READY
            and held[t.name] < t.nodes_wanted
            and t.may_have(node.location.pod, node.location.scalable_unit)
        ]
        if not candidates:
            continue
        # the tenant with the largest missing share comes first, so that none is starved
        tenant = max(candidates, key=lambda t: (1 - held[t.name] / t.nodes_wanted, t.name))
        held[tenant.name] += 1
        pairs.append((node.id, tenant.name))
    return tuple(pairs)
