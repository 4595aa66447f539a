"""Text of a serial console and of logs, made fit to be kept and shown. Pure.

A console shows the words of any program in the host, so they are hostile: escape sequences could
write to a reader's terminal, an endless line or a flood could fill a disk, and a boot may print
passwords. What is kept has none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
