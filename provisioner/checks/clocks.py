"""A GPU's clocks are slowed only by idleness or by the software power cap.

Azure's health checks allow the same states and warn of every other one. The section is called
"Clocks Throttle Reasons" up to driver 535 and "Clocks Event Reasons" in later drivers; a table of
`--query-gpu` has `clocks_throttle_reasons.*` or `clocks_event_reasons.*`, one column per reason or
one mask (NVML's constants, `nvmlClocksEventReason*`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.smi_query import (
    NOT_THERE,
    SMI_QUERY,
    Row,
    find_unresponsive,
    read_gpus,
    read_table,
)
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_ALLOWED = frozenset({"Idle", "SW Power Cap"})
_HARDWARE = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown")
_STATES = {"Active": True, "Not Active": False}
_COLUMN = re.compile(r"^clocks_(?:throttle|event)_reasons\.(\w{1,40})$")
# bit and column of NVML -> name in `nvidia-smi -q`
_BITS = (
    (0x1, "gpu_idle", "Idle"),
    (0x2, "applications_clocks_setting", "Applications Clocks Setting"),
    (0x4, "sw_power_cap", "SW Power Cap"),
    (0x8, "hw_slowdown", "HW Slowdown"),
    (0x10, "sync_boost", "Sync Boost"),
    (0x20, "sw_thermal_slowdown", "SW Thermal Slowdown"),
    (0x40, "hw_thermal_slowdown", "HW Thermal Slowdown"),
    (0x80, "hw_power_brake_slowdown", "HW Power Brake Slowdown"),
    (0x100, "display_clock_setting", "Display Clock Setting"),
)
_NAMES = {column: words for _, column, words in _BITS}
_NO_REASON = ("active", "supported")  # masks beside the single reasons
Reasons = dict[str, str]  # name -> state


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if "NVSMI LOG" in read_output(evidence, SMI_QUERY):
        for gpu in read_gpus(evidence, context):
            section = gpu.get_section("Clocks Event Reasons", "Clocks Throttle Reasons")
            named = {path.rpartition("/")[2]: state for path, state in sorted(section.items())}
            yield from _judge_reasons(gpu.part, named)
        return
    rows = read_table(evidence, SMI_QUERY)
    if len(rows) != context.gpus:
        yield fault(
            "host", Severity.ISOLATE, "GPUs that report clock states", len(rows), context.gpus
        )
    for at, row in enumerate(rows):
        part = f"GPU {row.get('index', row.get('pci.bus_id', row.get('uuid', at)))}"
        unresponsive = find_unresponsive(row, part)
        yield from (
            (unresponsive,)
            if unresponsive is not None
            else _judge_reasons(part, _read_reasons(row))
        )


def _judge_reasons(part: str, reasons: Reasons) -> Iterator[Finding]:
    for name in _HARDWARE:
        if reasons.get(name, "") in NOT_THERE:
            raise Unreadable(f"nvidia-smi: {part} does not report {name}")
    for name, state in reasons.items():
        if state in NOT_THERE:
            continue
        if state not in _STATES:
            if name.endswith(("Counters", "us")) or state[:1].isdigit():
                continue  # newer drivers list counters in microseconds beside the states
            raise Unreadable(f"nvidia-smi: {name} is {state[:40]!r}")
        if _STATES[state] and name not in _ALLOWED:
            severity = Severity.ISOLATE if name in _HARDWARE else Severity.MONITOR
            yield fault(part, severity, f"the clocks are slowed: {name}", state)


def _read_reasons(row: Row) -> Reasons:
    reasons: Reasons = {}
    for column, cell in row.items():
        match = _COLUMN.match(column)
        if match is not None and match[1] not in _NO_REASON:
            reasons[_NAMES.get(match[1], match[1])] = cell
        elif match is not None and match[1] == "active":
            mask = _parse_mask(cell)
            for bit, _, name in _BITS:
                reasons.setdefault(name, "Active" if mask & bit else "Not Active")
            if unnamed := mask & ~sum(bit for bit, _, _ in _BITS):
                reasons[f"reason {unnamed:#x}"] = "Active"
    return reasons


def _parse_mask(cell: str) -> int:
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
        raise Unreadable(f"nvidia-smi: the reasons are {cell[:40]!r}")
    return int(cell, 16)


CHECK = Check("clocks", Gate.A, (SMI_QUERY,), _findings, after_load=True)
