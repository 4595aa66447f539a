"""Has the agent of a boot prove that it runs on the node's own board, by a quote of its TPM.

The key of the quote is enrolled when a maker that the site pinned vouches for the TPM, and the TPM
opens a credential for the key; otherwise a person vouches for it.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

from provisioner.checks.attestation.endorsement_certificates import (
    MAKERS_BYTES_MAX,
    Makers,
    parse_makers,
)
from provisioner.checks.attestation.tpm_quotes import SECRET_BYTES
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import HOST
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import read_secure_boot, shows_tpm
from provisioner.execution.steps.agent_steps import ask_step
from provisioner.model.certificate import FindingName
from provisioner.model.events.node_events import BoardTpmRead
from provisioner.model.node import BoardTpm, Node, TpmProof
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.board_identity import (
    BOARDS_BYTES_MAX,
    OPEN_STEP,
    READ_STEP,
    STEP,
    BoardProof,
    ListedBoards,
    bind_nonce,
    challenge_board,
    find_holder,
    judge_board,
    judge_opening,
    parse_boards,
)
from provisioner.ports import AgentAddress, PortError

_ENROLLED = "it is enrolled for "
_OLD_IMAGE = "the maintenance image cannot"


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
        key = node.tpm.key_sha256 if node.tpm else ""
        await hold.record(events=[BoardTpmRead(key=key, refused=refused)])
        if policy == "record":
            return None
        if isinstance(proof, Blocker):
            return proof
        await site.agents.dismiss(node.id)
        return _refuse(node, refused)
    assert not isinstance(proof, Blocker)
    tpm = proof.tpm
    if tpm is None:
        return await _accept_none(site, hold, node)
    tpm = tpm.model_copy(update={"shown_secure_boot": await _read_shown_boot(site, node)})
    if tpm.proof is TpmProof.QUOTE:
        proved = await _prove_maker(site, node, agent, tpm)
        if isinstance(proved, BoardTpm):
            holder = find_holder(await hold.list_nodes(), node.id, proved)
            proved = f"{_ENROLLED}{holder}" if holder else proved
        if not isinstance(proved, BoardTpm):
            return await _keep_unproved(site, hold, node, tpm, proved)
        tpm = proved
    return None if tpm == node.tpm else tpm


async def _ask(site: Site, node: Node, agent: AgentAddress) -> BoardProof | Blocker:
    try:
        bound = bind_nonce(secrets.token_bytes(32), agent.certificate)
    except ValueError:
        return BoardProof(refused="its TLS certificate cannot be read")
    answer = await _step(site, node, agent, STEP, {"nonce": bound.hex()}, "quote a TPM")
    if isinstance(answer, Blocker):
        return answer
    return judge_board(answer, bound, node.tpm, site.clock.now())


async def _accept_none(site: Site, hold: Hold, node: Node) -> Blocker | None:
    """Accept a machine without a TPM, unless the site's list has a key of the node's board, or the
    node's BMC shows that its board has one.
    """
    shown = await _find_shown(site, node)
    if isinstance(shown, Blocker):
        return shown if site.settings.agent_tpm == "require" else None
    if not shown:
        return None
    refused = f"it says that its machine has no TPM 2.0, and {shown}"
    await hold.record(events=[BoardTpmRead(key="", refused=refused)])
    if site.settings.agent_tpm == "record":
        return None
    await site.agents.dismiss(node.id)
    return _refuse(node, refused)


async def _find_shown(site: Site, node: Node) -> str | Blocker:
    """Return what shows that the node's board has a TPM; "" if nothing does."""
    try:
        if node.id in (_read_boards(site.settings.tpm_boards_file) or {}):
            return "`tpm_boards_file` lists one"
    except ValueError as error:
        return str(error)
    try:
        client = await site.reach.redfish(node, HOST)
        if isinstance(client, Blocker):
            return client
        return "the node's BMC shows an enabled one" if await shows_tpm(client) else ""
    except PortError as error:
        return blocked(error, f"{node.id}/{HOST}")


async def _read_shown_boot(site: Site, node: Node) -> bool | None:
    """Return the BMC's statement about Secure Boot of this boot; None if it gives none."""
    try:
        client = await site.reach.redfish(node, HOST)
        return None if isinstance(client, Blocker) else await read_secure_boot(client)
    except PortError:
        return None


async def _prove_maker(
    site: Site, node: Node, agent: AgentAddress, tpm: BoardTpm
) -> BoardTpm | Blocker | str:
    """Return the TPM with its maker, or why no maker vouches for it."""
    try:
        makers = _read_makers(site.settings.tpm_makers_file)
        boards = _read_boards(site.settings.tpm_boards_file)
        answer = await _step(site, node, agent, READ_STEP, {}, "read a TPM's certificates")
        if isinstance(answer, Blocker):
            return answer
        secret = secrets.token_bytes(SECRET_BYTES)
        challenge = challenge_board(
            answer, tpm.key_sha256, makers, secret, site.clock.now(), node=node.id, boards=boards
        )
        arguments = {
            "credential": base64.b64encode(challenge.credential).decode(),
            "key": challenge.endorsement.kind,
        }
        opened = await _step(site, node, agent, OPEN_STEP, arguments, "open a credential")
        return opened if isinstance(opened, Blocker) else judge_opening(opened, challenge, tpm)
    except ValueError as refused:  # Unacceptable, or a file of the site that cannot be read
        return str(refused)


async def _keep_unproved(
    site: Site, hold: Hold, node: Node, tpm: BoardTpm, why: Blocker | str
) -> BoardTpm | Blocker | None:
    """Refuse a TPM that is new and that nobody vouches for; one that an older release enrolled by
    its first quote keeps its key, and the event says why it is unproved.
    """
    detail = why.detail if isinstance(why, Blocker) else why
    refused = f"its TPM is unproved: {detail}"
    await hold.record(events=[BoardTpmRead(key=tpm.key_sha256, refused=refused)])
    if node.tpm is not None:
        return None if tpm == node.tpm else tpm
    if site.settings.agent_tpm == "record":
        return None
    if isinstance(why, Blocker):
        return why
    await site.agents.dismiss(node.id)
    return Blocker(
        reason=Reason.FOREIGN_AGENT,
        subject=f"{node.id}/tpm",
        detail=f"{refused}; its key is {tpm.key_sha256}",
        unblock=_name_remedy(detail),
    )


def _name_remedy(detail: str) -> str:
    if detail.startswith(_ENROLLED):
        other = detail.removeprefix(_ENROLLED)
        return f"If the board was moved: `provisioner node retry {other} --new-board`, then retry."
    remedy = "Add the certificate of its maker to `tpm_makers_file`"
    if detail.startswith(FindingName.EK_BOARD.value):
        remedy = "Correct the node's line in `tpm_boards_file`"
    person = "if you know that this is the node's board"
    return f"{remedy}. Or, {person}: `provisioner node retry NODE --admit-tpm KEY`."


async def _step(
    site: Site, node: Node, agent: AgentAddress, step: str, arguments: dict[str, str], act: str
) -> object | Blocker:
    answer = await ask_step(site, node, agent, step, arguments, site.settings.agent_step_limit_s)
    if isinstance(answer, Blocker) and answer.reason is Reason.NOT_OFFERED:
        unblock = "Build the maintenance image anew, or set `agent_tpm: record`."
        return answer.model_copy(update={"detail": f"{_OLD_IMAGE} {act}", "unblock": unblock})
    return answer


def _read_makers(path: str) -> Makers:
    """Return the pinned makers; none without a file. Raises ValueError."""
    try:
        return parse_makers(_read(path, MAKERS_BYTES_MAX)) if path else Makers()
    except (OSError, ValueError) as error:
        raise ValueError(f"`tpm_makers_file` cannot be read: {str(error)[:120]}") from None


def _read_boards(path: str) -> ListedBoards | None:
    """Return the site's list of boards; None without a file. Raises ValueError."""
    try:
        return parse_boards(_read(path, BOARDS_BYTES_MAX)) if path else None
    except (OSError, ValueError) as error:
        raise ValueError(f"`tpm_boards_file` cannot be read: {str(error)[:120]}") from None


def _read(path: str, most: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(most + 1)


def _refuse(node: Node, refused: str) -> Blocker:
    return Blocker(
        reason=Reason.FOREIGN_AGENT,
        subject=f"{node.id}/agent",
        detail=refused,
        unblock="If its board was exchanged: `provisioner node retry NODE --new-board`. Otherwise "
        "look which machine calls as this node; a TPM with a tenant's password is cleared in the "
        "firmware's setup.",
    )
