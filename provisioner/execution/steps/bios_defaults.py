"""Gives a host's BIOS its factory defaults between two tenants, and comes back into the image.

It is done when nothing is left on the drives: defaults may change what the host boots from, and a
former tenant's system must not run. The way back is an override of the next boot by the BMC, which
no BIOS setting decides; where the reset ends the override too, the boot fails, and the next one
finds the defaults in force. Every act is absolute, and rows of the ledger say how far it came.
"""

from __future__ import annotations

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.once import Act, Sent, Snapshot, blocked
from provisioner.execution.actions.work import Work, do_work
from provisioner.execution.steps.agent_steps import find_last, find_open, record_outcome
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.machine.bios_state import BiosState
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.planning.erasure.bios_defaults import judge_defaults
from provisioner.planning.erasure.erasure import not_done
from provisioner.planning.path.history import OPEN
from provisioner.ports import PortError

RESET = "BIOS to defaults"
PROOF = "BIOS defaults proved"


async def restore_defaults(stay: Stay) -> ErasureRecord | Blocker:
    """Return the record of the BIOS; the image runs again. A Blocker: it is gone on with later."""
    rows = [r for r in await stay.hold.list_entries() if r.action in (RESET, PROOF)]
    mine = [r for r in rows if r.before.get("visit") == stay.node.fenced_at]
    if (proved := _proved(mine)) is not None:
        return proved
    try:
        host = await stay.site.reach.redfish(stay.node, "host")
        if isinstance(host, Blocker):
            return host
        sent = _sent(mine, stay.hold.operation.id)
        if sent is None:
            refused = await do_work(
                stay.site, stay.hold, _reset(stay, host), find_open(mine, RESET)
            )
            if refused is not None:
                return not_done(Holder.BIOS, "host", refused.detail[:400], stay.site.clock.now())
            after = [r for r in await stay.hold.list_entries() if r.action == RESET]
            sent = find_last(after, RESET)
            assert sent is not None
        stay.since = sent.settled_at
        agent = await stay.enter_image()
        if isinstance(agent, Blocker):
            return agent
        after_boot = await host.read_bios_state()
    except PortError as error:
        return blocked(error, f"{stay.node.id}/host")
    return await _prove(stay, sent, after_boot, _known(rows))


def _proved(rows: list[LedgerEntry]) -> ErasureRecord | None:
    """Return the record of this stay's proof; one that is not done is tried again."""
    row = find_last(rows, PROOF)
    if row is None or row.status is not ActionStatus.CONFIRMED:
        return None
    return ErasureRecord.model_validate_json(row.outcome)


def _sent(rows: list[LedgerEntry], operation: str) -> LedgerEntry | None:
    """Return the request of this operation whose result is not judged yet."""
    reset = find_last(rows, RESET)
    if reset is None or reset.status is not ActionStatus.CONFIRMED:
        return None
    proof = find_last([r for r in rows if r.status not in OPEN], PROOF)
    judged = proof is not None and proof.intended_at >= reset.settled_at
    return None if judged or reset.operation != operation else reset


def _known(rows: list[LedgerEntry]) -> BiosState | None:
    proofs = [r for r in rows if r.action == PROOF and r.status is ActionStatus.CONFIRMED]
    newest = find_last(proofs, PROOF)
    return (
        None if newest is None else BiosState.model_validate(newest.before["state"], strict=False)
    )


def _reset(stay: Stay, host: Redfish) -> Work:
    async def look() -> Snapshot | Blocker:
        state = await host.read_bios_state()
        return {} if state is None else {"state": state.model_dump(mode="json")}

    async def send() -> Sent | Blocker:
        refused = await host.reset_bios()
        return refused if refused is not None else Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None  # the boot carries it out

    act = Act(
        name=RESET,
        before={"visit": stay.node.fenced_at},
        look=look,
        send=send,
        happened=lambda _before, _now: False,
    )
    return Work(act=act, finish=finish)


async def _prove(
    stay: Stay, sent: LedgerEntry, after: BiosState | None, known: BiosState | None
) -> ErasureRecord:
    seen = sent.before.get("seen", {}).get("state")
    empty = BiosState(names=(), digests=())
    before = empty if seen is None else BiosState.model_validate(seen, strict=False)
    result, detail = judge_defaults(before, after, known)
    record = ErasureRecord(
        holder=Holder.BIOS,
        device="host",
        method=Method.BIOS_DEFAULTS,
        result=result,
        detail=detail,
        started_at=sent.intended_at,
        ended_at=stay.site.clock.now(),
    )
    state = None if after is None else after.model_dump(mode="json")
    done = result is Result.DONE
    status = ActionStatus.CONFIRMED if done else ActionStatus.FAILED
    about = {"visit": stay.node.fenced_at, "state": state}
    await record_outcome(stay.hold, PROOF, about, status, record.model_dump_json())
    return record
