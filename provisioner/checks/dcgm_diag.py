"""DCGM's diagnostics of levels 1 to 4, judged by the content of their document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Judge, Lines
from provisioner.checks.commands import DCGM
from provisioner.checks.dcgm_judge import LEVELS, judge_tests
from provisioner.checks.readers.dcgm_document import read_tests
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import find
from provisioner.model.cohort import Evidence, Finding, Gate

# level 1 about 30 s, 3 15 to 30 min, 4 up to 2.25 h (docs/sources/health.md#dcgm-times)
SOFTWARE = Command(name="dcgm_software", line="dcgmi diag -r 1 -j", limit_s=300.0)
LONG = Command(name="dcgm_long", line="dcgmi diag -r 3 -j", limit_s=5400.0)
XLONG = Command(name="dcgm_xlong", line="dcgmi diag -r 4 -j", limit_s=14400.0)
_PCIE = ("pcie_gen", "pcie_width")
_PCIE_SUBTESTS = ("h2d_d2h_single_pinned", "h2d_d2h_single_unpinned")


def _judge_level(command: Command, level: int) -> Judge:
    def findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
        tests = read_tests(read_output(evidence, command, any_exit=True))
        yield from judge_tests(tests, LEVELS[level], context)

    return findings


def _add_minima(command: Command, *, memory: bool) -> Lines:
    """Return a builder of the command with our minima, because DCGM's own floors are too low.

    DCGM accepts generation 3 for a Gen5 link, and 2333 MB/s for the HBM of an H200. All parameters
    go into one `-p`, separated by ";": `dcgmi diag` takes that option once (DCGM,
    dcgmi/CommandLineParser.cpp: one value, "test_name.variable_name=variable_value"; the help of
    `mndiag` shows the semicolon).
    """

    names = {"min_pci_generation": "pcie_gen", "min_pci_width": "pcie_width"}
    parameters = {f"pcie.{s}.{p}": name for s in _PCIE_SUBTESTS for p, name in names.items()}
    if memory:
        parameters["memory_bandwidth.minimum_bandwidth"] = "hbm_mb_s"

    def lines(context: CheckContext) -> tuple[Command, ...]:
        values = {parameter: find(context, name).value for parameter, name in parameters.items()}
        options = ";".join(f"{p}={value:.10g}" for p, value in values.items() if value is not None)
        return (command.model_copy(update={"line": f"{command.line} -p '{options}'"}),)

    return lines


CHECK_SOFTWARE = Check(
    "dcgm_software", Gate.A, (SOFTWARE,), _judge_level(SOFTWARE, 1), on_request=True
)
CHECK = Check(
    "dcgm_diag",
    Gate.B,
    (DCGM,),
    _judge_level(DCGM, 2),
    load=True,
    lines=_add_minima(DCGM, memory=False),
    thresholds=_PCIE,
)
CHECK_LONG = Check(
    "dcgm_long",
    Gate.D,
    (LONG,),
    _judge_level(LONG, 3),
    load=True,
    lines=_add_minima(LONG, memory=True),
    thresholds=(*_PCIE, "hbm_mb_s"),
)
CHECK_XLONG = Check(
    "dcgm_xlong",
    Gate.D,
    (XLONG,),
    _judge_level(XLONG, 4),
    load=True,
    lines=_add_minima(XLONG, memory=True),
    thresholds=(*_PCIE, "hbm_mb_s"),
)
