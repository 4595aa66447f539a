"""A physical action, executed at most once per observed absence of its effect.

The protocol (docs/sources/engine.md#ledger, with the failures of its variants): observe; write the
intent with a snapshot; send only within a short window after it; write the outcome. A driver that
finds an open intent waits until the window and the longest request are over, and then observes: the
action happened (it is adopted), it provably did not (it is sent again, a bounded number of times),
or the device does not show which (a person decides).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.execution.actions.hold import Hold
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.destruction import (
    TABLE,
    Destruction,
    Facts,
    Need,
    judge_destruction,
)
from provisioner.planning.release.adoption import GRANT_REMEDY
from provisioner.ports import Clock, Credentials, PortError, Secret, Unreachable
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# The gate that every act passes which nothing undoes, at its edge: immediately before the effect.
#
# The rules are the table of `planning/lifecycle/destruction.py`; here its facts are read, from rows
# that may have changed since the act was decided upon. `once` asks for acts that have `destroys`.


_OF_CASES = frozenset({Need.GROUND, Need.FEW, Need.ORDERED, Need.CLEAN})


async def pass_gate(
    hold: Hold, act: Destruction, *, keeps: bool = False, stored: bool = False, begins: bool = False
) -> Blocker | None:
    """Return why the act must not be carried out on the operation's node now; None: it may.

    `keeps`: the site returns nodes to their tenants unerased. `stored`: the password that follows
    is in the vault. `begins`: the host is booted for it next, and the gate is asked again then.
    """
    needs = TABLE[act].needs
    node = await hold.read_node()
    case = await hold.get_case() if _OF_CASES & set(needs) else None
    few = Need.FEW in needs
    facts = Facts(
        node=node,
        case=case,
        nodes=await hold.list_nodes() if few else (),
        cases=await hold.list_open_cases() if few and case is not None else (),
        keeps=keeps,
        stored=stored,
    )
    later = (Need.BOOTED,) if begins else ()
    return judge_destruction(act, hold.operation.node, facts, later)


async def pass_login_gate(credentials: Credentials, name: str, new: Secret) -> Blocker | None:
    """Return why a device must not get this password as its only one: it is not stored."""
    stored = await is_stored(credentials, name, new)
    return judge_destruction(Destruction.LOGIN, name, Facts(node=None, stored=stored))


async def is_stored(credentials: Credentials, name: str, new: Secret) -> bool:
    pending = await credentials.pending(name)
    return pending is not None and pending[1].reveal() == new.reveal()


Snapshot = Mapping[str, Any]

# Failures of a login or handshake, and requests that were withheld: the request never left.
_BEFORE_SENDING = (
    Reason.LOGIN_REFUSED,
    Reason.ACCOUNT_LOCKED,
    Reason.CERTIFICATE_CHANGED,
    Reason.CERTIFICATE_UNTRUSTED,
    Reason.HOST_KEY_UNKNOWN,
    Reason.LOOK_ONLY,
    Reason.NOT_GRANTED,
)


@dataclass(frozen=True)
class Sent:
    """The device took the request; `task` is where its progress can be read, if anywhere."""

    task: str = ""


@dataclass(frozen=True)
class Act:
    """One physical action: how to observe, how to send, and how to determine its outcome.

    `send` returns `Sent`, or a `Blocker` if the device refused (BUSY: the action did not begin).
    `happened(before, now)` is None if the device does not show it. `recall(since)` asks for the
    result of the request itself where that survives the daemon: it returns the answer, or None if
    the request is over and the device has to be observed. `destroys`: nothing undoes it, so that
    the gate is asked immediately before each `send`.
    """

    name: str
    before: Mapping[str, Any]  # fields that the ledger stores besides the snapshot: step, slot
    look: Callable[[], Awaitable[Snapshot | Blocker]]
    send: Callable[[], Awaitable[Sent | Blocker]]
    happened: Callable[[Snapshot, Snapshot], bool | None]
    request_max_s: float = 0.0  # longest that `send` may take; 0: the setting
    recall: Callable[[float], Awaitable[Sent | Blocker | None]] | None = None
    destroys: Destruction | None = field(default=None, kw_only=True)


async def once(
    hold: Hold, clock: Clock, settings: Settings, act: Act, entry: LedgerEntry | None
) -> LedgerEntry | Blocker:
    """Return the action's ledger row once it is known to have been sent, or why it was not.

    `entry` is the open row of this action, if there is one (after a crash, or an answer lost).
    """
    result: LedgerEntry | Blocker | None = entry
    for _ in range(settings.attempts_max):
        if isinstance(result, LedgerEntry) and result.status is ActionStatus.INTENDED:
            result = await _resolve(hold, clock, settings, act, result)
        if result is None:
            result = await _send(hold, clock, settings, act)
        if isinstance(result, Blocker) or result.status is not ActionStatus.INTENDED:
            return result
    return Blocker(
        reason=Reason.ATTEMPTS_EXHAUSTED,
        subject=act.name,
        detail=f"no certain outcome in {settings.attempts_max} tries",
        unblock="Look at the device and its log, then retry the node.",
    )


async def _send(hold: Hold, clock: Clock, settings: Settings, act: Act) -> LedgerEntry | Blocker:
    """Look, intend, send. An INTENDED row comes back when the answer was lost."""
    snapshot = await act.look()
    if isinstance(snapshot, Blocker):
        return snapshot
    entry = await hold.record_intent(act.name, {**act.before, "seen": dict(snapshot)})
    if act.destroys is not None and (blocker := await pass_gate(hold, act.destroys)) is not None:
        await hold.settle_entry(entry, ActionStatus.ABSENT, outcome=f"not sent: {blocker}")
        return blocker
    late_s = clock.now() - entry.intended_at
    if late_s > settings.send_window_s:
        return await _too_late(hold, entry, act, late_s)
    try:
        answer = await act.send()
    except Unreachable as error:
        if error.maybe_executed:
            return entry
        await hold.settle_entry(entry, ActionStatus.ABSENT, outcome=str(error))
        return blocked(error, act.name)
    except PortError as error:
        if error.reason not in _BEFORE_SENDING:
            return entry  # an unreadable answer: the next look at the device decides
        await hold.settle_entry(entry, ActionStatus.ABSENT, outcome=str(error))
        return blocked(error, act.name)
    return await _answered(hold, entry, answer)


async def _too_late(hold: Hold, entry: LedgerEntry, act: Act, late_s: float) -> Blocker:
    """Settle an intent that was not sent and never will be: a successor may have observed already.

    Raises `Fenced` if there is one. If not, the outcome is certain, and no device is to blame.
    """
    why = f"not sent: its intent was {late_s:.1f} s old before it could be"
    await hold.settle_entry(entry, ActionStatus.ABSENT, outcome=why)
    return Blocker(
        reason=Reason.OVERLOADED,
        subject=act.name,
        detail=why,
        unblock="It is tried again by itself. The daemon or its database is too slow: see "
        "GET /v1/health; give it more cores or a faster disk, or lower operations_max.",
    )


async def _answered(
    hold: Hold, entry: LedgerEntry, answer: Sent | Blocker
) -> LedgerEntry | Blocker:
    """Record the device's answer to a request."""
    if isinstance(answer, Blocker):
        busy = answer.reason is Reason.BUSY
        status = ActionStatus.ABSENT if busy else ActionStatus.FAILED
        await hold.settle_entry(entry, status, outcome=str(answer))
        return answer
    return await hold.settle_entry(entry, ActionStatus.SENT, task=answer.task)


async def _resolve(
    hold: Hold, clock: Clock, settings: Settings, act: Act, entry: LedgerEntry
) -> LedgerEntry | Blocker | None:
    """An open intent: wait until it can no longer be under way, then look. None: it is absent."""
    if act.recall is not None:
        answer = await act.recall(entry.intended_at)
        if answer is not None:
            return await _answered(hold, entry, answer)
    else:
        longest = settings.send_window_s + (act.request_max_s or settings.request_max_s)
        # never longer, whatever the clock of the machine that wrote the intent was set to
        wait_s = min(entry.intended_at + longest - clock.now(), longest)
        await clock.sleep(max(wait_s, 0.0))
    snapshot = await act.look()
    if isinstance(snapshot, Blocker):
        return snapshot
    happened = act.happened(entry.before.get("seen", {}), snapshot)
    if happened is None:
        await hold.settle_entry(entry, ActionStatus.UNCLEAR, outcome="the device does not show it")
        return Blocker(
            reason=Reason.CANNOT_TELL,
            subject=act.name,
            detail="the answer was lost, and the device does not show whether it happened",
            unblock="Look at the device; then retry the node, or mark it for repair.",
        )
    if happened:
        return await hold.settle_entry(
            entry, ActionStatus.SENT, outcome="adopted: seen on the device"
        )
    await hold.settle_entry(entry, ActionStatus.ABSENT, outcome="absent: not seen on the device")
    return None


def blocked(error: PortError, subject: str) -> Blocker:
    remedy = {
        Reason.LOGIN_REFUSED: "Correct the credentials, then retry the node.",
        Reason.CERTIFICATE_CHANGED: "Check why the certificate changed, then pin the new one.",
        Reason.CERTIFICATE_UNTRUSTED: "Give the CA of its certificate with --ca-file, or pin it.",
        Reason.HOST_KEY_UNKNOWN: "Add the host's key to the file of known hosts.",
        Reason.ACCOUNT_LOCKED: "Wait: the next login is tried when the lockout is surely over.",
        Reason.SWITCH_REFUSED: "Look at the switch's own log; it is tried again by itself.",
        Reason.NOT_GRANTED: GRANT_REMEDY,
        Reason.NOT_OFFERED: "Correct the expected-hardware list, then retry the node.",
    }
    return Blocker(
        reason=error.reason,
        subject=subject,
        detail=str(error) or error.reason.value,
        unblock=remedy.get(error.reason, "It is tried again by itself; check network and power."),
    )
