"""Coolant at a host's leak detectors: which readings are dry, and the acts that a leak forbids.

Pure. A leak is over when the detectors are dry *and* a person cleared its alert: coolant that ran
off a detector is still in the chassis. A detector that was seen once and is not shown any more has
no reading: it counts as one that cannot be read, until a person accepts that it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from provisioner.model.alert import Alert, Classification, Signal
from provisioner.model.base import Record
from provisioner.model.cohort import Finding, Severity
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.attested_state import AttestedRoot, compare_roots
from provisioner.planning.watch.watch_rules import ITEMS_MAX, Found

# ------------------------------------------------------------------------------
# Rules for roots of trust that are asked again while a certificate is in force.
#
# Pure. Evidence that contradicts the certificate ends it at once. A proof that cannot be had ends
# it only after a time of grace, since a BMC may be busy, restart, or be asked by another client.


SOURCE = "watch.attestation"
DIFFERS = "AttestationDiffers"
UNPROVED = "AttestationUnproved"
# A BMC that computes the time of its reset from its uptime shows it some seconds off, and one that
# takes its time from NTP corrects it.
RESET_SLACK_S = 120.0
_MESSAGE_MAX = 400


class Renewal(Record):
    """The result of one question: by root of trust, what differs, and what is not proved.

    `roots`: the state that was shown.
    """

    differs: tuple[tuple[str, str], ...] = ()
    unproved: tuple[tuple[str, str], ...] = ()
    roots: tuple[AttestedRoot, ...] = ()

    @property
    def proved(self) -> bool:
        return not self.differs and not self.unproved


def judge_renewal(
    findings: Iterable[Finding],
    before: Sequence[AttestedRoot] | None,
    after: Sequence[AttestedRoot] | None,
) -> Renewal:
    """Return the result from the check's findings and from differences to the certified state.

    `before`: that state; None if it cannot be read any more: then the check alone judges `after`.
    """
    changes = compare_roots(before, after) if before and after else ()
    differs: dict[str, str] = {}
    unproved: dict[str, str] = {}
    for finding in findings:
        lies = finding.severity is Severity.ISOLATE
        (differs if lies else unproved).setdefault(finding.part, _describe(finding))
    for change in changes:
        if change.name not in unproved:  # values of an unproved report are no statement
            differs.setdefault(change.name, change.detail[:_MESSAGE_MAX])
    return Renewal(
        differs=tuple(differs.items()),
        unproved=tuple(unproved.items()),
        roots=tuple(after or ()),
    )


def confirm_renewal(first: Renewal, second: Renewal) -> Renewal:
    """Return the second result, where only differences count that the first one had too.

    A BMC hands out the last answer that any client asked for: one contradiction may be another's
    answer.
    """
    before = {name for name, _ in first.differs}
    return Renewal(
        differs=tuple(one for one in second.differs if one[0] in before),
        unproved=(*second.unproved, *(one for one in second.differs if one[0] not in before)),
        roots=second.roots,
    )


def list_conditions(
    renewal: Renewal, standing: Iterable[Alert], *, required: bool, now: float, grace_s: float
) -> tuple[Found, ...]:
    """Return the present conditions. `standing`: the node's alerts, which know since when."""
    since = {a.target: a.since for a in standing if a.active and a.id == UNPROVED}
    conditions = []
    for name, message in renewal.differs:
        conditions.append(_condition(DIFFERS, name, message, revokes=required))
    for name, message in renewal.unproved:
        over = now - since.get(name, now) >= grace_s
        conditions.append(_condition(UNPROVED, name, message, revokes=required and over))
    return tuple(conditions[:ITEMS_MAX])


def was_reset(before: Mapping[str, str] | None, after: Mapping[str, str], proved_at: float) -> bool:
    """Return whether a system or a manager was reset since it was read, or since the last proof.

    The values are `LastResetTime` by path. `before` None: nothing was read since the daemon began,
    so that the BMC's own time decides.
    """
    for path, shown in after.items():
        now = _parse_time(shown)
        if now is None:
            continue
        if before is None:
            if now > proved_at + RESET_SLACK_S:
                return True
            continue
        then = _parse_time(before.get(path, ""))
        if then is not None and abs(now - then) > RESET_SLACK_S:
            return True
    return False


def list_outdated(alerts: Sequence[Alert], issued_at: float) -> tuple[Alert, ...]:
    """Return the active alerts of this watch that are older than the certificate in force."""
    return tuple(a for a in alerts if a.active and a.source == SOURCE and a.last_at < issued_at)


def _condition(name: str, target: str, message: str, *, revokes: bool) -> Found:
    classes: tuple[Classification, ...] = (Classification.ATTESTATION,)
    if revokes:
        classes = (Classification.ATTESTATION, Classification.DRIFT)
    return Found(id=name, target=target, classifications=classes, message=message)


def _describe(finding: Finding) -> str:
    text = finding.detail
    if finding.measured:
        text += f": measured {finding.measured}"
    if finding.wanted:
        text += f", admitted {finding.wanted}"
    return text[:_MESSAGE_MAX]


def _parse_time(shown: str) -> float | None:
    """Return the seconds since 1970; None for text that is no time with an offset."""
    try:
        moment = datetime.fromisoformat(shown)
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


ALERT = "CoolantLeak"
CLASSIFICATIONS = (Classification.LEAK, Classification.HARDWARE, Classification.PREVENT_ALLOCATIONS)
_WET_STATES = frozenset({"warning", "critical"})  # in any case
_NOT_FITTED = "Absent"
_GONE = "it was seen before, and the BMC does not show it any more"
_NAMED_MAX = 4  # detectors in one sentence; the signals name all of them


def read_moisture(state: str | None, health: str | None, enabled: str | None) -> Moisture | None:
    """Return the reading of one detector; None if there is none in this place.

    `state` is DetectorState, which is OK, Warning, Critical, Unavailable or Absent (DMTF schema
    LeakDetector 1.4.0); trays print LeakDetected too (LambdaLabs/redfish_exporter,
    leak_detector_leak.json). `health` and `enabled` are Status.Health and Status.State.
    """
    word = (state or "").casefold()
    if word in _WET_STATES or (health or "").casefold() in _WET_STATES or "leak" in word:
        return Moisture.WET
    if _NOT_FITTED in (state, enabled):
        return None
    if word == "ok" and enabled in (None, "Enabled"):
        return Moisture.DRY
    return Moisture.UNREADABLE


def carry_detectors(
    before: Iterable[LeakDetector], now: Iterable[LeakDetector]
) -> tuple[LeakDetector, ...]:
    """Return the readings of `now`, and an unreadable one for each detector of `before` alone."""
    by_slot = {d.slot: d for d in now}
    for old in before:
        by_slot.setdefault(
            old.slot, old.model_copy(update={"moisture": Moisture.UNREADABLE, "detail": _GONE})
        )
    return tuple(by_slot[slot] for slot in sorted(by_slot))


def drop_accepted(
    detectors: Iterable[LeakDetector], alerts: Iterable[Alert]
) -> tuple[LeakDetector, ...]:
    """Return the detectors without those that are gone and whose alert a person cleared.

    Only a person clears an alert of coolant; the one that counts says that the detector is gone.
    """
    accepted = {a.target for a in alerts if a.id == ALERT and not a.active and _GONE in a.message}
    return tuple(d for d in detectors if d.detail != _GONE or d.slot not in accepted)


def list_signals(
    node: str, detectors: Iterable[LeakDetector], source: str, now: float
) -> tuple[Signal, ...]:
    """Return one report for each detector that is not dry."""
    return tuple(
        Signal(
            node=node,
            id=ALERT,
            target=d.slot,
            classifications=CLASSIFICATIONS,
            message=_describe_leaks(d),
            source=source,
            at=now,
        )
        for d in detectors
        if d.moisture is not Moisture.DRY
    )


def find_refusal(
    subject: str, detectors: Sequence[LeakDetector], alerts: Iterable[Alert]
) -> Blocker | None:
    """Return why the host gets no power, no boot and no image; None if it may.

    An override does not count: it suspends the effect of an alert, and says nothing about water.
    """
    clearing = (
        f"Look at the host; once it is dry, `provisioner alert clear {subject} {ALERT} "
        "--why REASON`."
    )
    if wet := [d for d in detectors if d.moisture is not Moisture.DRY]:
        return Blocker(
            reason=Reason.LEAK,
            subject=subject,
            detail="; ".join(f"{d.slot}: {_describe_leaks(d)}" for d in wet[:_NAMED_MAX]),
            unblock=clearing,
        )
    if not (names := _name_leaks(alerts)):
        return None
    return Blocker(
        reason=Reason.LEAK,
        subject=subject,
        detail=f"nothing is wet now, and no person has confirmed it since the leak at {names}",
        unblock=clearing,
    )


def find_recorded_refusal(subject: str, alerts: Iterable[Alert]) -> Blocker | None:
    """Return why a host whose detectors have no power gets none; None if no leak is on record."""
    if not (names := _name_leaks(alerts)):
        return None
    return Blocker(
        reason=Reason.LEAK,
        subject=subject,
        detail=f"a leak at {names} is on record, and nothing can be read without power",
        unblock=f"Look at the host; once it is dry, `provisioner alert clear {subject} {ALERT} "
        "--why REASON`.",
    )


def _name_leaks(alerts: Iterable[Alert]) -> str:
    standing = [a for a in alerts if a.active and Classification.LEAK in a.classifications]
    return ", ".join(a.target for a in standing[:_NAMED_MAX])


def _describe_leaks(detector: LeakDetector) -> str:
    if detector.moisture is Moisture.WET:
        return f"the detector reports coolant ({detector.detail})"
    return f"the detector cannot be read ({detector.detail})"
