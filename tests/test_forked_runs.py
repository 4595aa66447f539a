"""`--forks` tells the same as one process, also of a test that ends its process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = """
import os, pathlib, warnings
import pytest

@pytest.fixture(scope="module")
def site(tmp_path_factory):
    yield os.getpid()
    (pathlib.Path(__file__).parent / f"left-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(12))
def test_a_member(number, site, tmp_path):
    assert site == os.getpid()
    assert tmp_path.parent.name in ("gw0", "gw1", "gw2")
    print("said by", number)
    if number == 2:
        pytest.fail("this one is bad")
    if number == 3:
        pytest.skip("this one is not here")
    if number == 5:
        os._exit(9)
    if number == 7:
        warnings.warn("this one is old")
"""


@pytest.mark.slow
def test_every_test_is_told_once_and_the_one_that_killed_its_process_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_members.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "forked_runs", "--forks", "3", "-v", "-rs"]

    run = subprocess.run(
        [*command, "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1, run.stdout + run.stderr
    assert "2 failed, 9 passed, 1 skipped, 1 warning" in run.stdout, run.stdout
    assert "ended with 9 while it ran test_members.py::test_a_member[5]" in run.stdout
    assert "this one is bad" in run.stdout
    assert "said by 2\n" in run.stdout
    assert "said by 4\n" not in run.stdout
    assert "this one is old" in run.stdout
    # each process cleared up what it made, but for the one that was ended
    assert 1 <= len([*tmp_path.glob("left-*")]) <= 3
