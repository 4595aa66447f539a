"""An all-reduce over all GPUs of the node gives correct values and reaches its floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext
from provisioner.checks.commands import NCCL
from provisioner.checks.fabric.nccl_judge import average_bus_gb_s, judge_run
from provisioner.checks.readers.nccl_output import read
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.cohort import Evidence, Finding, Gate

_THRESHOLD = "all_reduce_gb_s"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    run = read(read_output(evidence, NCCL, any_exit=True))
    yield from judge_run(
        run,
        context,
        threshold=_THRESHOLD,
        ranks=context.gpus,
        exit_code=evidence[NCCL.name].exit_code,
        collective="all-reduce",
    )


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return {
        f"{_THRESHOLD}/host": average_bus_gb_s(read(read_output(evidence, NCCL, any_exit=True)))
    }


CHECK = Check(
    "nccl_single",
    Gate.B,
    (NCCL,),
    _findings,
    load=True,
    measure=_measure,
    thresholds=(_THRESHOLD, "nccl_message_gib"),
)
