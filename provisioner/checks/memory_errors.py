"""E13: the memory controllers count no uncorrectable error (EDAC in sysfs, or rasdaemon's records).

A kernel without an EDAC driver for its CPUs counts nothing, and then there is no verdict to give:
the driver must be loaded. Corrected errors are measured for comparison with the fleet; nobody
publishes a limit. rasdaemon's records outlive a restart: what it has of machine checks and PCIe
errors that were not corrected counts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier, per_device
from provisioner.checks.readers.ras_records import RasEvent, looks_like_ras, ras_events
from provisioner.checks.readers.reading import END, text_of
from provisioner.checks.readers.sysfs import counts, files_of, grouped, matching
from provisioner.model.health import Evidence, Finding, Gate, Severity

_MC = "/sys/devices/system/edac/mc/mc*/"
MEMORY_ERRORS = Command(
    name="memory_errors",
    line=f"grep -H . {_MC}ce_count {_MC}ue_count {_MC}ue_noinfo_count; {END}",
    limit_s=30.0,
)

_FILE = re.compile(r"/sys/devices/system/edac/mc/(mc\d{1,4})/(ce_count|ue_count|ue_noinfo_count)")
_NO_DRIVER = (
    "no EDAC driver counts memory errors: load the one of these CPUs (i10nm_edac, skx_edac,"
    " amd64_edac, ghes_edac), then run again"
)


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    text = text_of(evidence, MEMORY_ERRORS, any_exit=True)
    before = earlier(evidence, MEMORY_ERRORS)
    if looks_like_ras(text):
        had = text_of(before, MEMORY_ERRORS, any_exit=True) if before is not None else None
        yield from _recorded(text, had)
        return
    controllers = _read(text)
    if not controllers:
        yield fault("host", Severity.CONFIG, _NO_DRIVER)
    for name, counted in sorted(controllers.items()):
        for kind in ("ue_count", "ue_noinfo_count"):
            if counted.get(kind):
                words = "uncorrectable memory errors"
                yield fault(f"memory {name}", Severity.ISOLATE, words, counted[kind], 0)
    if before is not None:
        per_device(_read(text_of(before, MEMORY_ERRORS, any_exit=True)), controllers, "EDAC")


def _recorded(text: str, had: str | None) -> Iterator[Finding]:
    loaded, events = ras_events(text)
    if not loaded:
        yield fault("host", Severity.CONFIG, _NO_DRIVER)
    if had is not None and sum(e.count for e in events) < sum(e.count for e in ras_events(had)[1]):
        raise Unreadable("ras-mc-ctl: records were removed during the load test")
    for event in events:
        if event.corrected is False:
            yield fault(_part(event), Severity.ISOLATE, _words(event), event.count, 0)
        elif event.corrected is None:
            yield fault(_part(event), Severity.MONITOR, _words(event), event.count, 0)


def _part(event: RasEvent) -> str:
    return f"memory {event.words}" if event.memory else "host"


def _words(event: RasEvent) -> str:
    if event.memory and event.corrected is False:
        return "uncorrectable memory errors (rasdaemon)"
    return f"rasdaemon, {event.kind}: {event.words}"


def _read(text: str) -> dict[str, dict[str, int]]:
    """Controller -> its counts; {} where the kernel has no controller at all."""
    if all(_absent(line) for line in text.splitlines()):
        return {}
    files = files_of(text)
    found = {name: counts(facts) for name, facts in grouped(matching(files, _FILE)).items()}
    if not found:
        raise Unreadable("EDAC: no memory controller in it")
    for name, counted in found.items():
        if not {"ce_count", "ue_count"} <= set(counted):
            raise Unreadable(f"EDAC: {name} does not count both kinds")
    return found


def _absent(line: str) -> bool:
    """ "grep: /sys/.../ce_count: No such file or directory", or nothing at all."""
    return not line.strip() or (
        line.startswith("grep: /sys/devices/system/edac/") and "No " in line
    )


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    text = text_of(evidence, MEMORY_ERRORS, any_exit=True)
    if looks_like_ras(text):
        listed = [e for e in ras_events(text)[1] if e.memory and e.corrected]
        found: dict[str, float] = {}
        for event in listed:
            name = f"memory_ce/{event.words[:60]}"
            found[name] = found.get(name, 0.0) + event.count
        return found
    return {f"memory_ce/{name}": counted["ce_count"] for name, counted in _read(text).items()}


CHECK = Check(
    "memory_errors", Gate.A, (MEMORY_ERRORS,), _findings, after_load=True, measure=_measure
)
