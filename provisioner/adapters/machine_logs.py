"""Files with the system logs of machines: those of the consoles, with a message in each line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.model.integrations.audit_export import SyslogLine, SyslogMessage
from provisioner.planning.watch.log_text import LineMeter

FOLDER = "machine-logs"  # in the data directory


class MachineLogs:
    """The stored messages of all nodes; of each node at most so many bytes."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._files = ConsoleFiles(directory, bytes_max, FOLDER)

    async def append(self, node: str, rows: Sequence[str], at: float) -> None:
        """Store messages that `encode` wrote, received at one time."""
        await self._files.append(node, rows, at)

    async def list_lines(self, node: str, after: int, most: int) -> Sequence[SyslogLine]:
        """Return the messages after a number; for `after` -1 the last ones."""
        lines = await self._files.list_lines(node, after, most)
        return [_decode(line.seq, line.at, line.text) for line in lines]

    async def prune(self, before: float) -> None:
        """Remove the days that ended before a time."""
        await self._files.prune(before)


class MessageMeter:
    """Lets so many messages a minute pass, and notes how many did not."""

    def __init__(self, per_minute: int) -> None:
        self._meter = LineMeter(per_minute)

    def skips(self, now: float) -> bool:
        """Return whether a message is too many in this minute, before anything looks into it."""
        return self._meter.skips(now)

    def admit(self, row: str, now: float) -> list[str]:
        """Return the rows to store for one that came: with a note, or none."""
        admitted = self._meter.admit_lines((row,), now)
        return [text if text == row else encode(_build_note(text)) for text in admitted]


def encode(message: SyslogMessage) -> str:
    fields = (message.facility, message.severity, message.sent_at, message.program, message.text)
    return json.dumps(fields, ensure_ascii=False)


def _build_note(text: str) -> SyslogMessage:
    return SyslogMessage(facility="syslog", severity="warning", program="provisioner", text=text)


def _decode(seq: int, at: float, row: str) -> SyslogLine:
    """Return a stored row; one that is damaged says so."""
    names = ("facility", "severity", "sent_at", "program", "text")
    try:
        fields = dict(zip(names, json.loads(row), strict=True))
        return SyslogLine(seq=seq, at=at, **fields)
    except (ValueError, TypeError, ValidationError):
        note = _build_note("a stored line is damaged")
        return SyslogLine(seq=seq, at=at, **note.model_dump())
