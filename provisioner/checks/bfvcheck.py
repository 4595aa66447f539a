"""I8: a BlueField's ATF, UEFI and NIC firmware are those that its own bundle asks for.

`bfvcheck` runs on the card's Arm system and takes 11 to 30 seconds (NICo). Nothing here logs in
there: a person brings its output. The versions themselves are read out of band from the card's BMC
and held against the pins at every collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.reading import lines_of, text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

BFVCHECK = Command(name="bfvcheck", line="bfvcheck", limit_s=120.0)

_VERSION = re.compile(r"^(ATF|UEFI|FW): (\S{1,80})$")
_HEADS = {"-RECOMMENDED VERSIONS-": "recommended", "-INSTALLED VERSIONS-": "installed"}
_WARNING = "WARNING:"
_POWER_CYCLE = "power cycled"


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    lines = [line.strip() for line in lines_of(text_of(evidence, BFVCHECK, any_exit=True))]
    versions: dict[str, dict[str, str]] = {}
    head = ""
    for line in lines:
        if line in _HEADS:
            head = _HEADS[line]
        elif head and (match := _VERSION.match(line)):
            versions.setdefault(head, {})[match[1]] = match[2]
    installed, wanted = versions.get("installed", {}), versions.get("recommended", {})
    if not wanted or set(installed) != set(wanted) or "FW" not in wanted:
        raise Unreadable("bfvcheck: no recommended and installed versions in it")
    text = " ".join(lines)
    warned = text.count(_WARNING)
    if _POWER_CYCLE in text:
        words = "firmware is written but does not run: the chassis must be power cycled"
        yield fault("FW", Severity.POWER_CYCLE, words, installed["FW"], wanted["FW"])
    for name, version in installed.items():
        if version != wanted[name]:
            words = f"{name} is not the one that the bundle asks for"
            yield fault(name, Severity.CONFIG, words, version, wanted[name])
    if warned and installed == wanted and _POWER_CYCLE not in text:
        words = next(line for line in lines if line.startswith(_WARNING))
        yield fault("BlueField", Severity.CONFIG, words)
    if not warned and lines[-1] != "Version check complete.":
        raise Unreadable("bfvcheck: its output is cut short")


CHECK = Check("bfvcheck", Gate.A, (BFVCHECK,), _findings, on_request=True)
