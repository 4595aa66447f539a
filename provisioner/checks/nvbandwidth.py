"""Every GPU to and from the host, and every GPU to every other, reaches its floor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import NVBANDWIDTH
from provisioner.checks.readers.nvbandwidth_output import Case, read_cases
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

# test case -> its threshold
_HOST = {"host_to_device_memcpy_ce": "host_gpu_gb_s", "device_to_host_memcpy_ce": "host_gpu_gb_s"}
_PAIRS = {"device_to_device_memcpy_read_ce": "gpu_gpu_gb_s"}
Low = tuple[str, str]  # (measured, required)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cases = read_cases(read_output(evidence, NVBANDWIDTH))
    if not cases:
        raise Unreadable("nvbandwidth: no test case in it")
    # cases that did not run are reported before a missing threshold ends the judgement
    for name in (*_HOST, *_PAIRS):
        yield from _judge_completeness(name, cases.get(name), context)
    for name, threshold in _HOST.items():
        yield from _judge_host_links(name, threshold, cases.get(name), context)
    for name, threshold in _PAIRS.items():
        yield from _judge_pairs(name, threshold, cases.get(name), context)


def _judge_completeness(name: str, case: Case | None, context: CheckContext) -> Iterator[Finding]:
    """Yield a finding unless the case passed, with one row of all GPUs or one row per GPU."""
    if case is None or case.status != "Passed":  # "Waived" is no pass
        status = case.status if case is not None else "not run"
        yield fault("host", Severity.CONFIG, f"{name}: not passed", status, "Passed")
        return
    columns = len(case.matrix[0])
    rows = 1 if name in _HOST else columns
    if columns != context.gpus:
        yield fault("host", Severity.ISOLATE, f"{name}: GPUs", columns, context.gpus)
    if len(case.matrix) != rows:
        yield fault("host", Severity.CONFIG, f"{name}: rows", len(case.matrix), rows)
    holes = sum(cell is None for row in case.matrix for cell in row)
    if holes != (rows if name in _PAIRS else 0):  # N/A is correct only on the diagonal
        yield fault("host", Severity.CONFIG, f"{name}: cells without a value", holes)


def _judge_host_links(
    name: str, threshold: str, case: Case | None, context: CheckContext
) -> Iterator[Finding]:
    for row in case.matrix if case is not None else ():
        for gpu, cell in enumerate(row):
            low = check_threshold(context, threshold, cell) if cell is not None else None
            if low is not None:
                yield fault(f"GPU {gpu}", Severity.ISOLATE, f"{name} is below its floor", *low)


def _judge_pairs(
    name: str, threshold: str, case: Case | None, context: CheckContext
) -> Iterator[Finding]:
    """Name a GPU alone if it is slow with most other GPUs; otherwise name the slow pairs."""
    low: dict[tuple[int, int], Low] = {}
    for a, row in enumerate(case.matrix if case is not None else ()):
        for b, cell in enumerate(row):
            missed = check_threshold(context, threshold, cell) if cell is not None else None
            if missed is not None:
                low[min(a, b), max(a, b)] = missed
    while low:
        counted = Counter(gpu for pair in low for gpu in pair)
        worst, partners = counted.most_common(1)[0]
        if partners > 1 and partners >= context.gpus // 2:
            measured, required = next(said for pair, said in low.items() if worst in pair)
            detail = f"{name} is below its floor with {partners} other GPUs"
            yield fault(f"GPU {worst}", Severity.ISOLATE, detail, measured, required)
            low = {pair: figures for pair, figures in low.items() if worst not in pair}
            continue
        for (a, b), (measured, required) in low.items():
            detail = f"{name} is below its floor"
            yield fault(f"GPU {a} GPU {b}", Severity.ISOLATE, detail, measured, required)
        return


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    """Return each GPU's lowest figure, to the host and to other GPUs."""
    lowest: dict[str, float] = {}
    cases = read_cases(read_output(evidence, NVBANDWIDTH))
    for name, threshold in (*_HOST.items(), *_PAIRS.items()):
        case = cases.get(name)
        for row in case.matrix if case is not None else ():
            for gpu, cell in enumerate(row):
                key = f"{threshold}/GPU {gpu}"
                if cell is not None:
                    lowest[key] = min(cell, lowest.get(key, cell))
    return lowest


CHECK = Check(
    "nvbandwidth",
    Gate.B,
    (NVBANDWIDTH,),
    _findings,
    load=True,
    measure=_measure,
    thresholds=("host_gpu_gb_s", "gpu_gpu_gb_s"),
)
