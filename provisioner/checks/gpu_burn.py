"""Every GPU computes without errors under full load, as fast as the others of its node.

The short burn is part of every validation, the long one belongs to gate D. No absolute floor is
published for gpu_burn, so each GPU is compared with the others of its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from provisioner.checks.check import Check, CheckContext, Command, Judge, Measure, fault
from provisioner.checks.readers.dcgm_document import read
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

# -tc: tensor cores; seconds (SuperBench: 900, docs/sources/health.md#burn)
SHORT = Command(name="gpu_burn", line="gpu_burn -tc 120", limit_s=300.0)
LONG = Command(name="gpu_burn_long", line="gpu_burn -tc 900", limit_s=1200.0)


def _make_judge(command: Command) -> Judge:
    def findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
        burned = read(read_output(evidence, command, any_exit=True))
        if len(burned) != context.gpus:
            yield fault("host", Severity.ISOLATE, "GPUs that burned", len(burned), context.gpus)
        for gpu in burned:
            part = f"GPU {gpu.gpu}"
            if gpu.errors:
                yield fault(part, Severity.ISOLATE, "wrong results under load", gpu.errors, 0)
            if gpu.died:
                yield fault(part, Severity.ISOLATE, "its process died under load")
            elif not gpu.ok and not gpu.errors:
                yield fault(part, Severity.ISOLATE, "gpu_burn calls it faulty")
        code = evidence[command.name].exit_code
        if code != 0 and all(g.ok for g in burned):
            yield fault("host", Severity.CONFIG, "the burn ended with an error", code, 0)
        middle = median(gpu.gflop_s for gpu in burned)
        share = require_threshold(context, "burn_of_median")
        for gpu in burned:
            if gpu.gflop_s < share * middle or gpu.gflop_s <= 0:
                yield fault(
                    f"GPU {gpu.gpu}",
                    Severity.ISOLATE,
                    "slower under load than the other GPUs of the node",
                    f"{gpu.gflop_s} GFLOP/s",
                    f"at least {share * middle:.0f} GFLOP/s",
                )

    return findings


def _make_measure(command: Command) -> Measure:
    def measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
        burned = read(read_output(evidence, command, any_exit=True))
        return {f"burn_gflop_s/GPU {g.gpu}": float(g.gflop_s) for g in burned}

    return measure


CHECK = Check(
    "gpu_burn",
    Gate.B,
    (SHORT,),
    _make_judge(SHORT),
    load=True,
    measure=_make_measure(SHORT),
    thresholds=("burn_of_median",),
)
CHECK_LONG = Check(
    "gpu_burn_long",
    Gate.D,
    (LONG,),
    _make_judge(LONG),
    load=True,
    measure=_make_measure(LONG),
    thresholds=("burn_of_median",),
)
