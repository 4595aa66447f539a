"""Reads what rasdaemon recorded: `ras-mc-ctl --summary` and `ras-mc-ctl --errors`.

Both print a section for every kind of event, or "No ... errors." in its place. The memory
controllers' section is always there; without it the output is another one. A newer rasdaemon has
more sections: one that this reader does not know is told by its own words, never left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.reading import lines_of

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
    """One line of a section. `corrected` None: its words do not say."""

    kind: str
    words: str
    count: int
    corrected: bool | None

    @property
    def memory(self) -> bool:
        """Whether a memory controller told it."""
        return self.kind.lower() in _MEMORY


def looks_like_ras(text: str) -> bool:
    """Whether this is an output of `ras-mc-ctl`."""
    begin = text.lstrip()[:200]
    return begin.startswith(("ras-mc-ctl:", "No Memory errors", "Memory controller events"))


def ras_events(text: str) -> tuple[bool, list[RasEvent]]:
    """Whether its drivers are loaded (unless it says no, they are), and every event."""
    loaded, kinds, found = True, set(), []
    kind = ""
    for line in (row.strip() for row in lines_of(text)):
        if match := _STATUS.match(line):
            loaded = match[1] == "are"
        elif match := _NONE.match(line) or _HEAD.match(line):
            kind = match["kind"]
            kinds.add(kind.lower())
        elif not kind:
            raise Unreadable(f"ras-mc-ctl: cannot read {line[:60]!r}")
        else:
            found.append(_event(kind, line))
    # every version of rasdaemon begins with these two
    if loaded and not (kinds & set(_MEMORY) and kinds & set(_PCIE)):
        raise Unreadable("ras-mc-ctl: it does not tell of the memory controllers and of PCIe")
    return loaded, found


def _event(kind: str, line: str) -> RasEvent:
    if match := _DIMM.match(line):
        return RasEvent(kind, match["label"], int(match["count"]), _grade(match["grade"]))
    if match := _RECORD.match(line):
        at = _AT.match(match["words"])
        words = at["label"] if at else match["words"]
        return RasEvent(kind, words, int(match["count"]), _grade(match["grade"]))
    if match := _DEVICE.match(line) or _COUNTED.match(line):
        return RasEvent(kind, match["words"], int(match["count"]), _grade(match["words"]))
    return RasEvent(kind, line, 1, _grade(line))


def _grade(words: str) -> bool | None:
    if _BAD.search(words):
        return False
    return True if _GOOD.search(words) else None
