"""Objections to a handover while a release is under way. Pure.

Moves of ports take minutes, and people, alerts and clocks go on in the meantime. The objections are
therefore computed before each leaf is changed and once more, from rows read again, before the
handover is recorded. The transaction that records it checks the `ReleaseConditions` again
(`store/rows/turn_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.standing import ReleaseConditions
from provisioner.planning.certification import certification


def list_handover_objections(
    node: Node,
    certificate: Certificate,
    inventory: Inventory,
    *,
    alerts: Sequence[Blocker],
    accused: Sequence[Blocker],
    signed: bool,
    revoked: bool,
    moved_on: bool,
    now: float,
) -> tuple[Blocker, ...]:
    """Return every reason against the handover; () if there is none.

    `alerts` and `accused` are the blockers from alerts and from tests among nodes; `moved_on`: the
    tenant's network has changed.
    """
    blockers = [
        *certification.find_invalidity(
            certificate=certificate,
            inventory=inventory,
            node=node,
            signed=signed,
            revoked=revoked,
            now=now,
        ),
        *alerts,
        *accused,
    ]
    if moved_on:
        blockers.append(
            make_changed_blocker(node.id, f"tenant {node.tenant} has another network now")
        )
    return tuple(dict.fromkeys(blockers))


def is_unchanged(node: Node, stored: Node) -> bool:
    """Return whether a node's row still has the facts that the release began with."""
    facts = [(n.state, n.tenant, n.served, n.certificate) for n in (node, stored)]
    return facts[0] == facts[1]


def standing_of(node: Node, inventory: Inventory, vrf: str) -> ReleaseConditions:
    """Return the conditions that the transaction of the handover checks once more."""
    return ReleaseConditions(
        certificate=node.certificate,
        inventory=certification.identify_installation(inventory),
        tenant=node.tenant,
        vrf=vrf,
    )


def make_changed_blocker(node: str, detail: str) -> Blocker:
    """Return the blocker of a release whose node was changed while its ports moved."""
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=node,
        detail=detail,
        unblock="The node is fenced, looked at anew and decided upon by itself.",
    )
