"""The life of an alert: raised, repeated, cleared, flapping, and its effect under overrides.

Pure. A report of an unchanged condition changes nothing, so that a watch of thousands of nodes
writes only when a condition changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from provisioner.model.alert import ANY, Alert, Classification, Override, Signal
from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason

RAISES_MAX = 16  # stored times; flapping is decided from far fewer
ALERTS_MAX = 128  # of one node; a person reads no more, and a hostile BMC may invent ids
OVERFLOW = "TooManyAlerts"
OVERRIDE_MAX_S = 90 * 86400.0  # an exception that lasts longer belongs into the matrix

# a node with one of these differs from its certificate
REVOKING = frozenset({Classification.FATAL_EVENT, Classification.DRIFT, Classification.PART_SWAP})
HOLDING = REVOKING | {Classification.PREVENT_ALLOCATIONS}
# only a person ends these: a dry detector does not show where the coolant went
PERSONAL = frozenset({Classification.LEAK})
# of systems beside a node, which its certificate does not judge: their own looks end it
MEMBERSHIP_DRIFT = "MembershipDrift"
_DRIFTING = frozenset({Classification.DRIFT, Classification.PART_SWAP})


class AlertPolicy(Record):
    """Limits for flapping. Ours: no source publishes such numbers for alerts of this kind."""

    raises: int = 3  # so often within `window_s`
    window_s: float = 3600.0
    quiet_s: float = 600.0  # then it is over only after this long without a report


POLICY = AlertPolicy()


def apply_signal(alert: Alert | None, signal: Signal, policy: AlertPolicy = POLICY) -> Alert | None:
    """Return the alert after one report; None if the report changes nothing."""
    if not signal.active:
        return None if alert is None else _over(alert, signal)
    if alert is None:
        return _fresh(signal)
    fields = {
        "classifications": signal.classifications,
        "message": signal.message,
        "source": signal.source,
        "count": alert.count + 1,
    }
    if alert.active:
        last_at = max(alert.last_at, signal.at)
        quiet = 0.0 if signal.at >= alert.quiet_since else alert.quiet_since
        return alert.model_copy(update={**fields, "last_at": last_at, "quiet_since": quiet})
    if signal.at < alert.cleared_at:
        return None  # it came late: the condition is over
    raises = (*alert.raises, signal.at)[-RAISES_MAX:]
    recent = [at for at in raises if signal.at - at <= policy.window_s]
    return alert.model_copy(
        update={
            **fields,
            "since": signal.at,
            "last_at": signal.at,
            "cleared_at": 0.0,
            "cleared_why": "",
            "raises": raises,
            "flapping": len(recent) >= policy.raises,
            "quiet_since": 0.0,
        }
    )


def settle_flapping(alert: Alert, now: float, policy: AlertPolicy = POLICY) -> Alert | None:
    """Return a flapping alert cleared after enough quiet; None if it stays as it is."""
    if not (alert.active and alert.flapping and alert.quiet_since):
        return None
    if now - alert.quiet_since < policy.quiet_s:
        return None
    changes = {"flapping": False, "quiet_since": 0.0}
    return _cleared(alert, now, "it was quiet for long enough").model_copy(update=changes)


def clear_alert(alert: Alert, now: float, why: str) -> Alert | None:
    """Return the alert cleared by a person or by a proof; None if it is not active."""
    if not alert.active:
        return None
    return _cleared(alert, now, why).model_copy(update={"flapping": False, "quiet_since": 0.0})


def supersede_alert(alert: Alert, issued_at: float, now: float) -> Alert | None:
    """Return the alert cleared by a newer certificate's checks; None if they do not cover it.

    A condition that is still present is reported again by its source.
    """
    classes = set(alert.classifications)
    if not alert.active or not classes & HOLDING or alert.last_at >= issued_at:
        return None
    if classes & PERSONAL or alert.id == MEMBERSHIP_DRIFT:
        return None
    return clear_alert(alert, now, "a certificate was issued since")


def level_source(
    alerts: Sequence[Alert],
    source: str,
    seen: Iterable[Signal],
    now: float,
    unread: Collection[str] = (),
) -> tuple[Alert, ...]:
    """Return the changes when `source` reports all active conditions: its other alerts are over.

    `unread`: targets of which it knows nothing now; their alerts stand. A condition that was
    reported before with the same text changes nothing.
    """
    by_key = {(a.id, a.target): a for a in alerts}
    changed = []
    standing = set()
    for signal in seen:
        key = (signal.id, signal.target)
        if key in standing:
            continue  # two rules report the same condition: the first one's text is used
        standing.add(key)
        old = by_key.get(key)
        if old is not None and old.active and not old.quiet_since and _same(old, signal):
            continue
        new = apply_signal(old, signal)
        if new is not None:
            changed.append(new)
    for alert in alerts:
        is_over = alert.source == source and (alert.id, alert.target) not in standing
        if is_over and alert.target not in unread and alert.active and not alert.quiet_since:
            over = Signal(
                node=alert.node,
                id=alert.id,
                target=alert.target,
                source=source,
                at=now,
                active=False,
            )
            new = apply_signal(alert, over)
            changed += [new] if new is not None else []
    return tuple(changed)


def bound_signal(known: Mapping[tuple[str, str, str], Alert], signal: Signal) -> Signal:
    """Return the report, or the one alert that replaces all reports over the limit."""
    key = (signal.node, signal.id, signal.target)
    if key in known or not signal.active or len(known) < ALERTS_MAX:
        return signal
    return signal.model_copy(
        update={
            "id": OVERFLOW,
            "target": "",
            "classifications": tuple(c for c in signal.classifications if c in REVOKING),
            "message": f"more than {ALERTS_MAX} alerts; the last was {signal.id[:64]}",
        }
    )


def find_override(alert: Alert, overrides: Iterable[Override], now: float) -> Override | None:
    """Return the override that suppresses this alert's effect now: the one that lasts longest."""
    fitting = [
        o
        for o in overrides
        if o.node == alert.node
        and o.id in (ANY, alert.id)
        and o.target in (ANY, alert.target)
        and o.made_at <= now < o.until
    ]
    return max(fitting, key=lambda o: o.until, default=None)


def list_effective(
    alerts: Iterable[Alert], overrides: Sequence[Override], now: float
) -> tuple[Alert, ...]:
    """Return the active alerts whose effect is not suppressed."""
    return tuple(a for a in alerts if a.active and find_override(a, overrides, now) is None)


def list_revocations(
    alerts: Iterable[Alert], overrides: Sequence[Override], issued_at: float, now: float
) -> tuple[Blocker, ...]:
    """Return why a certificate that was issued at `issued_at` is no longer valid; () if it is."""
    return tuple(
        Blocker(
            reason=_reason(a),
            subject=f"{a.id}/{a.target}" if a.target else a.id,
            detail=a.message or "reported without words",
            unblock="Look at `provisioner alert list`; the node is proved anew when it is back.",
        )
        for a in list_effective(alerts, overrides, now)
        if set(a.classifications) & REVOKING and a.last_at >= issued_at
    )


def _reason(alert: Alert) -> Reason:
    """The reason of an alert: drift is a change made by a person, a broken part is a fault."""
    classes = set(alert.classifications)
    faulty = Classification.HARDWARE in classes or not classes & _DRIFTING
    return Reason.CHECK_FAILED if faulty else Reason.DRIFT


def is_held(alerts: Iterable[Alert], overrides: Sequence[Override], now: float) -> bool:
    """Return whether the node must get no tenant."""
    return any(set(a.classifications) & HOLDING for a in list_effective(alerts, overrides, now))


def _fresh(signal: Signal) -> Alert:
    return Alert(
        node=signal.node,
        id=signal.id,
        target=signal.target,
        classifications=signal.classifications,
        message=signal.message,
        source=signal.source,
        since=signal.at,
        last_at=signal.at,
        raises=(signal.at,),
    )


def _over(alert: Alert, signal: Signal) -> Alert | None:
    if not alert.active or signal.at < alert.last_at:
        return None  # it is over already, or was reported to stand after this
    if set(alert.classifications) & PERSONAL:
        return None
    if alert.flapping:
        if alert.quiet_since:
            return None
        return alert.model_copy(update={"quiet_since": signal.at})
    return _cleared(alert, signal.at, signal.message or f"{signal.source} says that it is over")


def _cleared(alert: Alert, now: float, why: str) -> Alert:
    return alert.model_copy(update={"cleared_at": max(now, alert.since), "cleared_why": why})


def _same(alert: Alert, signal: Signal) -> bool:
    return (alert.message, alert.classifications, alert.source) == (
        signal.message,
        signal.classifications,
        signal.source,
    )
