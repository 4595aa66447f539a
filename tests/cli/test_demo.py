"""`provisioner demo` as a script meets it: its last line is one JSON object, its exit code 0."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEYS = {
    "nodes",
    "switches",
    "released",
    "quarantined",
    "uncertified_in_customer_vrf",
    "redfish_requests",
    "wall_s",
}


@pytest.mark.long  # the tutorial, which CI runs, begins with it
@pytest.mark.slow
def test_a_small_site_ends_with_both_nodes_released_and_says_so(tmp_path: Path) -> None:
    asked = ["--nodes", "2", "--speed", "600", "--directory", str(tmp_path / "demo"), "--json"]

    done = subprocess.run(
        [sys.executable, "-m", "provisioner", "demo", *asked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=420,  # it ends itself after 300 s, however slow the machine is
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) >= KEYS
    assert (found["nodes"], found["released"], found["quarantined"]) == (2, 2, [])
    assert found["uncertified_in_customer_vrf"] == 0
    assert found["switches"] > 0
    assert found["redfish_requests"] > 0
