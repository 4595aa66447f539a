"""Proof of a tenant's BGP and EVPN state on a leaf, in addition to its configuration. Pure.

Route targets: the L3VNI's own, as the leaf imports and exports them, equal the tenant's and no
others. Sessions: each one of the tenant to the outside is established, and there is no other.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant


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
