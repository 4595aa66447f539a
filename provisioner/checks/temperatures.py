"""E11: every GPU is below its own limits of temperature, at the power limit of its model.

Limits are the part's own: since Hopper the driver gives margins ("GPU T.Limit Temp": degrees left
until the clocks slow), before that temperatures. Power limits are those of DCGM's table of parts
(`nvvs/diag-skus.yaml.in`: 700, 700 and 1000 W). Sensors of the server are judged by `bmc_sensors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, NotJudged, Unreadable, fault
from provisioner.checks.readers.reading import lines_of, mapping, number, text_of
from provisioner.checks.readers.smi_query import SMI_QUERY, GpuFacts, gpus
from provisioner.checks.thresholds import find
from provisioner.model.health import Evidence, Finding, Gate, Severity

_POWER = ("GPU Power Readings", "Power Readings")
_DRAW = ("Average Power Draw", "Power Draw", "Instantaneous Power Draw")
_LIMIT = ("Current Power Limit", "Enforced Power Limit", "Power Limit")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if _is_monitor(evidence):
        _monitored(evidence)
        raise NotJudged("a record of a monitor holds no limits")
    for gpu in gpus(evidence, context):
        yield from _temperature(gpu)
        limit = _power(gpu, *_LIMIT)
        wanted = _wanted(gpu, context)
        if limit is None or wanted is None:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say its power limit")
        if limit < wanted:
            words = "the power limit is below that of its model"
            yield fault(gpu.part, Severity.CONFIG, words, f"{limit:.0f} W", f"{wanted:.0f} W")


def _wanted(gpu: GpuFacts, context: CheckContext) -> float | None:
    """The model's power limit; of a model that is not known, what the driver calls its default."""
    limit = find(context, "power_limit_w").value
    return _power(gpu, "Default Power Limit") if limit is None else limit


def _temperature(gpu: GpuFacts) -> Iterator[Finding]:
    now = gpu.quantity("Temperature/GPU Current Temp")
    margin = gpu.quantity("Temperature/GPU T.Limit Temp")
    least = gpu.quantity(
        "Temperature/GPU Max Operating T.Limit Temp",
        "Temperature/GPU Max Operating T.Limit Temp Specification",  # newer drivers' name
    )
    most = gpu.quantity("Temperature/GPU Max Operating Temp", "Temperature/GPU Slowdown Temp")
    if now is None or ((margin is None or least is None) and most is None):
        raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say its temperature and its limit")
    if margin is not None and least is not None and margin <= least:
        yield _hot(gpu, "GPU", f"{margin:.0f} C of margin", f"above {least:.0f} C of margin")
    elif most is not None and now >= most:
        yield _hot(gpu, "GPU", f"{now:.0f} C", f"below {most:.0f} C")
    memory = gpu.quantity("Temperature/Memory Current Temp")
    memory_most = gpu.quantity("Temperature/Memory Max Operating Temp")
    if memory is not None and memory_most is not None and memory >= memory_most:
        yield _hot(gpu, "memory", f"{memory:.0f} C", f"below {memory_most:.0f} C")


def _hot(gpu: GpuFacts, what: str, measured: str, wanted: str) -> Finding:
    return fault(gpu.part, Severity.ISOLATE, f"the {what} is too hot", measured, wanted)


def _power(gpu: GpuFacts, *names: str) -> float | None:
    """The first of these readings, from whichever of the two sections this driver has."""
    return gpu.quantity(*(f"{section}/{name}" for name in names for section in _POWER))


def _is_monitor(evidence: Mapping[str, Evidence]) -> bool:
    return text_of(evidence, SMI_QUERY).lstrip().startswith('{"time"')


def _monitored(evidence: Mapping[str, Evidence]) -> dict[str, float]:
    """The hottest that SuperBench's monitor saw each GPU, from its lines of JSON."""
    hottest: dict[str, float] = {}
    for line in lines_of(text_of(evidence, SMI_QUERY)):
        try:
            record = mapping(json.loads(line), "record")
        except (ValueError, RecursionError):
            raise Unreadable("monitor: a line is not JSON, or cut short") from None
        for name, value in record.items():
            kind, _, index = name.partition(":")
            if kind == "gpu_temperature":
                part = f"gpu_temperature_c/GPU {index[:3]}"
                hottest[part] = max(hottest.get(part, -273.0), number(value, name))
    if not hottest:
        raise Unreadable("monitor: no temperature in it")
    return hottest


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    if _is_monitor(evidence):
        return _monitored(evidence)
    found: dict[str, float] = {}
    for gpu in gpus(evidence, context):
        for name, value in (
            ("gpu_temperature_c", gpu.quantity("Temperature/GPU Current Temp")),
            ("memory_temperature_c", gpu.quantity("Temperature/Memory Current Temp")),
            ("power_w", _power(gpu, *_DRAW)),
        ):
            if value is not None:
                found[f"{name}/{gpu.part}"] = value
    return found


CHECK = Check(
    "temperatures",
    Gate.A,
    (SMI_QUERY,),
    _findings,
    after_load=True,
    measure=_measure,
    thresholds=("power_limit_w",),
)
