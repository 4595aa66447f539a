"""Takes secrets out of text before it leaves the house: known ones by value, others by their looks.

Rule: rather one word too many than a password. Patterns are bounded, so that a hostile log costs no
more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

REMOVED = "[removed]"
SHORTEST = 6  # characters of a known secret: a shorter one would take ordinary words with it
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


def scrub(text: str, secrets: Iterable[str] = ()) -> tuple[str, int]:
    """The text without secrets, and how many places were taken out."""
    count = 0
    for known in sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True):
        count += text.count(known)
        text = text.replace(known, REMOVED)
    for pattern in _PATTERNS:
        text, found = pattern.subn(_without, text)
        count += found
    return text, count


def _without(found: re.Match[str]) -> str:
    value = found.group(2)
    quote = '\\"' if value.startswith('\\"') else '"' if value.startswith('"') else ""
    return f"{found.group(1)}{quote}{REMOVED}{quote}"
