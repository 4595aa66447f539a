"""CPU and wall time of `make setup` into an empty virtual environment.

    make bench NAME=setup                      (ARGS=--cold: with an empty cache of uv's first)

`.ci/setup` itself makes the environment in a temporary directory, from requirements.lock with every
hash, as `make setup` does. The packages come from wherever pip and uv are configured to look. The
last line is JSON; the exit status is 1 where it took more CPU seconds than demanded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import this_machine

ROOT = Path(__file__).parents[2]
DEMANDED_S = 15.0


def read_children_s() -> float:
    """CPU seconds of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def set_up(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Make one environment; raises CalledProcessError."""
    before = read_children_s()
    began = time.monotonic()
    command = [str(ROOT / ".ci" / "setup"), str(folder / "venv"), str(folder / "venv.stamp")]
    # its words go to stderr: the last line of stdout is JSON
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
    return {
        "wall_s": round(time.monotonic() - began, 1),
        "cpu_s": round(read_children_s() - before, 1),
    }


def main() -> int:
    """Print the JSON; 0: not beyond what is demanded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cold", action="store_true", help="with an empty cache of uv's")
    options = parser.parse_args()
    # the installer of this very environment would look into it
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.cold:
            environment |= {"UV_CACHE_DIR": str(folder / "uv"), "PIP_NO_CACHE_DIR": "1"}
        figures = set_up(folder, environment)
        sites = (folder / "venv" / "lib").glob("python*/site-packages/*.dist-info")
        packages = len(list(sites))
    missed = figures["cpu_s"] > DEMANDED_S
    report = {**figures, "cold": options.cold, "packages": packages, "demanded_cpu_s": DEMANDED_S}
    sys.stdout.write(json.dumps(report | this_machine.told()) + "\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
