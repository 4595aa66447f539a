"""Judges one run of nccl-tests: all ranks, right values, and the bandwidth of its largest message.

Wrong values are data corruption: the node is isolated, the test is never tried again until it
passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.checks.check import CheckContext, fault
from provisioner.checks.readers.nccl_output import Nccl
from provisioner.checks.thresholds import floor, misses
from provisioner.model.health import Finding, Severity

GIB = 1024**3


def judge_run(
    run: Nccl,
    context: CheckContext,
    *,
    threshold: str,
    ranks: int,
    exit_code: int | None,
    what: str,
    part: str = "host",
    message_gib: float | None = None,
) -> Iterator[Finding]:
    """Everything that is wrong with a run; `NotJudged` where its floor is not known.

    `message_gib`: the message that the floor is for; None: that of the published floors.
    """
    if run.ranks != ranks:
        yield fault(part, Severity.CONFIG, f"ranks in the {what}", run.ranks, ranks)
    # wrong values and a missed bandwidth end with an exit code too: the content says which
    if exit_code != 0 and run.bounds_ok and not run.average_failed:
        yield fault(part, Severity.CONFIG, f"the {what} ended with an error", exit_code, 0)
    if run.wrong or not run.bounds_ok:
        yield fault(part, Severity.ISOLATE, f"the {what} gave wrong values", run.wrong, 0)
    if run.average_failed:
        yield fault(part, Severity.ISOLATE, f"the {what} missed NCCL_TESTS_MIN_BW")
    measured = bus_gb_s(run)
    low = misses(context, threshold, measured)
    size = message_gib if message_gib is not None else floor(context, "nccl_message_gib")
    if low is not None:
        yield fault(part, Severity.ISOLATE, f"the {what} is below its floor", *low)
    elif run.largest.size < size * GIB:
        told = f"{run.largest.size / GIB:.6g} GiB"
        detail = f"the largest message of the {what} is not the one that the floor is for"
        yield fault(part, Severity.CONFIG, detail, told, f"{size:.6g} GiB")


def bus_gb_s(run: Nccl) -> float:
    """What the clouds hold against their floors: the mean of the largest message's bandwidths."""
    return sum(run.largest.bus_gb_s) / len(run.largest.bus_gb_s)
