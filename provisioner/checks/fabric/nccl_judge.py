"""Judges one run of nccl-tests: all ranks, correct values, bandwidth of the largest message.

Wrong values are data corruption: the node is isolated, and the test is never repeated until it
passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.checks.check import CheckContext, fault
from provisioner.checks.readers.nccl_output import NcclRun
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.cohort import Finding, Severity

GIB = 1024**3


def judge_run(
    run: NcclRun,
    context: CheckContext,
    *,
    threshold: str,
    ranks: int,
    exit_code: int | None,
    collective: str,
    part: str = "host",
    message_gib: float | None = None,
) -> Iterator[Finding]:
    """Yield every fault of a run. Raises `NotJudged` where its floor is unknown.

    `message_gib` is the message size that the floor is for; None: that of the published floors.
    """
    if run.ranks != ranks:
        yield fault(part, Severity.CONFIG, f"ranks in the {collective}", run.ranks, ranks)
    # wrong values and a missed bandwidth also set the exit code; the content shows which it was
    if exit_code != 0 and run.bounds_ok and not run.average_failed:
        yield fault(part, Severity.CONFIG, f"the {collective} ended with an error", exit_code, 0)
    if run.wrong or not run.bounds_ok:
        yield fault(part, Severity.ISOLATE, f"the {collective} gave wrong values", run.wrong, 0)
    if run.average_failed:
        yield fault(part, Severity.ISOLATE, f"the {collective} missed NCCL_TESTS_MIN_BW")
    measured = average_bus_gb_s(run)
    low = check_threshold(context, threshold, measured)
    size = (
        message_gib if message_gib is not None else require_threshold(context, "nccl_message_gib")
    )
    if low is not None:
        yield fault(part, Severity.ISOLATE, f"the {collective} is below its floor", *low)
    elif run.largest.size < size * GIB:
        measured_size = f"{run.largest.size / GIB:.6g} GiB"
        detail = f"the largest message of the {collective} is not the one that the floor is for"
        yield fault(part, Severity.CONFIG, detail, measured_size, f"{size:.6g} GiB")


def average_bus_gb_s(run: NcclRun) -> float:
    """Return the mean bandwidth of the largest message, which clouds compare with floors."""
    return sum(run.largest.bus_gb_s) / len(run.largest.bus_gb_s)
