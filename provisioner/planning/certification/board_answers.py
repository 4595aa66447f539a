"""Fields of an agent's answers about its TPM: hostile text, read within bounds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

_FIELD_MAX = 2 * 1024 * 1024  # characters in Base64; an event log may have 1 MiB


def decode_field(value: object) -> bytes | None:
    """Return the bytes of a field in Base64; None for anything else."""
    if not isinstance(value, str) or len(value) > _FIELD_MAX:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def read_detail(answer: Mapping[object, object]) -> str:
    """Return the agent's reason, printable and short."""
    detail = answer.get("detail")
    text = detail if isinstance(detail, str) else "without a word"
    return "".join(c if c.isprintable() else " " for c in text[:200])
