"""An answer that is no JSON, in words for a person."""

from __future__ import annotations

import re

from provisioner.ports.wire import Reply

READ_MAX_BYTES = 65_536
SAID_MAX = 200
_NOT_SHOWN = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def plain_text(reply: Reply) -> str:
    """Return what the body says without markup, on one short line; "" if it says nothing."""
    text = reply.body[:READ_MAX_BYTES].decode("utf-8", "replace")
    if "<" in text[:SAID_MAX]:
        text = _NOT_SHOWN.sub(" ", text)
    words = " ".join(text.split())
    return "".join(c for c in words if c.isprintable())[:SAID_MAX].rstrip()


def status_words(reply: Reply) -> str:
    """Return "status 403: what the body says", or the status alone where the body is empty."""
    return ": ".join(filter(None, (f"status {reply.status}", plain_text(reply))))
