"""Removal of secrets from text before it leaves the site: known ones by value, others by pattern.

Removing one word too many is better than leaking a password. Patterns are bounded, so that the cost
of a hostile log is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
