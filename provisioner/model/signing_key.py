"""The public half of a key that signs certificates."""

from __future__ import annotations

from provisioner.model.base import Record


class SigningKey(Record):
    """One key that signs or signed here. `signs`: it is the one that signs now."""

    key_id: str
    public: bytes
    created_at: float
    signs: bool
    withdrawn_at: float | None
