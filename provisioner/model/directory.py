"""People and groups as a directory outside tells of them (SCIM), and who of them is shut out.

A person who is not `active` there has no session, no token and no approval here. The names are
those by which the person may come: its name and id there, its addresses; compared without case.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from provisioner.model.base import Record


class EntryKind(StrEnum):
    PERSON = "person"
    GROUP = "group"


class Standing(StrEnum):
    ACTIVE = "active"
    INACTIVE = "inactive"
    GONE = "gone"  # deleted there: only its names are left, which open nothing


class DirectoryEntry(Record):
    """One person or group. Times are Unix seconds."""

    id: str  # ours, never used again
    kind: EntryKind
    name: str  # unique among those of its kind, compared without case
    names: tuple[str, ...] = ()  # of a person: all by which it may come, lower case
    former: tuple[str, ...] = ()  # that it had before: they open nothing once it is not active
    standing: Standing = Standing.ACTIVE
    body: dict[str, Any] = Field(default_factory=dict)  # as the directory told it
    made_at: float
    changed_at: float
    generation: int = 0  # grows by one with every change


class ShutOut(Record):
    """What ended when a person was deactivated or deleted."""

    sessions: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    requests: tuple[int, ...] = ()  # changes of the person that waited for an approval
