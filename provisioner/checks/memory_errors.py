"""The memory controllers count no uncorrectable error (EDAC in sysfs, or rasdaemon's records).

A kernel without an EDAC driver for its CPUs counts nothing, and no verdict is possible until the
driver is loaded. Corrected errors are measured for comparison with the fleet; no source publishes a
limit. rasdaemon's records survive a restart: its uncorrected machine checks and PCIe errors count
as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth_per_device, find_before_load
from provisioner.checks.readers.nvbandwidth_output import RasEvent, looks_like_ras, read_ras_events
from provisioner.checks.readers.sysfs import group_by_device, match_files, parse_counts, parse_files
from provisioner.checks.readers.tool_output import END, read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

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
    text = read_output(evidence, MEMORY_ERRORS, any_exit=True)
    before = find_before_load(evidence, MEMORY_ERRORS)
    if looks_like_ras(text):
        had = read_output(before, MEMORY_ERRORS, any_exit=True) if before is not None else None
        yield from _judge_records(text, had)
        return
    controllers = _read_controllers(text)
    if not controllers:
        yield fault("host", Severity.CONFIG, _NO_DRIVER)
    for name, counted in sorted(controllers.items()):
        for kind in ("ue_count", "ue_noinfo_count"):
            if counted.get(kind):
                detail = "uncorrectable memory errors"
                yield fault(f"memory {name}", Severity.ISOLATE, detail, counted[kind], 0)
    if before is not None:
        compute_growth_per_device(
            _read_controllers(read_output(before, MEMORY_ERRORS, any_exit=True)),
            controllers,
            "EDAC",
        )


def _judge_records(text: str, had: str | None) -> Iterator[Finding]:
    loaded, events = read_ras_events(text)
    if not loaded:
        yield fault("host", Severity.CONFIG, _NO_DRIVER)
    if had is not None and sum(e.count for e in events) < sum(
        e.count for e in read_ras_events(had)[1]
    ):
        raise Unreadable("ras-mc-ctl: records were removed during the load test")
    for event in events:
        if event.corrected is False:
            yield fault(_name_part(event), Severity.ISOLATE, _describe(event), event.count, 0)
        elif event.corrected is None:
            yield fault(_name_part(event), Severity.MONITOR, _describe(event), event.count, 0)


def _name_part(event: RasEvent) -> str:
    return f"memory {event.words}" if event.memory else "host"


def _describe(event: RasEvent) -> str:
    if event.memory and event.corrected is False:
        return "uncorrectable memory errors (rasdaemon)"
    return f"rasdaemon, {event.kind}: {event.words}"


def _read_controllers(text: str) -> dict[str, dict[str, int]]:
    """Return controller -> its counts; {} where the kernel has no controller at all."""
    if all(_is_absent(line) for line in text.splitlines()):
        return {}
    files = parse_files(text)
    controllers = {
        name: parse_counts(facts)
        for name, facts in group_by_device(match_files(files, _FILE)).items()
    }
    if not controllers:
        raise Unreadable("EDAC: no memory controller in it")
    for name, counted in controllers.items():
        if not {"ce_count", "ue_count"} <= set(counted):
            raise Unreadable(f"EDAC: {name} does not count both kinds")
    return controllers


def _is_absent(line: str) -> bool:
    """Match "grep: /sys/.../ce_count: No such file or directory", or an empty line."""
    return not line.strip() or (
        line.startswith("grep: /sys/devices/system/edac/") and "No " in line
    )


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    text = read_output(evidence, MEMORY_ERRORS, any_exit=True)
    if looks_like_ras(text):
        listed = [e for e in read_ras_events(text)[1] if e.memory and e.corrected]
        corrected: dict[str, float] = {}
        for event in listed:
            name = f"memory_ce/{event.words[:60]}"
            corrected[name] = corrected.get(name, 0.0) + event.count
        return corrected
    return {
        f"memory_ce/{name}": counted["ce_count"]
        for name, counted in _read_controllers(text).items()
    }


CHECK = Check(
    "memory_errors", Gate.A, (MEMORY_ERRORS,), _findings, after_load=True, measure=_measure
)
