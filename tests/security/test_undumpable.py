"""A process that held passwords leaves no core file (the daemon: test_unprivileged_journey.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

UNIT = Path(__file__).parents[2] / "images" / "daemon" / "provisioner.service"
DIES = """
import ctypes, os, resource, subprocess, sys
from provisioner.runtime import undumpable
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
undumpable.forbid_core_files()
print(ctypes.CDLL(None).prctl(3))  # PR_GET_DUMPABLE
print(subprocess.run(["sh", "-c", "ulimit -c; ulimit -Hc"], capture_output=True).stdout.decode())
sys.stdout.flush()
os.abort()
"""


def test_a_process_that_holds_passwords_leaves_no_core_file(tmp_path: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", DIES], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        told = child.stdout.read().split()
    _, status = os.waitpid(child.pid, 0)
    child.returncode = status

    assert os.WIFSIGNALED(status)
    assert not os.WCOREDUMP(status)
    assert list(tmp_path.iterdir()) == []
    assert told == ["0", "0", "0"]  # it is not dumpable, and its children dump nothing either


def test_systemd_allows_none_either():
    assert re.search(r"^LimitCORE=0$", UNIT.read_text(), re.MULTILINE)
