"""E13: the memory controllers count no uncorrectable error (EDAC, sysfs).

A kernel without an EDAC driver for its CPUs counts nothing, and then there is no verdict to give:
the driver must be loaded. Corrected errors are measured for comparison with the fleet; nobody
publishes a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier, per_device
from provisioner.checks.reading import END, text_of
from provisioner.checks.sysfs import counts, files_of, grouped, matching
from provisioner.model.health import Evidence, Finding, Gate, Severity

_MC = "/sys/devices/system/edac/mc/mc*/"
MEMORY_ERRORS = Command(
    name="memory_errors",
    line=f"grep -H . {_MC}ce_count {_MC}ue_count {_MC}ue_noinfo_count; {END}",
    limit_s=30.0,
)

_FILE = re.compile(r"/sys/devices/system/edac/mc/(mc\d{1,4})/(ce_count|ue_count|ue_noinfo_count)")


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    controllers = _read(evidence)
    for name, counted in sorted(controllers.items()):
        for kind in ("ue_count", "ue_noinfo_count"):
            if counted.get(kind):
                words = "uncorrectable memory errors"
                yield fault(f"memory {name}", Severity.ISOLATE, words, counted[kind], 0)
    before = earlier(evidence, MEMORY_ERRORS)
    if before is not None:
        per_device(_read(before), controllers, "EDAC")


def _read(evidence: Mapping[str, Evidence]) -> dict[str, dict[str, int]]:
    files = files_of(text_of(evidence, MEMORY_ERRORS, any_exit=True))
    found = {name: counts(facts) for name, facts in grouped(matching(files, _FILE)).items()}
    if not found:
        raise Unreadable("EDAC: no memory controller; its driver is not loaded")
    for name, counted in found.items():
        if not {"ce_count", "ue_count"} <= set(counted):
            raise Unreadable(f"EDAC: {name} does not count both kinds")
    return found


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return {f"memory_ce/{name}": counted["ce_count"] for name, counted in _read(evidence).items()}


CHECK = Check(
    "memory_errors", Gate.A, (MEMORY_ERRORS,), _findings, after_load=True, measure=_measure
)
