"""Reads the outputs of tools, all of them hostile input: bounded and typed, or `Unreadable`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from provisioner.checks.check import Command, Unreadable
from provisioner.model.cohort import Evidence

# ------------------------------------------------------------------------------
# Finds the JSON document in a tool's output, among warnings printed before and after it.
#
# DCGM's own tests contain such an output of nvbandwidth, with braces in the warnings.


BEGINS_MAX = 64  # places where a document may begin; few warnings start a line with a brace


def _require_single(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises `Unreadable` where one key has two values: the last one may hide the
    fault that the first one tells (RFC 8259, 4: which of them counts is open).
    """
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made and made[name] != value:
            raise Unreadable(f"one key has two values: {name[:60]}")
        made[name] = value
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_require_single)


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


ROWS_MAX = 100_000  # lines of one output; a kernel log of a month has fewer
DOCUMENTS_MAX = 512  # JSON documents in one output: one per drive or card
END_WORDS = "end-of-output"
# ends a command line whose output could otherwise be cut short without notice
END = f"echo {END_WORDS}"


def read_output(
    evidence: Mapping[str, Evidence], command: Command, *, any_exit: bool = False
) -> str:
    """Return the whole output of a command that succeeded.

    `any_exit` accepts every exit code, where only the content counts (DCGM, mlxfwmanager).
    """
    output = evidence.get(command.name)
    if output is None:
        raise Unreadable(f"{command.name}: it was not run")
    if output.exit_code is None:
        raise Unreadable(f"{command.name}: it did not end within {command.limit_s:.0f} s")
    if output.truncated:
        raise Unreadable(f"{command.name}: its output was cut off")
    if output.exit_code != 0 and not any_exit:
        start = " ".join(output.text[:200].split())
        raise Unreadable(f"{command.name}: exit code {output.exit_code}: {start}")
    if not output.text.strip():
        raise Unreadable(f"{command.name}: it printed nothing")
    return _strip_end_mark(output, command)


def _strip_end_mark(output: Evidence, command: Command) -> str:
    """Return the text without its end mark, which the output of a command with a mark must have.

    A byte order mark says nothing, and is left out too.
    """
    text = output.text.removeprefix("\ufeff")
    body, mark, trailing = text.rpartition(END_WORDS)
    if mark and not trailing.strip() and (not body or body.endswith("\n")):
        return body
    if command.line.endswith(END) and output.source == command.line:
        raise Unreadable(f"{command.name}: its output is cut short")
    return text


def split_lines(text: str) -> list[str]:
    """Return the lines that are not empty. Raises `Unreadable` for more than `ROWS_MAX`."""
    rows = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if len(rows) > ROWS_MAX:
        raise Unreadable(f"{len(rows)} lines")
    return rows


def parse_whole(cell: str, subject: str) -> int:
    """Return a whole number of at most 18 digits; "[N/A]", "ERR!" and the like are unreadable."""
    if not (cell.isascii() and cell.isdecimal() and len(cell) <= 18):
        raise Unreadable(f"{subject}: {cell[:40]!r} is not a whole number")
    return int(cell)


def parse_number(cell: Any, subject: str) -> float:
    """Return a finite number, given as a number or as text; booleans are unreadable."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        raise Unreadable(f"{subject}: not a number")
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        raise Unreadable(f"{subject}: {str(cell)[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise Unreadable(f"{subject}: {value} is not a finite number")
    return value


def parse_json(text: str, subject: str) -> Any:
    """Return the JSON document of an output that may begin with warnings in plain text."""
    begin = text.find("{")
    if begin < 0:
        raise Unreadable(f"{subject}: no JSON in it")
    try:
        return json.loads(text[begin:], object_pairs_hook=_require_single)
    except (ValueError, RecursionError):
        raise Unreadable(f"{subject}: not JSON, or cut short") from None


def parse_documents(
    text: str, subject: str, *, pairs: Callable[[Sequence[tuple[str, Any]]], Any] | None = None
) -> list[tuple[str, Any]]:
    """Return every JSON document of an output, each with the line of plain text above it.

    `pairs` builds an object from its pairs, for tools that write one key twice.
    """
    decoder = json.JSONDecoder(object_pairs_hook=pairs or _require_single)
    documents: list[tuple[str, Any]] = []
    above = ""
    at = 0
    while at < len(text):
        if text[at] in "{[":
            try:
                document, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                raise Unreadable(f"{subject}: not JSON, or cut short") from None
            documents.append((above, document))
            above = ""
            if len(documents) > DOCUMENTS_MAX:
                raise Unreadable(f"{subject}: more than {DOCUMENTS_MAX} documents")
            continue
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        above = text[at:end].strip() or above
        at = end + 1
    return documents


def require_object(value: Any, subject: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises `Unreadable` for any other value."""
    if not isinstance(value, dict):
        raise Unreadable(f"{subject}: not an object")
    return value


def require_list(value: Any, subject: str) -> Sequence[Any]:
    """Return a JSON array. Raises `Unreadable` for any other value."""
    if not isinstance(value, list):
        raise Unreadable(f"{subject}: not a list")
    return value


def require_text(value: Any, subject: str) -> str:
    """Return a JSON string. Raises `Unreadable` for any other value."""
    if not isinstance(value, str):
        raise Unreadable(f"{subject}: not a text")
    return value


# ------------------------------------------------------------------------------
# Reads the answers of a BMC: its resources unchanged, by path, and the gaps in them.


Resources = Mapping[str, Mapping[str, Any]]  # path -> body

RESOURCES_MAX = 20_000
# a resource that the service does not offer is no gap in the evidence; every other gap is
_NOT_THERE = "not_offered"


def read_resources(text: str) -> Resources:
    """Return the resources of {"resources": {path: body}, "gaps": [[path, reason, detail], ...]}.

    Raises `Unreadable` if the BMC left a request unanswered: the missing part may be the fault.
    """
    document = require_object(parse_json(text, "Redfish"), "Redfish")
    listed = require_object(document.get("resources"), "resources")
    if not listed or len(listed) > RESOURCES_MAX:
        raise Unreadable(f"Redfish: {len(listed)} resources")
    for entry in require_list(document.get("gaps", []), "gaps"):
        gap = [str(cell) for cell in require_list(entry, "gap")]
        if len(gap) != 3:
            raise Unreadable("Redfish: a malformed gap")
        if gap[1] != _NOT_THERE:
            raise Unreadable(f"Redfish: {gap[0][:120]}: {gap[1]}: {gap[2][:80]}")
    return {path: require_object(body, path[-80:]) for path, body in listed.items()}
