"""Properties are tried on the same examples in every run, so that CI never fails by chance.

`make soak NAME=simulation` chooses the profile "soak" instead: ten times as many examples, new ones
each time. What it finds becomes an `@example` of its test.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import cpu_durations
import forked_runs
import pytest
import slow_tests
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# no deadline and no "too slow": they would judge the machine, not the code
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=1000,
    print_blob=True,
)
settings.load_profile("repeatable")


def local_constants() -> Any:
    """What draws may take from the code's own literals: nothing, but in a soak.

    They depend on what is imported by then, so that a test's examples would be others beside other
    tests; and each process would parse and sort 2,000 files for them.
    """
    return NO_CONSTANTS if settings.default.derandomize else constants_of_code()


# hypothesis has no setting of it (6.170)
NO_CONSTANTS, constants_of_code = (
    deepcopy(providers._local_constants),
    providers._get_local_constants,
)
providers._get_local_constants = local_constants

PACKAGES = Path(__file__).parents[1] / ".ci" / "packages"
REMEDIES = {
    "debian": "the Debian packages of .ci/packages; as root: .ci/run packages (or make test-all)",
    "recordings": "recordings that are not in the repository (PROVISIONER_SAMPLES, _MOCKUPS)",
    "schemas": "DMTF's schema files: make conformance SCHEMAS=DIR",
    "machine": "what this machine does not offer; `-rs` lists the reasons",
}
RECORDED = ("PROVISIONER_SAMPLES", "PROVISIONER_MOCKUPS", "sample", "recorded")
PACKAGED = ("apt-get", "installed", "there is no ", "not here", "needs ", "No such file", "no ")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--json-line`, `--cpu-durations` and `--forks`."""
    parser.addoption(
        "--json-line", action="store_true", help="print counts, CPU and machine as a last JSON line"
    )
    cpu_durations.pytest_addoption(parser)
    forked_runs.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Count for `--json-line`, in the process that reports and in no worker of it."""
    if config.getoption("--json-line") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(JsonLine(), "json line")
    cpu_durations.pytest_configure(config)
    forked_runs.pytest_configure(config)


class JsonLine:
    """Prints the counts of a run, its time and its machine as the last line, in JSON."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._counts = dict.fromkeys(("passed", "failed", "skipped", "errors"), 0)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Take the counts of the report."""
        for name in self._counts:
            outcome = "error" if name == "errors" else name
            self._counts[name] = len(terminalreporter.stats.get(outcome, []))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Print the line, once workers have ended: their CPU time is in it."""
        used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        line = {
            **self._counts,
            "wall_s": round(time.monotonic() - self._began, 1),
            "cpu_s": round(sum(u.ru_utime + u.ru_stime for u in used), 1),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
        }
        sys.stdout.write(json.dumps(line) + "\n")


@pytest.hookimpl(tryfirst=True)  # before -m looks at marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders."""
    slow_tests.mark_folders(items)


def pytest_collection(session: pytest.Session) -> None:
    """Let the collector of garbage rest: each worker imports and collects some 15,000 tests."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what was imported and collected out of the collector's sight: a tenth of the CPU time
    went into looking through the same half a gigabyte again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])  # a tenth of CPU time
    gc.enable()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the logging that a test, or the program within it, has set up for the process."""
    names = ("", "asyncio", "asyncssh", "provisioner")
    loggers = [logging.getLogger(name) for name in names]
    levels, threshold = [log.level for log in loggers], logging.root.manager.disable
    yield
    logging.disable(threshold)
    for log, level in zip(loggers, levels, strict=True):
        log.setLevel(level)


def cause_of(reason: str) -> str:
    """Return the word of REMEDIES that a skipped test's reason belongs to."""
    if "make conformance" in reason:
        return "schemas"
    if any(word in reason for word in RECORDED):
        return "recordings"
    names = [n for n in PACKAGES.read_text().split("\n") if n and not n.startswith("#")]
    named = any(name.partition("-")[0] in reason for name in names)
    return "debian" if named or any(word in reason for word in PACKAGED) else "machine"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with how many tests were left out for want of what, and what installs or runs them."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [r.longrepr[2] if isinstance(r.longrepr, tuple) else str(r.longrepr) for r in skipped]
    for cause, count in Counter(map(cause_of, reasons)).most_common():
        terminalreporter.write_line(f"{count} tests were skipped for want of {REMEDIES[cause]}")
    for line in slow_tests.tell_left_out(terminalreporter.stats.get("deselected", [])):
        terminalreporter.write_line(line)
