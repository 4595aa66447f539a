"""Finds the JSON document of a tool among the warnings that it prints before and after it.

DCGM's own tests have such an output of nvbandwidth, with braces in the warnings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Unreadable

BEGINS_MAX = 64  # places where a document may begin; warnings with a brace at their start are few
_DECODER = json.JSONDecoder()


def documents(text: str, what: str) -> Iterator[Mapping[str, Any]]:
    """Every JSON object that begins a line of the text, one after the other."""
    at, begins = 0, 0
    while (at := _begin(text, at)) >= 0:
        begins += 1
        if begins > BEGINS_MAX:
            raise Unreadable(f"{what}: more than {BEGINS_MAX} places where JSON could begin")
        try:
            found, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        yield found
        at = end


def document_with(text: str, *keys: str, what: str) -> Mapping[str, Any]:
    """The one object that has one of these keys; `Unreadable` if there is none, or are two."""
    found = [d for d in documents(text, what) if any(key in d for key in keys)]
    if not found and "{" not in text:
        words = " ".join(text[:200].split())
        raise Unreadable(f"{what}: no JSON in it: {words}")
    if len(found) != 1:
        raise Unreadable(f"{what}: {len(found)} documents in it, or one that is cut short")
    return found[0]


def _begin(text: str, at: int) -> int:
    """Where the next line that begins with a brace begins; -1: nowhere."""
    while (at := text.find("{", at)) >= 0:
        line = text.rfind("\n", 0, at) + 1
        if not text[line:at].strip():
            return at
        following = text.find("\n", at)
        if following < 0:
            return -1
        at = following
    return -1
