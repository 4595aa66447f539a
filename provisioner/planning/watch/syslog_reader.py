"""Reads syslog messages of machines: RFC 5424, and RFC 3164 as rsyslog and switches write it. Pure.

Every byte is hostile. A message without a valid priority is none; a header that cannot be read
makes the whole rest the text (RFC 3164, 4.3.3), so that nothing of a broken sender is lost.

source: RFC 5424 (6.1 to 6.3), RFC 3164 (4.1), RFC 5425 (4.3), RFC 6587 (3.4.1, 3.4.2); rsyslog
8.2302 with RSYSLOG_ForwardFormat, RSYSLOG_TraditionalForwardFormat and RSYSLOG_SyslogProtocol23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from provisioner.model.integrations.audit_export import FACILITIES, SEVERITIES, SyslogMessage
from provisioner.model.times.instant import parse_instant

# ------------------------------------------------------------------------------
# Text of a serial console, made fit to be kept and shown. Pure.
#
# A console shows the words of any program in the host, so they are hostile: escape sequences could
# write to a reader's terminal, an endless line or a flood could fill a disk, and a boot may print
# passwords. What is kept has none of these.


LINE_MAX = 1000  # characters of one line; a kernel's lines have 1,024 bytes at most
SKIPPED = "[{} lines were skipped: more than {} in a minute]"
# ECMA-48: CSI, then strings (DCS, SOS, OSC, PM, APC) to their end, then two-byte escapes; C1 too
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]"
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]{0,16}[0-~]?"
)


class LineReader:
    """Cuts a stream of bytes into clean lines; an endless line is cut at its limit."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that are complete with this piece, without empty ones."""
        self._rest += piece.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        *whole, self._rest = self._rest.split("\n")
        if len(self._rest) > 4 * LINE_MAX:
            whole = [*whole, self._rest]
            self._rest = ""
        return [line for raw in whole if (line := clean_line(raw))]


def clean_line(raw: str) -> str:
    """Return the printable text of a line, without escape sequences and controls."""
    plain = _ESCAPE.sub("", raw).expandtabs(8)
    return "".join(c for c in plain if c.isprintable())[:LINE_MAX].rstrip()


class LineMeter:
    """Lets so many lines a minute pass; the others are counted, and named when the minute is over.

    A kernel that prints a trace for each CPU gives some thousand lines; a loop gives millions.
    """

    def __init__(self, lines_per_minute: int) -> None:
        self._most = lines_per_minute
        self._began = float("-inf")
        self._passed = self._skipped = 0

    def skips(self, now: float) -> bool:
        """Return whether a line is too many in this minute, and count it if so."""
        if now - self._began >= 60.0 or self._passed < self._most:
            return False
        self._skipped += 1
        return True

    def admit_lines(self, lines: Iterable[str], now: float) -> list[str]:
        """Return the lines that are kept, with a note on those of the last minute that were not."""
        kept_lines: list[str] = []
        if now - self._began >= 60.0:
            if self._skipped:
                kept_lines.append(SKIPPED.format(self._skipped, self._most))
            self._began = now
            self._passed = 0
            self._skipped = 0
        for line in lines:
            if self._passed < self._most:
                self._passed += 1
                kept_lines.append(line)
            else:
                self._skipped += 1
        return kept_lines


# ------------------------------------------------------------------------------
# Removal of secrets from text before it leaves the site: known ones by value, others by pattern.
#
# Removing one word too many is better than leaking a password. Patterns are bounded, so that the
# cost of a hostile log is linear in its length.


REMOVED = "[removed]"
SHORTEST = 6  # characters of a known secret: a shorter one would remove ordinary words too
_NAMES = (
    r"[\w.-]{0,40}(?:password|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key|"
    r"credential|cookie|community)[\w.-]{0,40}"
)
_PATTERNS = (
    # name and value: JSON, YAML, "key=value", also where JSON was quoted within JSON
    re.compile(
        rf'(?i)(\\?"?\b{_NAMES}\\?"?\s{{0,4}}[:=]\s{{0,4}})'
        r'(\\?"[^"\\\r\n]{1,4096}\\?"|[^\s",;&}\]\\]{1,4096})'
    ),
    re.compile(r'(?i)(\b(?:proxy-)?authorization\\?"?\s{0,4}[:=]\s{0,4}\\?"?)([^"\\\r\n]{1,4096})'),
    re.compile(r"(?i)(\b(?:bearer|basic)\s{1,4})([A-Za-z0-9+/_.~=-]{8,4096})"),
    re.compile(r"([a-z][a-z0-9+.-]{1,15}://)([^\s/@:\"]{1,256}:[^\s/@\"]{1,256})(?=@)"),
    re.compile(r"()(\beyJ[\w-]{8,4096}\.[\w-]{8,8192}\.[\w-]{8,4096})"),  # JSON Web Token
    re.compile(r"()(\$(?:1|2[abxy]?|5|6|7|y|gy)\$[./A-Za-z0-9=,$-]{20,256})"),  # crypt(5)
    re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)((?:(?!-----END).){1,20000})", re.DOTALL),
)


def scrub_text(text: str, secrets: Iterable[str] = ()) -> tuple[str, int]:
    """Return the text without secrets, and the number of places that were removed."""
    count = 0
    for secret in sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True):
        count += text.count(secret)
        text = text.replace(secret, REMOVED)
    for pattern in _PATTERNS:
        text, removed = pattern.subn(_without, text)
        count += removed
    return text, count


def _without(found: re.Match[str]) -> str:
    value = found.group(2)
    quote = '\\"' if value.startswith('\\"') else '"' if value.startswith('"') else ""
    return f"{found.group(1)}{quote}{REMOVED}{quote}"


# ------------------------------------------------------------------------------
# Messages and their frames.


FRAME_MAX = 65_536  # bytes of one message on a stream
COUNT_MAX = 7  # bytes of a count of octets, with its space
PROGRAM_MAX = 48  # characters (RFC 5424, 6.2.5)
_COUNT = re.compile(rb"[1-9][0-9]{0,5} ")
_BLANK = re.compile(rb"[\r\n]*")
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
