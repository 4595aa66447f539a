"""The party that an open case waits for: a technician, its tenant, or a person. Pure."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.case import Case, Service, Stage


class Party(StrEnum):
    """The party whose turn it is."""

    TECHNICIAN = "technician"  # works on the hardware
    TENANT = "tenant"  # may agree to a drain, or defer it
    PERSON = "person"  # decides where no rule does


def find_party(case: Case, now: float, confidence_min: float) -> Party | None:
    """Return the party that a case waits for, or None while it goes on by itself.

    `confidence_min`: the site's; below it a person diagnoses before a part is replaced.
    """
    if case.stage is Stage.HARDWARE:
        suspect = case.suspect
        clear = suspect is not None and suspect.confidence >= confidence_min
        return Party.TECHNICIAN if clear and case.ticket is not None else Party.PERSON
    if case.stage is Stage.OPENED and case.service is Service.DRAIN and case.drain_at > now:
        return Party.TENANT
    difference = case.difference
    if case.stage is Stage.RETURNING and difference is not None:
        return Party.PERSON if difference.wrong or difference.missing else None
    return None


def describe_wait(case: Case) -> str:
    """Return the work or the condition in one line."""
    if case.ticket is not None and case.ticket.work:
        return case.ticket.work
    return case.note or case.reason
