"""Commands to a node's maintenance agent, and the ledger rows of a stay with it.

An answer is hostile until `planning/disk_answers` has read it; a failed command is a blocker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.agent.protocol import node_uuid
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.history import OPEN
from provisioner.ports import AgentAddress, PortError

CLEAN = "clean.execute_clean_step"
DEPLOY = "deploy.execute_deploy_step"
# ironic-python-agent 13.0.0, errors.py: HardwareManagerMethodNotFound
_NO_STEP = re.compile(r"could not find method|no hardwaremanager found", re.IGNORECASE)
_DIGEST = re.compile(r"checksum", re.IGNORECASE)  # errors.py: ImageChecksumError


async def ask_step(
    site: Site,
    node: Node,
    agent: AgentAddress,
    step: str,
    arguments: Mapping[str, Any],
    limit_s: float,
) -> object | Blocker:
    """Return the answer of one clean step of ours (docs/erasure.md)."""
    parameters = {
        "step": {"step": step, "interface": "deploy", "priority": 0, "args": dict(arguments)},
        "node": agent_node(node),
        "ports": [],
    }
    answer = await run_command(site, node, agent, CLEAN, parameters, limit_s)
    return answer.get("clean_result") if isinstance(answer, Mapping) else answer


async def run_command(
    site: Site,
    node: Node,
    agent: AgentAddress,
    name: str,
    parameters: Mapping[str, Any],
    limit_s: float,
) -> object | Blocker:
    """Return the result of one agent command. An agent of another node is never commanded."""
    subject = f"{node.id}/agent"
    if agent.node != node.id:
        return Blocker(
            reason=Reason.NOT_EXPECTED,
            subject=subject,
            detail=f"this is the agent of {agent.node}",
            unblock="Boot the maintenance image of this node.",
        )
    try:
        result = await site.agents.command(agent, name, parameters, limit_s)
    except PortError as error:
        return blocked(error, subject)
    if result.status == "SUCCEEDED":
        answer: object = result.result
        return answer
    return Blocker(
        reason=_reason(result.error),
        subject=subject,
        detail=f"{name} ended {result.status}: {result.error or 'without a word'}",
        unblock="Look at the agent's log and at the maintenance image, then retry the node.",
    )


def _reason(error: str) -> Reason:
    if _NO_STEP.search(error):
        return Reason.NOT_OFFERED
    return Reason.DIGEST_MISMATCH if _DIGEST.search(error) else Reason.UPDATE_FAILED


def agent_node(node: Node) -> dict[str, Any]:
    """Return the node as ironic-python-agent wants it with each step."""
    return {
        "uuid": node_uuid(node.id),
        "properties": {},
        "instance_info": {},
        "driver_internal_info": {},
    }


def find_last(rows: Sequence[LedgerEntry], action: str) -> LedgerEntry | None:
    """Return the newest row of an action."""
    mine = [r for r in rows if r.action == action]
    return max(mine, key=lambda r: r.intended_at, default=None)


def find_open(rows: Sequence[LedgerEntry], action: str) -> LedgerEntry | None:
    """Return the open row of an action, if a predecessor left one."""
    newest = find_last(rows, action)
    return newest if newest is not None and newest.status in OPEN else None


async def record_outcome(
    hold: Hold, action: str, before: Mapping[str, Any], status: ActionStatus, outcome: str
) -> None:
    """Write a verdict as a row of the ledger, also where a predecessor died between its writes."""
    row = find_open(await hold.list_entries(), action)
    if row is not None and row.before.get("visit") != before.get("visit"):
        await hold.settle_entry(row, ActionStatus.ABSENT, outcome="given up: a new stay began")
        row = None
    row = row or await hold.record_intent(action, before)
    await hold.settle_entry(row, status, outcome=outcome)
