"""Parses mlxconfig's parameters, as JSON or as text, into one form.

Text has the columns Default, Current and Next Boot, a star before values that differ, and arrays
that are named by their range only ("Array[0..7]"), without their elements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import (
    normalize_pci,
    parse_json,
    require_object,
    split_lines,
)

_CODE = re.compile(r"^.{0,64}\(((?:0x)?[0-9a-fA-F]{1,16})\)$")  # "True(1)", "ETH(2)"
_ARRAY = re.compile(r"^Array\[\d{1,4}\.\.\d{1,4}\]$")
_HEAD = re.compile(r"^Device #\d{1,3}:$")
_FIELD = re.compile(r"^(Device type|Device|PCI device|Name|Description): +(\S.*)$")
_COLUMNS = re.compile(r"^Configurations: +(?:Default +)?Current +Next Boot$")
_ROW = re.compile(r"^\*? *([A-Za-z][A-Za-z0-9_]{0,80}(?:\[\d{1,4}\])?)((?: +\S+){2,3})$")
PARAMETERS_MAX = 20_000  # of one card; a BlueField-3 has about 300


@dataclass(frozen=True)
class CardSettings:
    """One card: parameter -> (current, next boot), as printed; None where it is not reported."""

    pci: str  # "" where it is not given
    values: Mapping[str, tuple[Any, Any]]


def read_settings(text: str) -> list[CardSettings]:
    """Return the settings of every card. Raises `Unreadable` where a card has no parameter."""
    cards = _parse_text(text) if _is_text(text) else _parse_json(text)
    if not cards or not all(card.values for card in cards):
        raise Unreadable("mlxconfig: a card without parameters, or no card")
    return cards


def normalize_value(value: Any) -> str:
    """Return one form for "True(1)", True, "1" and 1."""
    if isinstance(value, bool):
        return str(int(value))
    text = str(value).strip()
    if match := _CODE.match(text):
        text = match[1]
    return str(int(text, 16)) if text.lower().startswith("0x") and len(text) > 2 else text


def _is_text(text: str) -> bool:
    begin = text.lstrip()
    return "Configurations:" in text and not begin.startswith("{")


def _parse_json(text: str) -> list[CardSettings]:
    cards = []
    for name, facts in require_object(parse_json(text, "mlxconfig"), "mlxconfig").items():
        device = require_object(facts, name)
        parameters = require_object(device.get("tlv_configuration"), "tlv_configuration")
        values = {}
        for parameter, listed in parameters.items():
            entry = require_object(listed, parameter)
            values[parameter] = (entry.get("current_value"), entry.get("next_value"))
        cards.append(CardSettings(normalize_pci(str(device.get("device", name))), values))
    return cards


def _parse_text(text: str) -> list[CardSettings]:
    cards: list[CardSettings] = []
    address = ""
    values: dict[str, tuple[Any, Any]] | None = None
    for line in split_lines(text):
        bare = line.strip()
        if _HEAD.match(bare):
            address = ""
            values = None
        elif match := _FIELD.match(bare):
            address = normalize_pci(match[2]) if match[1] in ("Device", "PCI device") else address
        elif _COLUMNS.match(bare):
            values = {}
            cards.append(CardSettings(address, values))
        elif values is not None and not bare.startswith("The '*'"):
            _parse_row(bare, values)
    return cards


def _parse_row(line: str, values: dict[str, tuple[Any, Any]]) -> None:
    match = _ROW.match(line)
    if match is None or match[1] in values or len(values) >= PARAMETERS_MAX:
        raise Unreadable(f"mlxconfig: cannot read {line[:60]!r}")
    current, following = match[2].split()[-2:]
    if not _ARRAY.match(current):
        values[match[1]] = (current, following)
