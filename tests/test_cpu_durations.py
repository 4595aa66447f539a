"""`--cpu-durations` counts what tests use, in all processes, and not how long they wait."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = """
import subprocess, sys, time
import pytest

BUSY = "import time\\nwhile time.process_time() < 0.4: pass"

@pytest.fixture
def prepared():
    exec(BUSY.replace("0.4", f"{time.process_time() + 0.3}"))

def test_computes(prepared): pass
def test_has_another_compute(): subprocess.run([sys.executable, "-c", BUSY])
def test_waits(): time.sleep(0.6)
"""


@pytest.mark.slow
def test_what_waits_is_cheap_and_what_computes_is_not_wherever_it_does(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    plugins = ["-p", "forked_runs", "-p", "cpu_durations", "--forks", "2", "--cpu-durations", "9"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-q", "-c", "/dev/null", "--rootdir", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    rows = re.findall(r"^ +([\d.]+) (\S+)$", run.stdout, re.MULTILINE)
    used = {name: float(seconds) for seconds, name in rows}
    whole = used.pop("test_some.py")
    computing = [s for name, s in used.items() if "compute" in name]
    assert len(used) == 3
    assert abs(whole - sum(used.values())) < 0.05  # they are rounded
    assert min(computing) > 2 * used["test_some.py::test_waits"]
