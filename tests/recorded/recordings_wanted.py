"""Which tests a clone without recordings leaves out, as the table of tests/README.md.

    python tests/recorded/recordings_wanted.py      runs them without any, and writes the table

A test that is left out says what it wants; the protection is the first sentence of its module.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS / "README.md"
BEGIN, END = "<!-- recordings: begin -->", "<!-- recordings: end -->"
ASKS = re.compile(r"PROVISIONER_(SAMPLES|MOCKUPS)|\brecorded_tree\b|\bstatic_tree\b|\bSAMPLES\b")
VARIABLES = {"PROVISIONER_MOCKUPS": "trees", "PROVISIONER_SAMPLES": "outputs"}


def list_modules() -> list[Path]:
    """Return the modules of tests that may want a recording."""
    found = sorted(TESTS.rglob("test_*.py"))
    about = "test_recordings_wanted.py"  # of this table
    return [f for f in found if f.name != about and ASKS.search(f.read_text(encoding="utf-8"))]


class Skips:
    """Counts, for each module and variable, the tests that were left out for want of it."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test that was skipped."""
        if report.skipped and isinstance(report.longrepr, tuple):
            for variable in VARIABLES:
                if variable in report.longrepr[2]:
                    self.counts[report.nodeid.partition("::")[0], variable] += 1


def read_protection(file: Path) -> str:
    """Return the first sentence of a module."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def format_table(counts: Mapping[tuple[str, str], int]) -> str:
    """Return the table with its sums."""
    rows = [
        f"| `{module.removeprefix('tests/')}` | {number} {VARIABLES[variable]} "
        f"| {read_protection(TESTS.parent / module)} |"
        for (module, variable), number in sorted(counts.items())
    ]
    sums = Counter[str]()
    for (_, variable), number in counts.items():
        sums[variable] += number
    total = ", ".join(f"{sums[v]} want {v}" for v in VARIABLES)
    head = ["| module | left out | what it protects |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", f"{sum(sums.values())} tests: {total}."])


def read_table(page: str) -> str:
    """Return the table of the page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def list_counted(table: str) -> Sequence[str]:
    """Return the modules of a table."""
    return re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)


def main() -> int:
    """Run the modules without recordings and write the table."""
    os.environ.update(dict.fromkeys(VARIABLES, "/nonexistent"))
    skips = Skips()
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(TESTS.parent)]
    code = pytest.main([*words, *map(str, list_modules())], plugins=[skips])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return int(code)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    text = f"{before}{BEGIN}\n{format_table(skips.counts)}\n{END}{after}"
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
