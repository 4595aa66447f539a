"""E10: nothing slows a GPU's clocks down but idleness and the power cap that software sets.

Azure's health checks allow the same three states and warn of every other. The section is called
"Clocks Throttle Reasons" up to driver 535 and "Clocks Event Reasons" from there on; a table of
`--query-gpu` has them as `clocks_throttle_reasons.*` and `clocks_event_reasons.*`, one by one or as
a mask (NVML's constants, `nvmlClocksEventReason*`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.reading import text_of
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, gpus
from provisioner.checks.readers.smi_table import Row, silent, table
from provisioner.model.health import Evidence, Finding, Gate, Severity

_ALLOWED = frozenset({"Idle", "SW Power Cap"})
_HARDWARE = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown")
_STATES = {"Active": True, "Not Active": False}
_COLUMN = re.compile(r"^clocks_(?:throttle|event)_reasons\.(\w{1,40})$")
# bit and column of NVML -> the words of `nvidia-smi -q`
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
Reasons = dict[str, str]  # words -> state


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if "NVSMI LOG" in text_of(evidence, SMI_QUERY):
        for gpu in gpus(evidence, context):
            found = gpu.section("Clocks Event Reasons", "Clocks Throttle Reasons")
            named = {path.rpartition("/")[2]: state for path, state in sorted(found.items())}
            yield from _judged(gpu.part, named)
        return
    rows = table(evidence, SMI_QUERY)
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that tell", len(rows), context.gpus)
    for at, row in enumerate(rows):
        part = f"GPU {row.get('index', row.get('pci.bus_id', row.get('uuid', at)))}"
        gone = silent(row, part)
        yield from (gone,) if gone is not None else _judged(part, _of_row(row))


def _judged(part: str, reasons: Reasons) -> Iterator[Finding]:
    for name in _HARDWARE:
        if reasons.get(name, "") in NOT_THERE:
            raise Unreadable(f"nvidia-smi: {part} does not say {name}")
    for name, state in reasons.items():
        if state in NOT_THERE:
            continue
        if state not in _STATES:
            if name.endswith(("Counters", "us")) or state[:1].isdigit():
                continue  # newer drivers list counters of microseconds beside the states
            raise Unreadable(f"nvidia-smi: {name} is {state[:40]!r}")
        if _STATES[state] and name not in _ALLOWED:
            severity = Severity.ISOLATE if name in _HARDWARE else Severity.MONITOR
            yield fault(part, severity, f"the clocks are slowed: {name}", state)


def _of_row(row: Row) -> Reasons:
    """The reasons of a row, from single columns and from the mask."""
    found: Reasons = {}
    for column, cell in row.items():
        match = _COLUMN.match(column)
        if match is not None and match[1] not in _NO_REASON:
            found[_NAMES.get(match[1], match[1])] = cell
        elif match is not None and match[1] == "active":
            mask = _mask(cell)
            for bit, _, words in _BITS:
                found.setdefault(words, "Active" if mask & bit else "Not Active")
            if rest := mask & ~sum(bit for bit, _, _ in _BITS):
                found[f"reason {rest:#x}"] = "Active"
    return found


def _mask(cell: str) -> int:
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell):
        raise Unreadable(f"nvidia-smi: the reasons are {cell[:40]!r}")
    return int(cell, 16)


CHECK = Check("clocks", Gate.A, (SMI_QUERY,), _findings, after_load=True)
