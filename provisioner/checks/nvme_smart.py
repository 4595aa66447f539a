"""Every NVMe drive has no warning and no media error, is not worn out and has spare blocks.

Reads `smartctl -xj` and `nvme smart-log -o json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth_per_device, find_before_load
from provisioner.checks.readers.tool_output import (
    END,
    parse_documents,
    parse_number,
    read_output,
    require_object,
)
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

NVME_SMART = Command(
    name="nvme_smart",
    line="for d in $(ls /dev | grep -E '^nvme[0-9]+$'); do echo drive $d;"
    f" smartctl -xj /dev/$d; done; {END}",
    limit_s=120.0,
)

_LOG = "nvme_smart_health_information_log"
# bits of smartctl's exit status (smartctl(8), "EXIT STATUS"). That a command failed (bit 2) or that
# there are old errors (bits 5 to 7) is usual for NVMe, whose logs are optional.
_NOT_ASKED = 0b11  # its command line, or the device, could not be opened
_FAILING = 0b1000  # "SMART status check returned DISK FAILING"
_GROUPS = "endurance_grp_critical_warning_summary"
# name here -> names in smartctl and in nvme-cli
_NAMES = {
    "critical_warning": ("critical_warning",),
    "available_spare": ("available_spare", "avail_spare"),
    "available_spare_threshold": ("available_spare_threshold", "spare_thresh"),
    "percentage_used": ("percentage_used", "percent_used"),
    "media_errors": ("media_errors",),
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    drives = _read_drives(evidence)
    if len(drives) < context.drives:
        yield fault("host", Severity.ISOLATE, "NVMe drives", len(drives), context.drives)
    for part, facts in drives.items():
        if facts["critical_warning"]:
            detail = "a critical warning (bits of NVMe's SMART log)"
            yield fault(part, Severity.ISOLATE, detail, facts["critical_warning"], 0)
        if not facts["passed"]:
            yield fault(part, Severity.ISOLATE, "its own health status", "failed", "passed")
        spare = facts["available_spare"]
        least = facts["available_spare_threshold"]
        if spare < least:
            yield fault(part, Severity.ISOLATE, "spare blocks", f"{spare} %", f"{least} %")
        used = facts["percentage_used"]
        if missed := check_threshold(context, "nvme_used", used):
            yield fault(part, Severity.ISOLATE, "worn out", *missed)
        elif missed := check_threshold(context, "nvme_used_watch", used):
            yield fault(part, Severity.MONITOR, "worn", *missed)
    before = find_before_load(evidence, NVME_SMART)
    if before is None:
        if not drives:
            yield fault("host", Severity.CONFIG, "no NVMe drive reports its health")
        return
    had = {
        part: {"media_errors": facts["media_errors"]}
        for part, facts in _read_drives(before).items()
    }
    now = {part: {"media_errors": facts["media_errors"]} for part, facts in drives.items()}
    for part, growth in compute_growth_per_device(had, now, "SMART").items():
        if growth["media_errors"]:
            detail = "media errors during a load test"
            yield fault(part, Severity.ISOLATE, detail, growth["media_errors"], 0)


def _read_drives(evidence: Mapping[str, Evidence]) -> dict[str, dict[str, int]]:
    """Return drive -> its facts. Raises `Unreadable` for a drive that does not report all."""
    drives: dict[str, dict[str, int]] = {}
    # its exit code is that of the last drive; each document has that of its own
    text = read_output(evidence, NVME_SMART, any_exit=True)
    for at, (above, document) in enumerate(parse_documents(text, "smartctl")):
        whole_one = require_object(document, "smartctl")
        device = require_object(whole_one.get("device", {}), "device")
        name = above.removeprefix("drive ") if above.startswith("drive ") else f"nvme {at}"
        part = str(device.get("name", name))[:60]
        if part in drives:
            raise Unreadable(f"smartctl: {part} is listed twice")
        log = require_object(whole_one.get(_LOG, whole_one), "log")
        facts = {name: _read_fact(log, part, *names) for name, names in _NAMES.items()}
        passed = require_object(whole_one.get("smart_status", {"passed": True}), "status").get(
            "passed"
        )
        if not isinstance(passed, bool):
            raise Unreadable(f"smartctl: {part} does not report whether it passed")
        status = _read_exit(whole_one, part)
        passed = passed and not status & _FAILING
        if _GROUPS in log:  # NVMe 2.0: a warning of an endurance group, by nvme-cli
            facts["critical_warning"] |= _read_fact(log, part, _GROUPS)
        drives[part] = {**facts, "passed": int(passed)}
    if text.count("drive nvme") > len(drives):
        raise Unreadable("smartctl: a drive did not answer")
    return drives


def _read_exit(document: Mapping[str, Any], part: str) -> int:
    """Return smartctl's own exit status. Raises `Unreadable` for a drive that it could not ask."""
    tool = require_object(document.get("smartctl", {}), "smartctl")
    status = tool.get("exit_status", 0)
    if not isinstance(status, int) or isinstance(status, bool) or status & _NOT_ASKED:
        raise Unreadable(f"smartctl: {part}: exit status {str(status)[:20]}")
    return status


def _read_fact(log: Mapping[str, Any], part: str, *names: str) -> int:
    value = next((log[name] for name in names if name in log), None)
    if isinstance(value, dict):  # nvme-cli 2 splits the warning's bits
        if not value.get("value") and any(value.values()):
            raise Unreadable(f"smartctl: {part} contradicts itself in {names[0]}")
        value = value.get("value")
    if value is None:
        raise Unreadable(f"smartctl: {part} does not report {names[0]}")
    read = parse_number(value, names[0])
    if read < 0 or read != int(read):
        raise Unreadable(f"smartctl: {names[0]} is {read}")
    return int(read)


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return {
        f"percentage_used/{part}": facts["percentage_used"]
        for part, facts in _read_drives(evidence).items()
    }


CHECK = Check(
    "nvme_smart",
    Gate.A,
    (NVME_SMART,),
    _findings,
    after_load=True,
    measure=_measure,
    thresholds=("nvme_used", "nvme_used_watch"),
)
