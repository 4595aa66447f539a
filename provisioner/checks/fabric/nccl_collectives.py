"""The other collectives on one node: values must be correct, bandwidth is compared with a floor.

No source publishes floors for these: until they are learned from the fleet, the check is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command
from provisioner.checks.fabric.nccl_judge import average_bus_gb_s, judge_run
from provisioner.checks.readers.nccl_output import read
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.cohort import Evidence, Finding, Gate

# command -> threshold
_COLLECTIVES = {
    Command(
        name=f"nccl_{name}", line=f"{name}_perf -b 16G -e 16G -f 2 -g 8 -c 1", limit_s=600.0
    ): f"{name}_gb_s"
    for name in ("all_gather", "reduce_scatter", "alltoall")
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    # all outputs are read before a missing threshold ends the judgement
    runs = {c: read(read_output(evidence, c, any_exit=True)) for c in _COLLECTIVES}
    for command, run in runs.items():
        yield from judge_run(
            run,
            context,
            threshold=_COLLECTIVES[command],
            ranks=context.gpus,
            exit_code=evidence[command.name].exit_code,
            collective=command.line.split("_perf")[0],
        )


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return {
        f"{threshold}/host": average_bus_gb_s(read(read_output(evidence, command, any_exit=True)))
        for command, threshold in _COLLECTIVES.items()
    }


CHECK = Check(
    "nccl_collectives",
    Gate.D,
    tuple(_COLLECTIVES),
    _findings,
    load=True,
    measure=_measure,
    thresholds=tuple(_COLLECTIVES.values()),
)
