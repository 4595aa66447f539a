"""Replies that are not JSON, as text for people."""

from __future__ import annotations

import re

from provisioner.ports.wire import Reply

READ_MAX_BYTES = 65_536
SAID_MAX = 200
_NOT_SHOWN = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def plain_text(reply: Reply) -> str:
    """Return the text of the body without markup, on one short line; "" if there is none."""
    text = reply.body[:READ_MAX_BYTES].decode("utf-8", "replace")
    if "<" in text[:SAID_MAX]:
        text = _NOT_SHOWN.sub(" ", text)
    line = " ".join(text.split())
    return "".join(c for c in line if c.isprintable())[:SAID_MAX].rstrip()


def status_words(reply: Reply) -> str:
    """Return "status 403: TEXT" with the text of the body, or the status alone where it is
    empty.
    """
    return ": ".join(filter(None, (f"status {reply.status}", plain_text(reply))))
