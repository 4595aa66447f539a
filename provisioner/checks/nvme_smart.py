"""E15: every NVMe drive is free of warnings, not worn out, with spare blocks, and loses no data.

Reads `smartctl -xj` and `nvme smart-log -o json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier, per_device
from provisioner.checks.readers.reading import END, documents_of, mapping, number, text_of
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

NVME_SMART = Command(
    name="nvme_smart",
    line="for d in $(ls /dev | grep -E '^nvme[0-9]+$'); do echo drive $d;"
    f" smartctl -xj /dev/$d; done; {END}",
    limit_s=120.0,
)

_LOG = "nvme_smart_health_information_log"
# one name here -> the names in smartctl and in nvme-cli
_NAMES = {
    "critical_warning": ("critical_warning",),
    "available_spare": ("available_spare", "avail_spare"),
    "available_spare_threshold": ("available_spare_threshold", "spare_thresh"),
    "percentage_used": ("percentage_used", "percent_used"),
    "media_errors": ("media_errors",),
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    drives = _read(evidence)
    if len(drives) < context.drives:
        yield fault("host", Severity.ISOLATE, "NVMe drives", len(drives), context.drives)
    for part, facts in drives.items():
        if facts["critical_warning"]:
            words = "a critical warning (bits of NVMe's SMART log)"
            yield fault(part, Severity.ISOLATE, words, facts["critical_warning"], 0)
        if not facts["passed"]:
            yield fault(part, Severity.ISOLATE, "its own health status", "failed", "passed")
        spare, least = facts["available_spare"], facts["available_spare_threshold"]
        if spare < least:
            yield fault(part, Severity.ISOLATE, "spare blocks", f"{spare} %", f"{least} %")
        used = facts["percentage_used"]
        if missed := misses(context, "nvme_used", used):
            yield fault(part, Severity.ISOLATE, "worn out", *missed)
        elif missed := misses(context, "nvme_used_watch", used):
            yield fault(part, Severity.MONITOR, "worn", *missed)
    before = earlier(evidence, NVME_SMART)
    if before is None:
        if not drives:
            yield fault("host", Severity.CONFIG, "no NVMe drive tells its health")
        return
    had = {part: {"media_errors": facts["media_errors"]} for part, facts in _read(before).items()}
    now = {part: {"media_errors": facts["media_errors"]} for part, facts in drives.items()}
    for part, growth in per_device(had, now, "SMART").items():
        if growth["media_errors"]:
            words = "media errors during a load test"
            yield fault(part, Severity.ISOLATE, words, growth["media_errors"], 0)


def _read(evidence: Mapping[str, Evidence]) -> dict[str, dict[str, int]]:
    """Drive -> its facts. Raises `Unreadable` for a drive that does not tell all."""
    drives: dict[str, dict[str, int]] = {}
    # smartctl's exit code has bits for what the document says in words
    text = text_of(evidence, NVME_SMART, any_exit=True)
    for at, (above, document) in enumerate(documents_of(text, "smartctl")):
        whole_one = mapping(document, "smartctl")
        device = mapping(whole_one.get("device", {}), "device")
        name = above.removeprefix("drive ") if above.startswith("drive ") else f"nvme {at}"
        part = str(device.get("name", name))[:60]
        if part in drives:
            raise Unreadable(f"smartctl: {part} is listed twice")
        log = mapping(whole_one.get(_LOG, whole_one), "log")
        facts = {name: _fact(log, part, *names) for name, names in _NAMES.items()}
        passed = mapping(whole_one.get("smart_status", {"passed": True}), "status").get("passed")
        if not isinstance(passed, bool):
            raise Unreadable(f"smartctl: {part} does not say whether it passed")
        drives[part] = {**facts, "passed": int(passed)}
    if text.count("drive nvme") > len(drives):
        raise Unreadable("smartctl: a drive did not answer")
    return drives


def _fact(log: Mapping[str, Any], part: str, *names: str) -> int:
    value = next((log[name] for name in names if name in log), None)
    if isinstance(value, dict):  # nvme-cli 2 splits the warning's bits
        value = value.get("value")
    if value is None:
        raise Unreadable(f"smartctl: {part} does not say {names[0]}")
    read = number(value, names[0])
    if read < 0 or read != int(read):
        raise Unreadable(f"smartctl: {names[0]} is {read}")
    return int(read)


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return {
        f"percentage_used/{part}": facts["percentage_used"]
        for part, facts in _read(evidence).items()
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
