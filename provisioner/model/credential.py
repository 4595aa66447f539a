"""The standing of a stored login: its age, and why it is to be changed. No record has a secret."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import InstantOrNone


class RotationCause(StrEnum):
    """Why a password is changed. The order is that of urgency."""

    EMERGENCY = "emergency"  # a person asked for all of them, at once
    PERSON_LEFT = "person_left"  # a person who was shown it left
    SHOWN = "shown"  # a person was shown it, and the time to use it is over
    REQUESTED = "requested"  # a person asked for it
    TENANT = "tenant"  # the host was with a tenant
    SCHEDULE = "schedule"  # it reached its age


URGENCY = {cause: place for place, cause in enumerate(RotationCause, start=1)}


class CredentialStanding(Record):
    """One login of a BMC, by the name that it has in the vault."""

    name: str = Field(description="Node and BMC: su0-n03/host.")
    node: str = Field(description="The node that it belongs to.")
    changed_at: InstantOrNone = Field(
        0.0, description="When its password was last changed; null: before that was recorded."
    )
    due_at: InstantOrNone = Field(0.0, description="When an event demands its change; null: none.")
    cause: RotationCause | None = Field(None, description="That event.")
    shown_to: tuple[str, ...] = Field(
        (), description="People who were shown the password in force."
    )
    failures: int = Field(0, description="Attempts since the last change that failed.")
    retry_at: InstantOrNone = Field(0.0, description="No further attempt before this.")
    problem: str = Field("", description="Why the last attempt failed.")


class DueLogin(NamedTuple):
    """A login to change now: thousands are listed at each tick of an emergency."""

    name: str
    node: str
    cause: RotationCause | None  # the event that demands it; None: its age


class CredentialSummary(Record):
    """All logins together."""

    count: int = Field(description="Logins of BMCs that the daemon keeps.")
    unknown_age: int = Field(description="Of these, changed before changes were recorded.")
    due: int = Field(description="Of these, an event demands a change now.")
    failing: int = Field(description="Of these, the last attempt failed.")
    shown: int = Field(description="Of these, a person was shown the password in force.")
    oldest_at: InstantOrNone = Field(0.0, description="The oldest recorded change; null: none.")
