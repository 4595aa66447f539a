"""Which certified node goes to which tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Phase, Tenant


def allocate(nodes: Iterable[Node], tenants: Sequence[Tenant]) -> tuple[tuple[str, str], ...]:
    """(node, tenant) pairs to make now: tenants in turn, nodes by place, nobody over its wish.

    Only a tenant whose network is ready gets any, and only from its scalable units.
    A node that is allocated stays so; the order is the same for the same input.
    """
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    held = Counter(n.tenant for n in hosts)
    free = sorted(
        (n for n in hosts if n.state is State.CERTIFIED and not n.tenant),
        key=lambda n: (str(n.location), n.id),
    )
    pairs = []
    for node in free:
        wanting = [
            t
            for t in tenants
            if t.phase is Phase.READY
            and held[t.name] < t.nodes_wanted
            and t.may_have(node.location.pod, node.location.scalable_unit)
        ]
        if not wanting:
            continue
        # the tenant that lacks the largest share comes first, so that none is starved
        tenant = max(wanting, key=lambda t: (1 - held[t.name] / t.nodes_wanted, t.name))
        held[tenant.name] += 1
        pairs.append((node.id, tenant.name))
    return tuple(pairs)
