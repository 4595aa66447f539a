"""Cursors: the end of a page of a list, as text that a client sends back unread."""

from __future__ import annotations

import base64
import binascii
import json

from provisioner.api.problem import build_refusal


def encode_cursor(*place: str | int | float) -> str:
    """Return the place as text."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def decode_cursor(text: str, *kinds: type) -> tuple[str | int | float, ...] | None:
    """Return the place in a cursor; None for "". Raises Refused for a cursor of another form."""
    if not text:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        values = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        values = None
    good = isinstance(values, list) and len(values) == len(kinds)
    if not good or not all(type(v) is k for v, k in zip(values or [], kinds, strict=True)):
        raise build_refusal(
            400, "cursor", "This is no cursor", "Use `next` of a page, or begin without one."
        )
    return tuple(values or ())
