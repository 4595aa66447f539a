"""Doors: paths of the API's server that an integration answers in a protocol of its own.

A door reads its own credentials, and gets nothing of the API: no caller, no role. The directory
that people are kept in is what the core offers to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from provisioner.model.directory import DirectoryEntry, EntryKind, ShutOut


@dataclass(frozen=True)
class DoorRequest:
    """A request below a door's prefix. Header names are lower case; `body` is bounded and whole."""

    verb: str
    path: str  # behind the prefix, "" or "/Groups/3f2a"
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    base: str  # URL of the prefix, as the client wrote it


@dataclass(frozen=True)
class DoorAnswer:
    """An answer. 401 counts as a failed login of the client's address."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Door(Protocol):
    @property
    def prefix(self) -> str:
        """Return the first part of its paths, "/scim/v2"; none of the API's own."""
        ...

    async def answer(self, request: DoorRequest) -> DoorAnswer: ...


class NameTaken(Exception):
    """Another person or group of the directory has this name."""


class Directory(Protocol):
    """People and groups. Writes are one transaction each, with a row of the journal."""

    async def get(self, kind: EntryKind, entry_id: str) -> DirectoryEntry | None:
        """Return an entry that is not gone; None: there is none."""
        ...

    async def list(self, kind: EntryKind, *, gone: bool = False) -> Sequence[DirectoryEntry]:
        """Return the entries, and those that are `gone`, in the order in which they were made."""
        ...

    async def find(self, kind: EntryKind, name: str) -> Sequence[DirectoryEntry]:
        """Return the entries with this name, or of people with it among their names."""
        ...

    async def count(self, kind: EntryKind) -> int: ...

    async def save(self, entry: DirectoryEntry, by: str, now: float) -> ShutOut:
        """Store an entry and, where a person is not active, end all that it had, at once.

        Raises `NameTaken`, and `StaleWrite` where the entry has changed since it was read.
        """
        ...
