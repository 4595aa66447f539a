"""Every GPU is below its own temperature limits, and its power limit is that of its model.

The limits are the part's own: since Hopper the driver gives margins ("GPU T.Limit Temp": degrees
until the clocks slow), earlier drivers give temperatures. Power limits are those of DCGM's table of
parts (`nvvs/diag-skus.yaml.in`: 700, 700 and 1000 W). `bmc_sensors` judges the server's sensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, NotJudged, Unreadable, fault
from provisioner.checks.readers.smi_query import SMI_QUERY, GpuFacts, read_gpus
from provisioner.checks.readers.tool_output import (
    parse_number,
    read_output,
    require_object,
    split_lines,
)
from provisioner.checks.thresholds import find
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_POWER = ("GPU Power Readings", "Power Readings")
_DRAW = ("Average Power Draw", "Power Draw", "Instantaneous Power Draw")
_LIMIT = ("Current Power Limit", "Enforced Power Limit", "Power Limit")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if _is_monitor(evidence):
        _read_monitored(evidence)
        raise NotJudged("a record of a monitor holds no limits")
    for gpu in read_gpus(evidence, context):
        yield from _judge_temperature(gpu)
        limit = _read_power(gpu, *_LIMIT)
        required = _find_required_limit(gpu, context)
        if limit is None or required is None:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not report its power limit")
        if limit < required:
            detail = "the power limit is below that of its model"
            yield fault(gpu.part, Severity.CONFIG, detail, f"{limit:.0f} W", f"{required:.0f} W")


def _find_required_limit(gpu: GpuFacts, context: CheckContext) -> float | None:
    """Return the model's power limit; for an unknown model, the driver's default limit."""
    limit = find(context, "power_limit_w").value
    return _read_power(gpu, "Default Power Limit") if limit is None else limit


def _judge_temperature(gpu: GpuFacts) -> Iterator[Finding]:
    now = gpu.get_quantity("Temperature/GPU Current Temp")
    margin = gpu.get_quantity("Temperature/GPU T.Limit Temp")
    least = gpu.get_quantity(
        "Temperature/GPU Max Operating T.Limit Temp",
        "Temperature/GPU Max Operating T.Limit Temp Specification",  # newer drivers' name
    )
    most = gpu.get_quantity("Temperature/GPU Max Operating Temp", "Temperature/GPU Slowdown Temp")
    if now is None or ((margin is None or least is None) and most is None):
        raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not report its temperature and its limit")
    if margin is not None and least is not None and margin <= least:
        yield _report_heat(
            gpu, "GPU", f"{margin:.0f} C of margin", f"above {least:.0f} C of margin"
        )
    elif most is not None and now >= most:
        yield _report_heat(gpu, "GPU", f"{now:.0f} C", f"below {most:.0f} C")
    memory = gpu.get_quantity("Temperature/Memory Current Temp")
    memory_most = gpu.get_quantity("Temperature/Memory Max Operating Temp")
    if memory is not None and memory_most is not None and memory >= memory_most:
        yield _report_heat(gpu, "memory", f"{memory:.0f} C", f"below {memory_most:.0f} C")


def _report_heat(gpu: GpuFacts, subject: str, measured: str, required: str) -> Finding:
    return fault(gpu.part, Severity.ISOLATE, f"the {subject} is too hot", measured, required)


def _read_power(gpu: GpuFacts, *names: str) -> float | None:
    """Return the first of these readings, from either of the two sections that drivers have."""
    return gpu.get_quantity(*(f"{section}/{name}" for name in names for section in _POWER))


def _is_monitor(evidence: Mapping[str, Evidence]) -> bool:
    return read_output(evidence, SMI_QUERY).lstrip().startswith('{"time"')


def _read_monitored(evidence: Mapping[str, Evidence]) -> dict[str, float]:
    """Return each GPU's highest temperature in the JSON lines of SuperBench's monitor."""
    hottest: dict[str, float] = {}
    for line in split_lines(read_output(evidence, SMI_QUERY)):
        try:
            record = require_object(json.loads(line), "record")
        except (ValueError, RecursionError):
            raise Unreadable("monitor: a line is not JSON, or cut short") from None
        for name, value in record.items():
            kind, _, index = name.partition(":")
            if kind == "gpu_temperature":
                part = f"gpu_temperature_c/GPU {index[:3]}"
                hottest[part] = max(hottest.get(part, -273.0), parse_number(value, name))
    if not hottest:
        raise Unreadable("monitor: no temperature in it")
    return hottest


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    if _is_monitor(evidence):
        return _read_monitored(evidence)
    measured: dict[str, float] = {}
    for gpu in read_gpus(evidence, context):
        for name, value in (
            ("gpu_temperature_c", gpu.get_quantity("Temperature/GPU Current Temp")),
            ("memory_temperature_c", gpu.get_quantity("Temperature/Memory Current Temp")),
            ("power_w", _read_power(gpu, *_DRAW)),
        ):
            if value is not None:
                measured[f"{name}/{gpu.part}"] = value
    return measured


CHECK = Check(
    "temperatures",
    Gate.A,
    (SMI_QUERY,),
    _findings,
    after_load=True,
    measure=_measure,
    thresholds=("power_limit_w",),
)
