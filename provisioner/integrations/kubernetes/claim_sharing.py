"""The share of each claim: the nodes that it has of its tenant, and the tenant's number. Pure.

A claim keeps its nodes; missing ones come from the tenant's nodes that no claim has, the oldest
claim first, those of one second by namespace and name. All claims of a tenant are decided together,
so that two never have the same node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from provisioner.integrations.kubernetes.conditions import Refusal


@dataclass(frozen=True)
class Claim:
    """A claim, as far as sharing goes."""

    uid: str
    namespace: str
    name: str
    tenant: str
    count: int
    created: str  # RFC 3339
    claimed: int = 0  # the number that the daemon took last
    nodes: tuple[str, ...] = ()  # that it has
    leaving: bool = False  # it is being deleted

    @property
    def accepted(self) -> int:
        """Return the number of nodes that it may have."""
        return 0 if self.leaving else min(self.count, self.claimed)


@dataclass(frozen=True)
class Demand:
    """The change of a tenant's number of nodes: to `to`, with these nodes leaving if smaller."""

    to: int
    leaving: tuple[str, ...] = ()


def share_nodes(
    claims: Sequence[Claim], held: Collection[str], ready: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the nodes of each claim by its uid; `held`: the tenant's, `ready`: in its network."""
    ordered = sorted(claims, key=lambda c: (c.created, c.namespace, c.name, c.uid))
    shares: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for claim in ordered:
        staying = [n for n in claim.nodes if n in held and n not in taken]
        # nodes that serve stay before those that do not yet
        shares[claim.uid] = tuple(sorted(staying, key=lambda n: n not in ready)[: claim.accepted])
        taken.update(shares[claim.uid])
    for claim in ordered:
        free = sorted((n for n in held if n not in taken), key=lambda n: (n not in ready, n))
        more = free[: claim.accepted - len(shares[claim.uid])]
        shares[claim.uid] = tuple(sorted((*shares[claim.uid], *more)))
        taken.update(more)
    return shares


def find_demand(
    claim: Claim, others: Sequence[Claim], present: int, held: Sequence[str], ready: Collection[str]
) -> Demand | Refusal | None:
    """Return the change that a claim asks for, why there is none, or None: it has its number.

    `present`: the tenant's number at the daemon. It only falls by nodes that claims give back: a
    tenant with nodes that no claim asked for keeps them. Other claims count as far as the daemon
    took them, so that one which is refused stops no other.
    """
    count = 0 if claim.leaving else claim.count
    total = count + sum(c.accepted for c in others)
    if total == present:
        return None
    if total > present:
        return Demand(total)
    given_back = max(0, claim.claimed - count)
    by_others = sum(c.claimed - c.accepted for c in others)
    if present - total > given_back + by_others:
        detail = f"The tenant has {present} nodes, and its claims ask for {total}."
        unblock = (
            "write the number into spec.nodes of the Tenant, whose nodes the claims then share, "
            "or claim the others too."
        )
        return Refusal("nodes_not_claimed", detail, unblock)
    if not given_back:
        return None  # the claims that give nodes back ask for it themselves
    every = (claim, *others)
    shares = share_nodes(every, held, ready)
    staying = {n for nodes in shares.values() for n in nodes}
    returned = {n for c in every for n in c.nodes} - staying
    spare = sorted((n for n in held if n not in staying), key=lambda n: (n not in returned, n))
    return Demand(total, tuple(spare[: max(0, len(held) - total)]))
