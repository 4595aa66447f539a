"""Gives a host's BIOS its factory defaults between two tenants, and comes back into the image.

It is done when nothing is left on the drives: defaults may change what the host boots from, and a
former tenant's system must not run. The way back is an override of the next boot by the BMC, which
no BIOS setting decides; where the reset ends the override too, the boot fails, and the next one
finds the defaults in force. Every act is absolute, and rows of the ledger say how far it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings import bios_writes
from provisioner.adapters.redfish.settings.bios_writes import SUBJECT
from provisioner.adapters.redfish.tasks import list_running_tasks
from provisioner.execution.actions.once import Act, Sent, Snapshot, blocked, pass_login_gate
from provisioner.execution.actions.work import Work, do_work
from provisioner.execution.observe.rotation import new_password
from provisioner.execution.steps.agent_steps import find_last, find_open, record_outcome
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.credential import RotationCause
from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.events.node_events import CredentialReplaced
from provisioner.model.machine.settings import BiosState, SetupPasswordState
from provisioner.model.node import BmcRef
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.bmc_defaults import (
    Verdict,
    explain_no_restoring,
    judge_defaults,
    judge_keys,
    record_keys,
)
from provisioner.planning.erasure.erasure import not_done
from provisioner.planning.lifecycle.credential_rotation import SETUP, compute_retry
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.path.history import OPEN
from provisioner.ports import Credentials, PortError, Secret
from provisioner.store.repositories.vault import SqlCredentialStandings

# ------------------------------------------------------------------------------
# Compares the keys of Secure Boot between two tenants, and has the factory's restored on demand.
#
# Keys are restored only where the site requires it and something differs: it takes a boot, which
# carries the request out. A system whose keys are in order is read, and boots no more than before.


RESET = "Secure Boot keys to defaults"


async def check_keys(stay: Stay, *, required: bool) -> list[ErasureRecord] | Blocker:
    """Return records of each BMC's system. Silence ends the turn where the site requires them."""
    records: list[ErasureRecord] = []
    for bmc in stay.node.bmcs:
        try:
            client = await stay.site.reach.redfish(stay.node, bmc.name)
            if isinstance(client, Blocker):
                refused = client
            else:
                checked = await _check(stay, bmc, client, required=required)
                if not isinstance(checked, Blocker):
                    records += checked
                    continue
                return checked  # of the boot that restores the keys
        except PortError as error:
            refused = blocked(error, f"{stay.node.id}/{bmc.name}")
            if required:
                return refused
        verdict = (f"{bmc.name} Secure Boot", Result.NOT_DONE, f"not read: {refused.detail}"[:400])
        records.append(record_keys(verdict, Method.NONE, stay.site.clock.now()))
    return records


async def _check(
    stay: Stay, bmc: BmcRef, client: Redfish, *, required: bool
) -> list[ErasureRecord] | Blocker:
    own = stay.site.settings.secure_boot_keys_expected
    reset = await _find_reset(stay) if bmc.kind == "host" and required else None
    keys = await client.read_secure_boot_keys()
    verdicts = list(judge_keys(bmc.name, keys, own))
    if reset is None and required and bmc.kind == "host":
        why = explain_no_restoring(keys, verdicts, own)
        if not why:
            asked_for = await _restore(stay, client)
            if isinstance(asked_for, Blocker):
                why = asked_for.detail
            else:
                reset = asked_for
        verdicts = [_explain(v, why) for v in verdicts]
    method = Method.COMPARED
    if reset is not None:
        stay.since = max(stay.since, reset.settled_at)
        agent = await stay.enter_image()
        if isinstance(agent, Blocker):
            return agent
        verdicts = list(judge_keys(bmc.name, await client.read_secure_boot_keys(), own))
        method = Method.KEYS_RESTORED
    now = stay.site.clock.now()
    return [record_keys(verdict, method, now) for verdict in verdicts]


async def _find_reset(stay: Stay) -> LedgerEntry | None:
    """Return the request of this stay and operation, if it was accepted."""
    row = find_last(_list_mine(stay, await stay.hold.list_entries()), RESET)
    if row is None or row.status is not ActionStatus.CONFIRMED:
        return None
    return row if row.operation == stay.hold.operation.id else None


async def _restore(stay: Stay, host: Redfish) -> LedgerEntry | Blocker:
    async def look() -> Snapshot | Blocker:
        return {}

    async def send() -> Sent | Blocker:
        refused = await host.reset_secure_boot_keys()
        return refused if refused is not None else Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None  # the boot carries it out

    def repeat(_before: Snapshot, _now: Snapshot) -> bool:
        return False

    visit = {"visit": stay.node.fenced_at}
    act = Act(
        name=RESET,
        before=visit,
        look=look,
        send=send,
        happened=repeat,
        destroys=Destruction.SECURE_BOOT_KEYS,
    )
    mine = _list_mine(stay, await stay.hold.list_entries())
    work = Work(act=act, finish=finish)
    refused = await do_work(stay.site, stay.hold, work, find_open(mine, RESET))
    if refused is not None:
        return refused
    row = find_last(await stay.hold.list_entries(), RESET)
    assert row is not None
    return row


def _list_mine(stay: Stay, rows: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    return [r for r in rows if r.before.get("visit") == stay.node.fenced_at]


def _explain(verdict: Verdict, why: str) -> Verdict:
    part, result, detail = verdict
    if result is not Result.NOT_DONE or not why:
        return verdict
    return part, result, f"{detail}; not restored: {why}"


# ------------------------------------------------------------------------------
# Changes a host's UEFI set-up password while it is in the maintenance image, and proves it.
#
# A BIOS takes a new one at a boot, and only if it is shown the old one; no answer says what it did.
# So the new password is stored as pending before the BMC hears of it, and becomes the stored one
# when the BMC's digest proves that it is in force. Until then both are stored. The state of the BMC
# and the two passwords say how far a daemon came that died: nothing else is kept.


BOOTS_MAX = 2  # one that carries the change out, and one where a predecessor's job was in the way
_FILE_MAX = 4096


class Progress(Enum):
    """How far a change is."""

    SETTLED = "settled"  # the stored password is proved to be in force
    BOOT = "boot"  # the next boot carries the change out


async def change_setup_password(stay: Stay, standings: SqlCredentialStandings) -> Blocker | None:
    """Change the password once in a stay. A Blocker: the BMC is silent, or the boot failed.

    A refusal of the BMC or the BIOS is in the row of the login, and blocks nothing: it is tried
    again when the host comes back the next time.
    """
    site = stay.site
    name = f"{stay.node.id}/{SETUP}"
    standing = await standings.get(name)
    if standing is not None and await _is_over(stay, name, standing.changed_at, standing.retry_at):
        return None
    await standings.begin_attempt(name, stay.node.id, site.clock.now())
    try:
        host = await site.reach.redfish(stay.node, "host")
        if isinstance(host, Blocker):
            return host
        given = await _read_given(site.settings.credential_setup_password_file)
        problem: Blocker | None = _refuse_dropped()
        for _ in range(BOOTS_MAX + 1):
            progress = await advance(site.reach.credentials, host.service, name, given)
            if isinstance(progress, Blocker):
                problem = progress
                break
            if progress is Progress.SETTLED:
                problem = None
                break
            stay.since = site.clock.now()
            agent = await stay.enter_image()
            if isinstance(agent, Blocker):
                return agent
    except PortError as error:
        return blocked(error, name)
    now = site.clock.now()
    if problem is not None:
        failures = 0 if standing is None else standing.failures
        retry_at = now + compute_retry(problem, failures + 1)
        await standings.record_failure(name, problem.detail, retry_at)
        return None
    cause = (standing and standing.cause) or RotationCause.TENANT
    event = CredentialReplaced(about=stay.node.id, bmc=SETUP, pin="", cause=cause.value)
    await standings.record_change(name, stay.node.id, now, event)
    return None


async def advance(
    credentials: Credentials, service: Service, name: str, given: Secret | None
) -> Progress | Blocker:
    """Go on with the change as far as it goes without a boot. Raises `PortError` for silence."""
    state = await bios_writes.read_setup_password(service)
    if isinstance(state, Blocker):
        return state
    pending = await credentials.pending(name)
    if pending is not None and state.proves(pending[1].reveal()):
        await credentials.confirm(name)
        return Progress.SETTLED
    current = await credentials.current(name)
    known = [Secret(""), *([] if current is None else [current[1]])]
    known += [] if given is None else [given]
    old = next((secret for secret in known if state.proves(secret.reveal())), None)
    if old is None:
        return _refuse_unknown(state, is_pending=pending is not None)
    if running := await list_running_tasks(service):
        return Progress.BOOT if pending is not None else _refuse_busy(running)
    assert service.quirk.setup_password is not None
    new = pending or (service.quirk.setup_password.name, new_password())
    await credentials.begin(name, *new)
    if (blocker := await pass_login_gate(credentials, name, new[1])) is not None:
        return blocker
    refused = await bios_writes.change_setup_password(service, state, old, new[1])
    # the job that a predecessor made waits for the boot: a second one is refused
    waits = refused is not None and refused.reason is Reason.BUSY and pending is not None
    return Progress.BOOT if waits or refused is None else refused


async def _is_over(stay: Stay, name: str, changed_at: float, retry_at: float) -> bool:
    """Return whether this stay has changed it, or has tried in vain."""
    credentials = stay.site.reach.credentials
    if retry_at > stay.site.clock.now():
        return True
    kept = await credentials.current(name) is not None and await credentials.pending(name) is None
    return kept and changed_at >= stay.node.fenced_at


async def _read_given(path: str) -> Secret | None:
    """Return the password that the site's hosts have today; None: no file names one."""
    if not path:
        return None

    def read() -> str:
        with Path(path).open("rb") as file:
            return file.read(_FILE_MAX).decode("utf-8", "replace").strip("\r\n")

    try:
        text = await asyncio.to_thread(read)
    except OSError:
        return None  # then the one in force is unknown, which is named
    return Secret(text) if text else None


def _refuse_unknown(state: SetupPasswordState, *, is_pending: bool) -> Blocker:
    assert state.is_set, "an empty password proves that none is set"
    both = " and not the one that was to follow it" if is_pending else ""
    return Blocker(
        reason=Reason.LOGIN_REFUSED,
        subject=SUBJECT,
        detail=f"the set-up password in force is not one that is stored{both}",
        unblock="Name it in `credential_setup_password_file`, or clear it in the set-up.",
    )


def _refuse_busy(running: tuple[str, ...]) -> Blocker:
    return Blocker(
        reason=Reason.BUSY,
        subject=SUBJECT,
        detail=f"the BMC has an open job: {', '.join(running[:4])}",
        unblock="It is tried again when the host comes back; a stale job is deleted by a person.",
    )


def _refuse_dropped() -> Blocker:
    return Blocker(
        reason=Reason.REFUSED,
        subject=SUBJECT,
        detail="the BMC took the change, and after the boots the old password is still in force",
        unblock="Look at the BMC's job queue; the old one stays stored, and the new one beside it.",
    )


BIOS_DEFAULTS_RESET = "BIOS to defaults"
PROOF = "BIOS defaults proved"


async def restore_defaults(stay: Stay) -> ErasureRecord | Blocker:
    """Return the record of the BIOS; the image runs again. A Blocker: it is gone on with later."""
    rows = [r for r in await stay.hold.list_entries() if r.action in (BIOS_DEFAULTS_RESET, PROOF)]
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
                stay.site, stay.hold, _reset(stay, host), find_open(mine, BIOS_DEFAULTS_RESET)
            )
            if refused is not None:
                return not_done(Holder.BIOS, "host", refused.detail[:400], stay.site.clock.now())
            after = [r for r in await stay.hold.list_entries() if r.action == BIOS_DEFAULTS_RESET]
            sent = find_last(after, BIOS_DEFAULTS_RESET)
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
    reset = find_last(rows, BIOS_DEFAULTS_RESET)
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
        name=BIOS_DEFAULTS_RESET,
        before={"visit": stay.node.fenced_at},
        look=look,
        send=send,
        happened=lambda _before, _now: False,
        destroys=Destruction.BIOS_DEFAULTS,
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
