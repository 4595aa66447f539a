"""The state of a BIOS in few bytes: which attributes it has, and a digest of each value."""

from __future__ import annotations

from provisioner.model.base import Record


class BiosState(Record):
    """Attributes that can be written, by name, and a digest of each value, in the same order."""

    names: tuple[str, ...]
    digests: tuple[str, ...]
    waiting: tuple[str, ...] = ()  # attributes that change at the next boot
