"""Parses `mlxfwmanager`'s list of network cards, as XML or as plain text, into one form.

The tool shows a running version beside the burned one only where they differ; that line is the sign
of "burned, not activated" (Mellanox/nic-configuration-operator). A card that does not open for the
host is listed without versions. Text before the list is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import parse_json, require_object, split_lines
from provisioner.model.names import normalize_pci

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# ------------------------------------------------------------------------------
# Parses mlxconfig's parameters, as JSON or as text, into one form.
#
# Text has the columns Default, Current and Next Boot, a star before values that differ, and arrays
# that are named by their range only ("Array[0..7]"), without their elements.


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


CARDS_MAX = 128
NO_VALUE = frozenset({"", "--", "N/A", "Unknown"})
_END = "</Devices>"
_RUNNING = re.compile(r"^FW.*running", re.IGNORECASE)
_VERSION = re.compile(r"^\d{2}\.\d{2}\.\d{4}$")
_MAC = re.compile(r"^[0-9a-f]{12}$")
_NIC_LISTING_FIELD = re.compile(
    r"^(Device Type|Part Number|PSID|PCI Device Name|Base MAC|Status): +(\S.*)$"
)
_NIC_LISTING_ROW = re.compile(r"^(FW \(Running\)|FW)\s+(\S{1,40})\s+\S")


@dataclass(frozen=True)
class ListedNic:
    """One card of the list. Versions are None where the tool gives none."""

    pci: str  # "" where it is not given
    type: str
    psid: str
    part: str
    mac: str  # lowercase with colons; "" where none is given
    burned: str | None
    running: str | None  # as the tool prints it; None without such a line: the burned one runs
    status: str

    @property
    def version(self) -> str | None:
        """The running version; None where it cannot be read."""
        return self.burned if self.running is None else _parse_version(self.running)


def read_cards(text: str) -> list[ListedNic]:
    """Return every listed card. Raises `Unreadable` for anything but a whole list."""
    # document types are refused: entities can expand a short text to a gigabyte
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise Unreadable("mlxfwmanager: a document type in it")
    begin = text.find("<Devices")
    cards = _parse_xml(text[begin:]) if begin >= 0 else _parse_text_nic_listing(text)
    if not cards:
        raise Unreadable("mlxfwmanager: no device in it")
    if len(cards) > CARDS_MAX:
        raise Unreadable(f"mlxfwmanager: more than {CARDS_MAX} cards")
    return cards


def _parse_xml(text: str) -> list[ListedNic]:
    end = text.rfind(_END)
    if end < 0:
        raise Unreadable("mlxfwmanager: no whole device list in it")
    from xml.etree import ElementTree  # with expat 0.6 MiB, for the hosts whose tool prints XML

    try:
        root = ElementTree.fromstring(text[: end + len(_END)])  # noqa: S314 (no DTD, size bounded)
    except (ElementTree.ParseError, ValueError):
        raise Unreadable("mlxfwmanager: not XML, or cut short") from None
    return [_parse_element(element) for element in root.findall("Device")[: CARDS_MAX + 1]]


def _parse_element(element: Element) -> ListedNic:
    burned = running = None
    for version in element.iterfind("Versions/*"):
        if version.tag == "FW":
            burned = _parse_version(version.get("current"))
        elif _RUNNING.match(version.tag):
            running = (version.get("current") or "").strip()
    macs = element.find("MACs")
    mac = macs.get("Base_Mac") if macs is not None else ""
    return ListedNic(
        pci=_parse_address(element.get("pciName")),
        type=element.get("type") or "",
        psid=_clean_value(element.get("psid")),
        part=_clean_value(element.get("partNumber")),
        mac=_parse_mac(mac or ""),
        burned=burned,
        running=running,
        status=(element.findtext("Status") or "").strip(),
    )


def _parse_text_nic_listing(text: str) -> list[ListedNic]:
    cards: list[ListedNic] = []
    fields: dict[str, str] | None = None
    for line in split_lines(text):
        bare = line.strip()
        if _HEAD.match(bare):
            if fields is not None:
                cards.append(_build_card(fields))
            fields = {}
        elif fields is not None and (
            match := _NIC_LISTING_FIELD.match(bare) or _NIC_LISTING_ROW.match(bare)
        ):
            if match[1] in fields:
                raise Unreadable(f"mlxfwmanager: {match[1]} is listed twice")
            fields[match[1]] = match[2].strip()
    if fields is not None:
        cards.append(_build_card(fields))
    return cards


def _build_card(fields: dict[str, str]) -> ListedNic:
    return ListedNic(
        pci=_parse_address(fields.get("PCI Device Name")),
        type=fields.get("Device Type", ""),
        psid=_clean_value(fields.get("PSID")),
        part=_clean_value(fields.get("Part Number")),
        mac=_parse_mac(fields.get("Base MAC", "")),
        burned=_parse_version(fields.get("FW")),
        running=fields.get("FW (Running)"),
        status=fields.get("Status", ""),
    )


def _clean_value(text: str | None) -> str:
    bare = (text or "").strip()
    return "" if bare in NO_VALUE else bare


def _parse_version(text: str | None) -> str | None:
    bare = (text or "").strip()
    return bare if _VERSION.match(bare) else None


def _parse_address(text: str | None) -> str:
    bare = _clean_value(text)
    return normalize_pci(bare) if bare else ""


def _parse_mac(text: str) -> str:
    bare = text.lower().replace(":", "").strip()
    return ":".join(bare[i : i + 2] for i in range(0, 12, 2)) if _MAC.match(bare) else ""
