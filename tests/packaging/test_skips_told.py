"""The last lines of the tests say what was left out for want of what, and what installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SKIPPING = """
import pytest
def test_a(): pytest.skip("there is no Chromium: apt-get install chromium")
def test_b(): pytest.skip("no PostgreSQL server here: apt-get install postgresql")
def test_c(): pytest.skip("no samples here: set PROVISIONER_SAMPLES")
def test_d(): pytest.skip("multicast does not come back on this machine")
"""


def test_skipped_tests_are_counted_by_what_they_want(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SKIPPING)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "."],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip

    assert "2 tests were skipped for want of the Debian packages of .ci/packages" in done.stdout
    assert "make test-all" in done.stdout
    assert "1 tests were skipped for want of recordings" in done.stdout
    assert "1 tests were skipped for want of what this machine does not offer" in done.stdout
