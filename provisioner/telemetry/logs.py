"""The log: lines for people or JSON for machines, with node, operation and step, without secrets.

Two rules hold for every line, whoever wrote it: what looks like a secret is struck out, and nothing
that a device said breaks a line or moves a terminal's cursor.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, TextIO

from provisioner.runtime.log_context import named

STRUCK = "***"
LINE_MAX = 16_384  # characters of a message; a traceback has its own
# Secrets never reach the log by intent (`ports.Secret` shows none). This is the second fence, for
# what a library or a device says: our tokens, credentials of HTTP, and values beside such names.
_SECRETS = (
    re.compile(r"prv_[A-Za-z0-9_-]{20,}"),
    re.compile(r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?<=://)[^/\s:@]{1,128}:[^/\s@]{1,256}(?=@)"),
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
)
_NAMED = re.compile(
    r"""(?ix) (["']?\b[\w-]{0,32}(?:password|passwd|secret|x-auth-token|api[_-]?key|authorization)
    \w{0,16}["']?\s*[:=]\s*) ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;}"']+ )"""
)


def scrubbed(said: str) -> str:
    """A text of a log without what looks like a secret."""
    for pattern in _SECRETS:
        said = pattern.sub(STRUCK, said)
    return _NAMED.sub(lambda m: m.group(1) + STRUCK, said)


def _plain(said: str) -> str:
    """On one line, and no terminal obeys it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in said[:LINE_MAX])


class TextLines(logging.Formatter):
    """`2026-11-21 12:00:00,000 INFO n07#3: message`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and what it is about before the message."""
        about = " ".join(_about(record).values())
        place = f" [{about}]" if about else ""
        head = f"{self.formatTime(record)} {record.levelname}"
        line = f"{head}{_plain(place)} {_plain(scrubbed(record.getMessage()))}"
        trace = _trace(self, record)
        if not trace:
            return line
        lines = [_plain(one) for one in scrubbed(trace).splitlines()]
        return "\n".join([line, *(f"    {one}" for one in lines)])


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message; node, operation, step; exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The object; its strings are escaped as RFC 8259 asks, so that it is one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, str] = {"at": at, "level": record.levelname, "logger": record.name}
        told |= {name: scrubbed(value) for name, value in _about(record).items()}
        told["message"] = scrubbed(record.getMessage())[:LINE_MAX]
        trace = _trace(self, record)
        if trace:
            told["exception"] = scrubbed(trace)
        return json.dumps(told)


class _About(logging.Filter):
    """Writes down what a line is about where it is made: the task may be another one later."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.about = dict(named())
        return True


def set_up(
    kind: Literal["text", "json"],
    stream: TextIO | None = None,
    level: int = logging.INFO,
    quiet: Iterable[str] = ("asyncssh",),
) -> logging.Handler:
    """Every log of this process goes to `stream` (standard error) from now on; its handler.

    `quiet`: libraries that tell every connection at INFO.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    handler.addFilter(_About())
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)
    return handler


def _about(record: logging.LogRecord) -> dict[str, str]:
    found = getattr(record, "about", None)
    return found if isinstance(found, dict) else {}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""
