"""What every record has in common: frozen, closed, and the same digest for the same content."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A value that never changes; a change is a new record (`model_copy(update=...)`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def digest(self) -> str:
        """SHA-256 over the canonical JSON, as lowercase hex: equal content, equal digest."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
