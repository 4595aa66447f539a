"""Coolant at a host's leak detectors: which readings are dry, and the acts that a leak forbids.

Pure. A leak is over when the detectors are dry *and* a person cleared its alert: coolant that ran
off a detector is still in the chassis. A detector that was seen once and is not shown any more has
no reading: it counts as one that cannot be read, until a person accepts that it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.model.alert import Alert, Classification, Signal
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Reason

ALERT = "CoolantLeak"
CLASSIFICATIONS = (
    Classification.LEAK,
    Classification.HARDWARE,
    Classification.PREVENT_ALLOCATIONS,
)
_WET_STATES = frozenset({"Warning", "Critical"})
_NOT_FITTED = "Absent"
_GONE = "it was seen before, and the BMC does not show it any more"
_NAMED_MAX = 4  # detectors in one sentence; the signals name all of them


def read_moisture(state: str | None, health: str | None, enabled: str | None) -> Moisture | None:
    """Return the reading of one detector; None if there is none in this place.

    `state` is DetectorState, which is OK, Warning, Critical, Unavailable or Absent (DMTF schema
    LeakDetector 1.4.0); trays print LeakDetected too (LambdaLabs/redfish_exporter,
    leak_detector_leak.json). `health` and `enabled` are Status.Health and Status.State.
    """
    if health in _WET_STATES or state in _WET_STATES or "leak" in (state or "").lower():
        return Moisture.WET
    if _NOT_FITTED in (state, enabled):
        return None
    if state == "OK" and enabled in (None, "Enabled"):
        return Moisture.DRY
    return Moisture.UNREADABLE


def carry_detectors(
    before: Iterable[LeakDetector], now: Iterable[LeakDetector]
) -> tuple[LeakDetector, ...]:
    """Return the readings of `now`, and an unreadable one for each detector of `before` alone."""
    by_slot = {d.slot: d for d in now}
    for old in before:
        by_slot.setdefault(
            old.slot,
            old.model_copy(update={"moisture": Moisture.UNREADABLE, "detail": _GONE}),
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
            message=_describe(d),
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
            detail="; ".join(f"{d.slot}: {_describe(d)}" for d in wet[:_NAMED_MAX]),
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


def _describe(detector: LeakDetector) -> str:
    if detector.moisture is Moisture.WET:
        return f"the detector reports coolant ({detector.detail})"
    return f"the detector cannot be read ({detector.detail})"
