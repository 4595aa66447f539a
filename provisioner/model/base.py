"""The base of all records: frozen, closed, with the same digest for the same content."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A value that never changes; to change it, make a new record (`model_copy(update=...)`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)  # at the first use

    def digest(self) -> str:
        """The SHA-256 of the canonical JSON in lowercase hex; equal content has an equal digest."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
