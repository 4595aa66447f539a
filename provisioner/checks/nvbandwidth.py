"""T2, T3: every GPU to and from the host, and every GPU to every other, above the floors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import NVBANDWIDTH
from provisioner.checks.readers.nvbandwidth_output import Case, cases_of
from provisioner.checks.readers.reading import text_of
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

# test case -> its threshold
_HOST = {
    "host_to_device_memcpy_ce": "host_gpu_gb_s",
    "device_to_host_memcpy_ce": "host_gpu_gb_s",
}
_PAIRS = {"device_to_device_memcpy_read_ce": "gpu_gpu_gb_s"}
Low = tuple[str, str]  # measured, wanted


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cases = cases_of(text_of(evidence, NVBANDWIDTH))
    if not cases:
        raise Unreadable("nvbandwidth: no test case in it")
    # what did not run is said before a missing threshold ends the judgement
    for name in (*_HOST, *_PAIRS):
        yield from _ran(name, cases.get(name), context)
    for name, threshold in _HOST.items():
        yield from _host(name, threshold, cases.get(name), context)
    for name, threshold in _PAIRS.items():
        yield from _pairs(name, threshold, cases.get(name), context)


def _ran(name: str, case: Case | None, context: CheckContext) -> Iterator[Finding]:
    """The case passed, with one row of all GPUs, or one for each."""
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
    if holes != (rows if name in _PAIRS else 0):  # N/A stands on the diagonal alone
        yield fault("host", Severity.CONFIG, f"{name}: cells without a value", holes)


def _host(name: str, threshold: str, case: Case | None, context: CheckContext) -> Iterator[Finding]:
    for row in case.matrix if case is not None else ():
        for gpu, cell in enumerate(row):
            low = misses(context, threshold, cell) if cell is not None else None
            if low is not None:
                yield fault(f"GPU {gpu}", Severity.ISOLATE, f"{name} is below its floor", *low)


def _pairs(
    name: str, threshold: str, case: Case | None, context: CheckContext
) -> Iterator[Finding]:
    """A GPU that is slow with most of the others is named alone; else the pairs are."""
    low: dict[tuple[int, int], Low] = {}
    for a, row in enumerate(case.matrix if case is not None else ()):
        for b, cell in enumerate(row):
            missed = misses(context, threshold, cell) if cell is not None else None
            if missed is not None:
                low[min(a, b), max(a, b)] = missed
    while low:
        counted = Counter(gpu for pair in low for gpu in pair)
        worst, partners = counted.most_common(1)[0]
        if partners > 1 and partners >= context.gpus // 2:
            measured, wanted = next(said for pair, said in low.items() if worst in pair)
            detail = f"{name} is below its floor with {partners} other GPUs"
            yield fault(f"GPU {worst}", Severity.ISOLATE, detail, measured, wanted)
            low = {pair: said for pair, said in low.items() if worst not in pair}
            continue
        for (a, b), (measured, wanted) in low.items():
            detail = f"{name} is below its floor"
            yield fault(f"GPU {a} GPU {b}", Severity.ISOLATE, detail, measured, wanted)
        return


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    """The worst of each GPU, as host and as peer."""
    found: dict[str, float] = {}
    cases = cases_of(text_of(evidence, NVBANDWIDTH))
    for name, threshold in (*_HOST.items(), *_PAIRS.items()):
        case = cases.get(name)
        for row in case.matrix if case is not None else ():
            for gpu, cell in enumerate(row):
                key = f"{threshold}/GPU {gpu}"
                if cell is not None:
                    found[key] = min(cell, found.get(key, cell))
    return found


CHECK = Check(
    "nvbandwidth",
    Gate.B,
    (NVBANDWIDTH,),
    _findings,
    load=True,
    measure=_measure,
    thresholds=("host_gpu_gb_s", "gpu_gpu_gb_s"),
)
