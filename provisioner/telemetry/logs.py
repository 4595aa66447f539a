"""The log: lines for people or JSON for machines, with node, operation and step, without secrets.

Two rules hold for every line, whichever code wrote it: text that looks like a secret is replaced,
and no text of a device breaks a line or moves a terminal's cursor.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, TextIO

from provisioner.runtime.log_context import get_log_context

STRUCK = "***"
LINE_MAX = 16_384  # characters of a message; a traceback has its own
# Secrets never reach the log by intent (`ports.Secret` prints none). These patterns are a second
# barrier for texts of libraries and devices: our tokens, HTTP credentials, and values beside names
# such as "password".
_SECRETS = (
    re.compile(r"pr[vs]_[A-Za-z0-9_-]{20,}"),
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


def scrub(text: str) -> str:
    """Return a log text without the parts that look like a secret."""
    for pattern in _SECRETS:
        text = pattern.sub(STRUCK, text)
    return _NAMED.sub(lambda m: m.group(1) + STRUCK, text)


def _escape_line(text: str) -> str:
    """Return a text on one line, without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:LINE_MAX])


class TextLines(logging.Formatter):
    """`2026-11-21 12:00:00,000 INFO n07#3: message`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, with its subject before the message."""
        about = " ".join(_read_context(record).values())
        place = f" [{about}]" if about else ""
        head = f"{self.formatTime(record)} {record.levelname}"
        line = f"{head}{_escape_line(place)} {_escape_line(scrub(record.getMessage()))}"
        trace = _format_trace(self, record)
        if not trace:
            return line
        lines = [_escape_line(one) for one in scrub(trace).splitlines()]
        return "\n".join([line, *(f"    {one}" for one in lines)])


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message; node, operation, step; exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; its strings are escaped as RFC 8259 requires, so it is one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, str] = {"at": at, "level": record.levelname, "logger": record.name}
        entry |= {name: scrub(value) for name, value in _read_context(record).items()}
        entry["message"] = scrub(record.getMessage())[:LINE_MAX]
        trace = _format_trace(self, record)
        if trace:
            entry["exception"] = scrub(trace)
        return json.dumps(entry)


class _About(logging.Filter):
    """Stores a line's subject at its creation, because the task may have another one later."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.about = dict(get_log_context())
        return True


def set_up_logging(
    kind: Literal["text", "json"],
    stream: TextIO | None = None,
    level: int = logging.INFO,
    quiet: Iterable[str] = ("asyncssh",),
) -> logging.Handler:
    """Send every log of this process to `stream` (standard error) and return the handler.

    `quiet` names libraries that log every connection at INFO.
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


def _read_context(record: logging.LogRecord) -> dict[str, str]:
    context = getattr(record, "about", None)
    return context if isinstance(context, dict) else {}


def _format_trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""
