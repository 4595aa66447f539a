"""Reads syslog messages of machines: RFC 5424, and RFC 3164 as rsyslog and switches write it. Pure.

Every byte is hostile. A message without a valid priority is none; a header that cannot be read
makes the whole rest the text (RFC 3164, 4.3.3), so that nothing of a broken sender is lost.

source: RFC 5424 (6.1 to 6.3), RFC 3164 (4.1), RFC 5425 (4.3), RFC 6587 (3.4.1, 3.4.2); rsyslog
8.2302 with RSYSLOG_ForwardFormat, RSYSLOG_TraditionalForwardFormat and RSYSLOG_SyslogProtocol23.
"""

from __future__ import annotations

import re

from provisioner.model.integrations.audit_export import FACILITIES, SEVERITIES, SyslogMessage
from provisioner.model.times.instant import parse_instant
from provisioner.planning.watch.log_text import clean_line

FRAME_MAX = 65_536  # bytes of one message on a stream
COUNT_MAX = 7  # bytes of a count of octets, with its space
_COUNT = re.compile(rb"[1-9][0-9]{0,5} ")
_BLANK = re.compile(rb"[\r\n]*")
PROGRAM_MAX = 48  # characters (RFC 5424, 6.2.5)
_PRIORITY = re.compile(r"<(0|[1-9][0-9]{0,2})>", re.ASCII)
_NEW_HEADER = re.compile(  # version, time, host, program, process, kind of message
    r"1 (\S{1,64}) \S{1,255} (\S{1,48}) \S{1,128} \S{1,32} ?", re.ASCII
)
_DATA_ELEMENT = re.compile(r'\[(?:[^\]"\\]|"(?:[^"\\]|\\.)*")*\]')
_OLD_HEADER = re.compile(  # time, host, tag; the kernel's lines and those of a program
    r"(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}|(\d{4}-\d\d-\d\dT\S{9,32})) \S{1,255} "
    r"([^\s:\[]{1,128})(?:\[[^\]\s]{0,128}\])?:? ?",
    re.ASCII,
)


class NotASyslogStream(ValueError):
    """The bytes of a stream are framed in no known way, or a message is too long."""


class FrameReader:
    """Cuts a stream into messages, by a count of octets before each, or by line ends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the messages that are complete with this piece. Raises NotASyslogStream."""
        data = self._rest + piece
        frames: list[bytes] = []
        at = 0
        while (cut := find_frame(data, at)) is not None:
            begin, end, at = cut
            frames.append(data[begin:end])
        self._rest = data[at:].lstrip(b"\r\n")
        if len(self._rest) > FRAME_MAX + COUNT_MAX:
            raise NotASyslogStream(f"a message has more than {FRAME_MAX} bytes")
        return frames


def find_frame(data: bytes, at: int = 0) -> tuple[int, int, int] | None:
    """Return begin and end of the message at a place, and the place after it; None: not whole."""
    at = _BLANK.match(data, at).end()  # type: ignore[union-attr] # it always matches
    counted = _COUNT.match(data, at)
    if counted is not None:
        length = int(counted[0])
        if length > FRAME_MAX:
            raise NotASyslogStream(f"a message of {length} bytes is announced")
        end = counted.end() + length
        return None if len(data) < end else (counted.end(), end, end)
    if at < len(data) and data[at : at + 1] not in b"<0123456789":
        raise NotASyslogStream("neither a count of octets nor a priority begins a message")
    end = data.find(b"\n", at)
    return None if end < 0 else (at, end, end + 1)


def read_message(frame: bytes) -> SyslogMessage | None:
    """Return a message of one frame or datagram; None if it has no valid priority."""
    text = frame[:FRAME_MAX].decode("utf-8", "replace")
    priority = _PRIORITY.match(text)
    if priority is None or int(priority[1]) >= 8 * len(FACILITIES):
        return None
    facility, severity = divmod(int(priority[1]), 8)
    sent_at, program, content = _read_header(text[priority.end() :])
    return SyslogMessage(
        facility=FACILITIES[facility],
        severity=SEVERITIES[severity],
        sent_at=sent_at,
        program=clean_line(program)[:PROGRAM_MAX],
        text=clean_line(content.replace("\n", " ")),
    )


def _read_header(text: str) -> tuple[float, str, str]:
    """Return the time, 0.0 where it is not certain, the program, and the message."""
    header = _NEW_HEADER.match(text)
    if header is not None:
        content = _skip_data(text[header.end() :])
        if content is not None:
            program = "" if header[2] == "-" else header[2]
            return _read_time(header[1]), program, content
    header = _OLD_HEADER.match(text)
    if header is not None:
        return _read_time(header[1] or ""), header[2], text[header.end() :]
    return 0.0, "", text


def _skip_data(text: str) -> str | None:
    """Return the text after the structured data; None if that is broken."""
    if text.startswith("-"):
        rest = text[1:]
    else:
        at = 0
        while (element := _DATA_ELEMENT.match(text, at)) is not None:
            at = element.end()
        if at == 0:
            return None
        rest = text[at:]
    if rest and not rest.startswith(" "):
        return None
    return rest[1:].removeprefix("\ufeff")


def _read_time(text: str) -> float:
    try:
        return parse_instant(text)
    except ValueError:
        return 0.0
