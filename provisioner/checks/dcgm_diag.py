"""T1: DCGM's diagnostics of levels 1 to 4, judged by what their document says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Judge, Lines
from provisioner.checks.commands import DCGM
from provisioner.checks.dcgm_judge import LEVELS, judge_tests
from provisioner.checks.readers.dcgm_document import tests_of
from provisioner.checks.readers.reading import text_of
from provisioner.checks.thresholds import find
from provisioner.model.health import Evidence, Finding, Gate

# facts: r1 about 30 s, r3 15 to 30 min, r4 up to 2.25 h
SOFTWARE = Command(name="dcgm_software", line="dcgmi diag -r 1 -j", limit_s=300.0)
LONG = Command(name="dcgm_long", line="dcgmi diag -r 3 -j", limit_s=5400.0)
XLONG = Command(name="dcgm_xlong", line="dcgmi diag -r 4 -j", limit_s=14400.0)
_PCIE = ("pcie_gen", "pcie_width")
_PCIE_SUBTESTS = ("h2d_d2h_single_pinned", "h2d_d2h_single_unpinned")


def _level(command: Command, level: int) -> Judge:
    def findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
        tests = tests_of(text_of(evidence, command, any_exit=True))
        yield from judge_tests(tests, LEVELS[level], context)

    return findings


def _with_minima(command: Command, *, memory: bool) -> Lines:
    """DCGM's own floors are too low (generation 3 for a Gen5 link, 2333 MB/s for the HBM of an
    H200): ours are passed.

    All in one `-p`, with ";" between: `dcgmi diag` takes that option once (DCGM,
    dcgmi/CommandLineParser.cpp: one value, "test_name.variable_name=variable_value"; the help of
    `mndiag` shows the semicolon).
    """

    names = {"min_pci_generation": "pcie_gen", "min_pci_width": "pcie_width"}
    asked = {f"pcie.{s}.{p}": name for s in _PCIE_SUBTESTS for p, name in names.items()}
    if memory:
        asked["memory_bandwidth.minimum_bandwidth"] = "hbm_mb_s"

    def lines(context: CheckContext) -> tuple[Command, ...]:
        values = {parameter: find(context, name).value for parameter, name in asked.items()}
        told = ";".join(f"{p}={value:.10g}" for p, value in values.items() if value is not None)
        return (command.model_copy(update={"line": f"{command.line} -p '{told}'"}),)

    return lines


CHECK_SOFTWARE = Check("dcgm_software", Gate.A, (SOFTWARE,), _level(SOFTWARE, 1), on_request=True)
CHECK = Check(
    "dcgm_diag",
    Gate.B,
    (DCGM,),
    _level(DCGM, 2),
    load=True,
    lines=_with_minima(DCGM, memory=False),
    thresholds=_PCIE,
)
CHECK_LONG = Check(
    "dcgm_long",
    Gate.D,
    (LONG,),
    _level(LONG, 3),
    load=True,
    lines=_with_minima(LONG, memory=True),
    thresholds=(*_PCIE, "hbm_mb_s"),
)
CHECK_XLONG = Check(
    "dcgm_xlong",
    Gate.D,
    (XLONG,),
    _level(XLONG, 4),
    load=True,
    lines=_with_minima(XLONG, memory=True),
    thresholds=(*_PCIE, "hbm_mb_s"),
)
