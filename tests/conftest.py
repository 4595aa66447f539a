"""Properties are tried on the same examples in every run, so that CI never fails by chance.

`make soak` chooses the profile "soak" instead: ten times as many examples, new ones each time.
What it finds becomes an `@example` of its test.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# no deadline and no "too slow": they would judge the machine, not the code
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=1000,
    print_blob=True,
)
settings.load_profile("repeatable")

PACKAGES = Path(__file__).parents[1] / ".ci" / "packages"
REMEDIES = {
    "debian": "the Debian packages of .ci/packages; as root: .ci/run packages (or make test-all)",
    "recordings": "recordings that are not in the repository (PROVISIONER_SAMPLES, _MOCKUPS)",
    "schemas": "DMTF's schema files: make conformance SCHEMAS=DIR",
    "machine": "what this machine does not offer; `-rs` lists the reasons",
}
RECORDED = ("PROVISIONER_SAMPLES", "PROVISIONER_MOCKUPS", "sample", "recorded")
PACKAGED = ("apt-get", "installed", "there is no ", "not here", "needs ", "No such file", "no ")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what was imported and collected out of the collector's sight: a tenth of the CPU time
    went into looking through the same half a gigabyte again and again."""
    gc.collect()
    gc.freeze()


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
    """End with how many tests were left out for want of what, and what installs it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [r.longrepr[2] if isinstance(r.longrepr, tuple) else str(r.longrepr) for r in skipped]
    for cause, count in Counter(map(cause_of, reasons)).most_common():
        terminalreporter.write_line(f"{count} tests were skipped for want of {REMEDIES[cause]}")
