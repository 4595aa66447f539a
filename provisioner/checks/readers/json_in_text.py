"""Finds the JSON document in a tool's output, among warnings printed before and after it.

DCGM's own tests contain such an output of nvbandwidth, with braces in the warnings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Unreadable

BEGINS_MAX = 64  # places where a document may begin; few warnings start a line with a brace
_DECODER = json.JSONDecoder()


def find_documents(text: str, subject: str) -> Iterator[Mapping[str, Any]]:
    """Yield every JSON object that begins a line of the text, one after the other."""
    at = 0
    begins = 0
    while (at := _find_begin(text, at)) >= 0:
        begins += 1
        if begins > BEGINS_MAX:
            raise Unreadable(f"{subject}: more than {BEGINS_MAX} places where JSON could begin")
        try:
            document, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        yield document
        at = end


def find_document(text: str, *keys: str, subject: str) -> Mapping[str, Any]:
    """Return the one object that has one of these keys; `Unreadable` for none or several."""
    matches = [d for d in find_documents(text, subject) if any(key in d for key in keys)]
    if not matches and "{" not in text:
        start = " ".join(text[:200].split())
        raise Unreadable(f"{subject}: no JSON in it: {start}")
    if len(matches) != 1:
        raise Unreadable(f"{subject}: {len(matches)} documents in it, or one that is cut short")
    return matches[0]


def _find_begin(text: str, at: int) -> int:
    """Return where the next line that starts with a brace begins; -1 if there is none."""
    while (at := text.find("{", at)) >= 0:
        line = text.rfind("\n", 0, at) + 1
        if not text[line:at].strip():
            return at
        following = text.find("\n", at)
        if following < 0:
            return -1
        at = following
    return -1
