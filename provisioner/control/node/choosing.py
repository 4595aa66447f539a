"""Which checks a node needs now: what its rows say of it, given to
`planning/certification/check_selection.py`.
"""

from __future__ import annotations

from provisioner import checks
from provisioner.control.fabric.fabric_standing import FabricStanding
from provisioner.model.cohort import Gate, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.certification import DAY_S, count_days_since_proof
from provisioner.planning.certification.check_selection import (
    FaultRecord,
    Selection,
    SelectionPolicy,
    change_since,
    select_checks,
)
from provisioner.planning.repair.case_joining import select_deeper_checks
from provisioner.ports import Store
from provisioner.settings import Settings

INCIDENTS_S = 90 * DAY_S  # the time for which selection assumes half an incident without history


async def choose(
    store: Store,
    settings: Settings,
    fabric: FabricStanding,
    node: Node,
    inventory: Inventory,
    now: float,
    *,
    deeper: bool = False,
) -> Selection | None:
    """Return the checks that the changes since the last certificate demand; None for a switch.

    `deeper`: for a repeat offender everything is tested, also beyond the site's demands.
    """
    if node.kind is NodeKind.SWITCH:
        return None
    last = await store.evidence.get_certificate(node.certificate) if node.certificate else None
    proof = await store.evidence.get_proof(node.id)
    served = proof is not None and last is not None and proof.certificate == last.id
    turnover = served and proof is not None and proof.tenant != node.tenant
    suspect = node.attempts > 0 or bool(await fabric.find_accusations(node, last))
    change = change_since(last, inventory, turnover=turnover, suspect=suspect)
    gates = frozenset(Gate(letter) for letter in settings.certify_gates)
    policy = SelectionPolicy(
        gates=gates,
        budget_s=settings.test_budget_s or None,
        fabric_days_max=settings.fabric_days,
    )
    past = await store.evidence.list_reports(node.id, now - INCIDENTS_S)
    standing = FaultRecord(
        incidents=sum(any(x.verdict is Verdict.FAIL for x in r.results) for r in past),
        healthy_days=0.0 if last is None else max(0.0, now - last.issued_at) / DAY_S,
        proved_days=count_days_since_proof(last, now),
    )
    if not deeper:
        return select_checks(change, checks.ALL, policy, standing)
    change = change_since(last, inventory, turnover=turnover, suspect=True)
    return select_deeper_checks(
        change, checks.ALL, policy, standing, limit_s=settings.repair_deeper_limit_s
    )
