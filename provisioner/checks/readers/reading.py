"""Reads the outputs of tools, every one hostile until read: bounded, typed, or `Unreadable`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from provisioner.checks.check import Command, Unreadable
from provisioner.model.health import Evidence

ROWS_MAX = 100_000  # lines of one output; a kernel log of a month is below that
DOCUMENTS_MAX = 512  # JSON documents in one output: one a drive or card
END_WORDS = "end-of-output"
# the last part of a command line whose output could be cut short without anybody seeing it
END = f"echo {END_WORDS}"


def text_of(evidence: Mapping[str, Evidence], command: Command, *, any_exit: bool = False) -> str:
    """The whole output of a command that ended well.

    `any_exit`: its exit code says nothing (DCGM, mlxfwmanager), the content is judged alone.
    """
    found = evidence.get(command.name)
    if found is None:
        raise Unreadable(f"{command.name}: it was not run")
    if found.exit_code is None:
        raise Unreadable(f"{command.name}: it did not end within {command.limit_s:.0f} s")
    if found.truncated:
        raise Unreadable(f"{command.name}: its output was cut off")
    if found.exit_code != 0 and not any_exit:
        words = " ".join(found.text[:200].split())
        raise Unreadable(f"{command.name}: exit code {found.exit_code}: {words}")
    if not found.text.strip():
        raise Unreadable(f"{command.name}: it printed nothing")
    return _ended(found, command)


def _ended(found: Evidence, command: Command) -> str:
    """The text without its end mark. What was run with a mark must have it."""
    body, mark, rest = found.text.rpartition(END_WORDS)
    if mark and not rest.strip() and (not body or body.endswith("\n")):
        return body
    if command.line.endswith(END) and found.source == command.line:
        raise Unreadable(f"{command.name}: its output is cut short")
    return found.text


def lines_of(text: str) -> list[str]:
    """Lines without empty ones; too many are refused."""
    rows = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if len(rows) > ROWS_MAX:
        raise Unreadable(f"{len(rows)} lines")
    return rows


def csv_rows(text: str, columns: int, what: str) -> list[list[str]]:
    """Rows of `nvidia-smi --format=csv,noheader`, each with exactly `columns` non-empty cells."""
    rows = []
    for number, line in enumerate(lines_of(text), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != columns or not all(cells):
            raise Unreadable(f"{what}: line {number} has not {columns} columns")
        rows.append(cells)
    return rows


def whole(cell: str, what: str) -> int:
    """A whole number of at most 18 digits; "[N/A]", "ERR!" and the like are unreadable."""
    if not (cell.isascii() and cell.isdecimal() and len(cell) <= 18):
        raise Unreadable(f"{what}: {cell[:40]!r} is not a whole number")
    return int(cell)


def number(cell: Any, what: str) -> float:
    """A finite number, as a number or as text. Truth values are none."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        raise Unreadable(f"{what}: not a number")
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        raise Unreadable(f"{what}: {str(cell)[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise Unreadable(f"{what}: {value} is not a finite number")
    return value


def json_of(text: str, what: str) -> Any:
    """The JSON document in an output that may begin with warnings in plain text."""
    begin = text.find("{")
    if begin < 0:
        raise Unreadable(f"{what}: no JSON in it")
    try:
        return json.loads(text[begin:])
    except (ValueError, RecursionError):
        raise Unreadable(f"{what}: not JSON, or cut short") from None


def documents_of(
    text: str, what: str, *, pairs: Callable[[Sequence[tuple[str, Any]]], Any] | None = None
) -> list[tuple[str, Any]]:
    """Every JSON document of an output, each with the line of plain text above it.

    `pairs`: makes an object of its pairs, for tools that write one key twice.
    """
    decoder = json.JSONDecoder(object_pairs_hook=pairs)
    found: list[tuple[str, Any]] = []
    above, at = "", 0
    while at < len(text):
        if text[at] in "{[":
            try:
                document, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                raise Unreadable(f"{what}: not JSON, or cut short") from None
            found.append((above, document))
            above = ""
            if len(found) > DOCUMENTS_MAX:
                raise Unreadable(f"{what}: more than {DOCUMENTS_MAX} documents")
            continue
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        above = text[at:end].strip() or above
        at = end + 1
    return found


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Unreadable(f"{what}: not an object")
    return value


def sequence(value: Any, what: str) -> Sequence[Any]:
    """A JSON array."""
    if not isinstance(value, list):
        raise Unreadable(f"{what}: not a list")
    return value


def word(value: Any, what: str) -> str:
    """A JSON string."""
    if not isinstance(value, str):
        raise Unreadable(f"{what}: not a text")
    return value


def pci(address: str) -> str:
    """A PCI address in one form: "0000:1b:00.0" for "1b:00.0" and "00000000:1B:00.0"."""
    parts = address.strip().lower().split(":")
    if len(parts) == 2:
        parts = ["0", *parts]
    if len(parts) != 3:
        return address.strip().lower()
    return f"{parts[0][-4:].rjust(4, '0')}:{parts[1]}:{parts[2]}"
