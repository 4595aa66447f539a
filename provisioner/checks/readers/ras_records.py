"""Parses rasdaemon's records: `ras-mc-ctl --summary` and `ras-mc-ctl --errors`.

Both print a section for every kind of event, or "No ... errors." in its place. The section of the
memory controllers is always there; an output without it is not one of these. A newer rasdaemon has
more sections: an unknown one is reported with its own text and never ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import split_lines

_NONE = re.compile(r"^No (?P<kind>[A-Za-z][\w /-]{1,60}?) errors\.?$")
_HEAD = re.compile(r"^(?P<kind>[A-Za-z][\w /-]{1,60}?)(?: summary)?:$")
_STATUS = re.compile(r"^ras-mc-ctl: drivers (are|not) loaded\.?$")
# "Corrected on DIMM Label(s): 'A1' location: 0:1:0:-1 errors: 42"
_DIMM = re.compile(
    r"^(?P<grade>[\w ()-]{1,40}?) on DIMM Label\(s\): '(?P<label>.{0,120})' location: \S{1,60}"
    r" errors: (?P<count>\d{1,12})$"
)
# "1 2026-09-30 10:00:00 +0000 1 Uncorrected error(s): memory read error at A1 location: ..."
_RECORD = re.compile(
    r"^\d{1,12} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} (?P<count>\d{1,12})"
    r" (?P<grade>[\w ()-]{1,40}?) error\(s\):? (?P<words>.{0,400})$"
)
_AT = re.compile(r"^.{0,120} at (?P<label>.{1,120}?) location: ")
_COUNTED = re.compile(r"^(?P<count>\d{1,12}) (?P<words>.{1,200}?)$")
_DEVICE = re.compile(r"^(?P<words>.{1,200}) has (?P<count>\d{1,12}) errors$")
_MEMORY = ("memory", "memory controller events")
_PCIE = ("pcie aer", "pcie aer events")
_BAD = re.compile(r"\b(?:uncorrect\w*|fatal|deferred|unrecover\w*)\b", re.IGNORECASE)
_GOOD = re.compile(r"\bcorrected\b|^Info$", re.IGNORECASE)


@dataclass(frozen=True)
class RasEvent:
    """One line of a section. `corrected` is None where the text does not say."""

    kind: str
    words: str
    count: int
    corrected: bool | None

    @property
    def memory(self) -> bool:
        """Whether a memory controller reported the event."""
        return self.kind.lower() in _MEMORY


def looks_like_ras(text: str) -> bool:
    """Return whether this is an output of `ras-mc-ctl`."""
    begin = text.lstrip()[:200]
    return begin.startswith(("ras-mc-ctl:", "No Memory errors", "Memory controller events"))


def read_ras_events(text: str) -> tuple[bool, list[RasEvent]]:
    """Return whether the EDAC drivers are loaded (true unless it denies it), and every event."""
    loaded = True
    kinds = set()
    events = []
    kind = ""
    for line in (row.strip() for row in split_lines(text)):
        if match := _STATUS.match(line):
            loaded = match[1] == "are"
        elif match := _NONE.match(line) or _HEAD.match(line):
            kind = match["kind"]
            kinds.add(kind.lower())
        elif not kind:
            raise Unreadable(f"ras-mc-ctl: cannot read {line[:60]!r}")
        else:
            events.append(_parse_event(kind, line))
    # every version of rasdaemon begins with these two
    if loaded and not (kinds & set(_MEMORY) and kinds & set(_PCIE)):
        raise Unreadable("ras-mc-ctl: it does not report the memory controllers and PCIe")
    return loaded, events


def _parse_event(kind: str, line: str) -> RasEvent:
    if match := _DIMM.match(line):
        return RasEvent(kind, match["label"], int(match["count"]), _is_corrected(match["grade"]))
    if match := _RECORD.match(line):
        at = _AT.match(match["words"])
        text = at["label"] if at else match["words"]
        return RasEvent(kind, text, int(match["count"]), _is_corrected(match["grade"]))
    if match := _DEVICE.match(line) or _COUNTED.match(line):
        return RasEvent(kind, match["words"], int(match["count"]), _is_corrected(match["words"]))
    return RasEvent(kind, line, 1, _is_corrected(line))


def _is_corrected(text: str) -> bool | None:
    if _BAD.search(text):
        return False
    return True if _GOOD.search(text) else None
