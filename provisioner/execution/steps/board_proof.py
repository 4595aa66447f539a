"""Has the agent of a boot prove that it runs on the node's own board, by a quote of its TPM."""

from __future__ import annotations

import secrets

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site
from provisioner.execution.steps.agent_steps import ask_step
from provisioner.model.events.node_events import BoardTpmRead
from provisioner.model.node import BoardTpm, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.board_proofs import (
    STEP,
    BoardProof,
    bind_nonce,
    judge_board,
)
from provisioner.ports import AgentAddress


async def prove_board(
    site: Site, hold: Hold, node: Node, agent: AgentAddress
) -> BoardTpm | Blocker | None:
    """Return the TPM to store with the node; None: nothing changes. A Blocker: the agent is
    refused, and its token is void.

    Asked once for each boot, before any other command of the agent is believed.
    """
    policy = site.settings.agent_tpm
    if policy == "off":
        return None
    proof = await _ask(site, node, agent)
    refused = proof.detail if isinstance(proof, Blocker) else proof.refused
    if refused:
        enrolled = node.tpm.key_sha256 if node.tpm else ""
        await hold.record(events=[BoardTpmRead(key=enrolled, refused=refused)])
        if policy == "record":
            return None
        if isinstance(proof, Blocker):
            return proof
        await site.agents.dismiss(node.id)
        return _refuse(node, refused)
    assert not isinstance(proof, Blocker)
    return None if proof.tpm == node.tpm else proof.tpm


async def _ask(site: Site, node: Node, agent: AgentAddress) -> BoardProof | Blocker:
    try:
        bound = bind_nonce(secrets.token_bytes(32), agent.certificate)
    except ValueError:
        return BoardProof(refused="its TLS certificate cannot be read")
    limit_s = site.settings.agent_step_limit_s
    answer = await ask_step(site, node, agent, STEP, {"nonce": bound.hex()}, limit_s)
    if not isinstance(answer, Blocker):
        return judge_board(answer, bound, node.tpm, site.clock.now())
    if answer.reason is Reason.NOT_OFFERED:
        unblock = "Build the maintenance image anew, or set `agent_tpm: record`."
        detail = "the maintenance image cannot quote a TPM"
        return answer.model_copy(update={"detail": detail, "unblock": unblock})
    return answer


def _refuse(node: Node, refused: str) -> Blocker:
    return Blocker(
        reason=Reason.FOREIGN_AGENT,
        subject=f"{node.id}/agent",
        detail=refused,
        unblock="If its board was exchanged: `provisioner node retry NODE --new-board`. Otherwise "
        "look which machine calls as this node; a TPM with a tenant's password is cleared in the "
        "firmware's setup.",
    )
