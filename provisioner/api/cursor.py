"""Cursors: where a page of a list ended, as text that a client hands back unread."""

from __future__ import annotations

import base64
import binascii
import json

from provisioner.api.problem import no


def cursor(*place: str | int | float) -> str:
    """The place as text."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place(text: str, *kinds: type) -> tuple[str | int | float, ...] | None:
    """The place in a cursor; None for "". Refused if it is none of ours."""
    if not text:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        found = None
    good = isinstance(found, list) and len(found) == len(kinds)
    if not good or not all(type(v) is k for v, k in zip(found or [], kinds, strict=True)):
        raise no(400, "cursor", "This is no cursor", "Use `next` of a page, or begin without one.")
    return tuple(found or ())
