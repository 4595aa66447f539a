"""T2: host to GPU and GPU to host bandwidth of every GPU is above its floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import NVBANDWIDTH
from provisioner.checks.reading import json_of, mapping, number, sequence, text_of
from provisioner.checks.thresholds import known, thresholds
from provisioner.model.health import Evidence, Finding, Gate, Severity

_CASES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    document = mapping(json_of(text_of(evidence, NVBANDWIDTH), "nvbandwidth"), "nvbandwidth")
    body = mapping(document.get("nvbandwidth"), "nvbandwidth")
    cases: dict[str, Mapping[str, Any]] = {}
    for listed in sequence(body.get("testcases"), "testcases"):
        case = mapping(listed, "testcase")
        cases[str(case.get("name"))] = case
    floor = known(
        thresholds(context.gpu_model).host_gpu_gb_s, "host to GPU bandwidth", context.gpu_model
    )
    for name in _CASES:
        if name not in cases:
            raise Unreadable(f"nvbandwidth: {name} is not in it")
        yield from _case(name, cases[name], floor, context)


def _case(
    name: str, case: Mapping[str, Any], floor: float, context: CheckContext
) -> Iterator[Finding]:
    status = case.get("status")
    if status != "Passed":  # "Waived" is no pass
        yield fault("host", Severity.CONFIG, f"{name}: not passed", status, "Passed")
        return
    cells = [
        cell
        for row in sequence(case.get("bandwidth_matrix"), "bandwidth_matrix")
        for cell in sequence(row, "bandwidth_matrix")
    ]
    if len(cells) != context.gpus:
        yield fault("host", Severity.ISOLATE, f"{name}: GPUs", len(cells), context.gpus)
    for index, cell in enumerate(cells):
        measured = number(cell, name)
        if measured < floor:
            yield fault(
                f"GPU {index}",
                Severity.ISOLATE,
                f"{name} is below its floor",
                f"{measured:.1f} GB/s",
                f"{floor:.1f} GB/s",
            )


CHECK = Check("nvbandwidth", Gate.B, (NVBANDWIDTH,), _findings, load=True)
