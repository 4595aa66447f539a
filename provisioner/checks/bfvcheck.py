"""A BlueField's ATF, UEFI and NIC firmware match the versions that its own bundle recommends.

`bfvcheck` runs on the card's Arm system and takes 11 to 30 seconds (NICo). The daemon does not log
in to that system: a person supplies the output. The versions themselves are read out of band from
the card's BMC and compared with the pins at every collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import read_output, split_lines
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

BFVCHECK = Command(name="bfvcheck", line="bfvcheck", limit_s=120.0)

_VERSION = re.compile(r"^(ATF|UEFI|FW): (\S{1,80})$")
_HEADS = {"-RECOMMENDED VERSIONS-": "recommended", "-INSTALLED VERSIONS-": "installed"}
_WARNING = "WARNING:"
_POWER_CYCLE = "power cycled"


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    lines = [line.strip() for line in split_lines(read_output(evidence, BFVCHECK, any_exit=True))]
    versions: dict[str, dict[str, str]] = {}
    head = ""
    for line in lines:
        if line in _HEADS:
            head = _HEADS[line]
        elif head and (match := _VERSION.match(line)):
            versions.setdefault(head, {})[match[1]] = match[2]
    installed = versions.get("installed", {})
    recommended = versions.get("recommended", {})
    if not recommended or set(installed) != set(recommended) or "FW" not in recommended:
        raise Unreadable("bfvcheck: no recommended and installed versions in it")
    text = " ".join(lines)
    warned = text.count(_WARNING)
    if _POWER_CYCLE in text:
        detail = "firmware is written but does not run: the chassis must be power cycled"
        yield fault("FW", Severity.POWER_CYCLE, detail, installed["FW"], recommended["FW"])
    for name, version in installed.items():
        if version != recommended[name]:
            detail = f"{name} differs from the version that the bundle recommends"
            yield fault(name, Severity.CONFIG, detail, version, recommended[name])
    if warned and installed == recommended and _POWER_CYCLE not in text:
        detail = next(line for line in lines if line.startswith(_WARNING))
        yield fault("BlueField", Severity.CONFIG, detail)
    if not warned and lines[-1] != "Version check complete.":
        raise Unreadable("bfvcheck: its output is cut short")


CHECK = Check("bfvcheck", Gate.A, (BFVCHECK,), _findings, on_request=True)
