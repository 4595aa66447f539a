"""Parses `mlxfwmanager`'s list of network cards, as XML or as plain text, into one form.

The tool shows a running version beside the burned one only where they differ; that line is the sign
of "burned, not activated" (Mellanox/nic-configuration-operator). A card that does not open for the
host is listed without versions. Text before the list is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import normalize_pci, split_lines

CARDS_MAX = 128
NO_VALUE = frozenset({"", "--", "N/A", "Unknown"})
_END = "</Devices>"
_RUNNING = re.compile(r"^FW.*running", re.IGNORECASE)
_VERSION = re.compile(r"^\d{2}\.\d{2}\.\d{4}$")
_MAC = re.compile(r"^[0-9a-f]{12}$")
_HEAD = re.compile(r"^Device #\d{1,3}:$")
_FIELD = re.compile(r"^(Device Type|Part Number|PSID|PCI Device Name|Base MAC|Status): +(\S.*)$")
_ROW = re.compile(r"^(FW \(Running\)|FW)\s+(\S{1,40})\s+\S")


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
    cards = _parse_xml(text[begin:]) if begin >= 0 else _parse_text(text)
    if not cards:
        raise Unreadable("mlxfwmanager: no device in it")
    if len(cards) > CARDS_MAX:
        raise Unreadable(f"mlxfwmanager: more than {CARDS_MAX} cards")
    return cards


def _parse_xml(text: str) -> list[ListedNic]:
    end = text.rfind(_END)
    if end < 0:
        raise Unreadable("mlxfwmanager: no whole device list in it")
    try:
        root = ElementTree.fromstring(text[: end + len(_END)])  # noqa: S314 (no DTD, size bounded)
    except (ElementTree.ParseError, ValueError):
        raise Unreadable("mlxfwmanager: not XML, or cut short") from None
    return [_parse_element(element) for element in root.findall("Device")[: CARDS_MAX + 1]]


def _parse_element(element: ElementTree.Element) -> ListedNic:
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


def _parse_text(text: str) -> list[ListedNic]:
    cards: list[ListedNic] = []
    fields: dict[str, str] | None = None
    for line in split_lines(text):
        bare = line.strip()
        if _HEAD.match(bare):
            if fields is not None:
                cards.append(_build_card(fields))
            fields = {}
        elif fields is not None and (match := _FIELD.match(bare) or _ROW.match(bare)):
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
