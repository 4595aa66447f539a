"""Reads mlxconfig's parameters, as JSON or as text: one reader for both.

Text has columns Default, Current and Next Boot, a star before what differs, and arrays that are
named by their range only ("Array[0..7]"): those say nothing of their elements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.reading import json_of, lines_of, mapping, pci

_CODE = re.compile(r"^.{0,64}\(((?:0x)?[0-9a-fA-F]{1,16})\)$")  # "True(1)", "ETH(2)"
_ARRAY = re.compile(r"^Array\[\d{1,4}\.\.\d{1,4}\]$")
_HEAD = re.compile(r"^Device #\d{1,3}:$")
_FIELD = re.compile(r"^(Device type|Device|PCI device|Name|Description): +(\S.*)$")
_COLUMNS = re.compile(r"^Configurations: +(?:Default +)?Current +Next Boot$")
_ROW = re.compile(r"^\*? *([A-Za-z][A-Za-z0-9_]{0,80}(?:\[\d{1,4}\])?)((?: +\S+){2,3})$")
PARAMETERS_MAX = 20_000  # of one card; a BlueField-3 has about 300


@dataclass(frozen=True)
class CardSettings:
    """One card: parameter -> (current, next boot), as printed; None where it is not told."""

    pci: str  # "" : not given
    values: Mapping[str, tuple[Any, Any]]


def settings_of(text: str) -> list[CardSettings]:
    """Every card. Raises `Unreadable` where a card tells no parameter."""
    found = _of_text(text) if _is_text(text) else _of_json(text)
    if not found or not all(card.values for card in found):
        raise Unreadable("mlxconfig: a card without parameters, or no card")
    return found


def plain(value: Any) -> str:
    """One form for "True(1)", True, "1" and 1."""
    if isinstance(value, bool):
        return str(int(value))
    text = str(value).strip()
    if match := _CODE.match(text):
        text = match[1]
    return str(int(text, 16)) if text.lower().startswith("0x") and len(text) > 2 else text


def _is_text(text: str) -> bool:
    begin = text.lstrip()
    return "Configurations:" in text and not begin.startswith("{")


def _of_json(text: str) -> list[CardSettings]:
    cards = []
    for name, facts in mapping(json_of(text, "mlxconfig"), "mlxconfig").items():
        device = mapping(facts, name)
        parameters = mapping(device.get("tlv_configuration"), "tlv_configuration")
        values = {}
        for parameter, listed in parameters.items():
            told = mapping(listed, parameter)
            values[parameter] = (told.get("current_value"), told.get("next_value"))
        cards.append(CardSettings(pci(str(device.get("device", name))), values))
    return cards


def _of_text(text: str) -> list[CardSettings]:
    cards: list[CardSettings] = []
    address = ""
    values: dict[str, tuple[Any, Any]] | None = None
    for line in lines_of(text):
        bare = line.strip()
        if _HEAD.match(bare):
            address, values = "", None
        elif match := _FIELD.match(bare):
            address = pci(match[2]) if match[1] in ("Device", "PCI device") else address
        elif _COLUMNS.match(bare):
            values = {}
            cards.append(CardSettings(address, values))
        elif values is not None and not bare.startswith("The '*'"):
            _row(bare, values)
    return cards


def _row(line: str, values: dict[str, tuple[Any, Any]]) -> None:
    match = _ROW.match(line)
    if match is None or match[1] in values or len(values) >= PARAMETERS_MAX:
        raise Unreadable(f"mlxconfig: cannot read {line[:60]!r}")
    current, following = match[2].split()[-2:]
    if not _ARRAY.match(current):
        values[match[1]] = (current, following)
