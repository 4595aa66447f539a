"""`--cpu-durations N` ends a run with the N tests and files that took most CPU time.

On a machine that others use, wall time tells how busy it was. Here it is user and system time, of
the process and of those that it started and has waited for; what is shared by a file's tests is
counted where it was made, with the first of them.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator

import pytest

NAME = "cpu_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--cpu-durations`."""
    parser.addoption(
        "--cpu-durations", type=int, default=0, metavar="N", help="show what took most CPU time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure, where it is asked for."""
    if config.getoption("--cpu-durations"):
        config.pluginmanager.register(CpuDurations(), "cpu durations")


def cpu_s() -> float:
    """Return the CPU time of this process and of its ended children."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class CpuDurations:
    """Puts CPU time into each report, and adds the reports up."""

    def __init__(self) -> None:
        self._pid, self._before_s = 0, 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Begin to count, in a forked process for itself."""
        if self._pid != os.getpid():
            self._pid, self._before_s = os.getpid(), cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Count what was used since the report before: of a test, its fixtures, or between."""
        report: pytest.TestReport = yield  # type: ignore[misc]
        now_s = cpu_s()
        report.user_properties = [(NAME, now_s - self._before_s)]
        self._before_s = now_s
        return report  # type: ignore[return-value]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the dearest tests and files."""
        tests: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                for name, used_s in getattr(report, "user_properties", ()):
                    if name == NAME:
                        tests[report.nodeid] += used_s
                        files[report.nodeid.partition("::")[0]] += used_s
        most = terminalreporter.config.getoption("--cpu-durations")
        terminalreporter.section(f"CPU seconds: {sum(files.values()):.1f} in {len(tests)} tests")
        for counted in (tests, files):
            for name, used_s in counted.most_common(most):
                terminalreporter.write_line(f"{used_s:8.2f} {name}")
            terminalreporter.write_line("")
