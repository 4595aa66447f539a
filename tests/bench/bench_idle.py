"""The memory and the transactions of an idle daemon, and the CPU time of two commands.

    make bench NAME=idle

A real `provisioner serve` runs on an empty data directory, with its API, its agents' door and its
files on loopback; once it serves and takes next to no CPU time, its resident memory is read from
/proc (MiB; `pss_mb` needs root, since the daemon forbids its own user to look). `provisioner
--help` and `provisioner node list`, which that daemon answers, are each run once to compile what is
not yet compiled, then five times: CPU seconds of the process by wait4(2), in the median.
`imports_mb` is what the imports of `serve` take, by package, in a process of their own.
`idle_transactions` are those of a simulated hour with one host and twelve leaves, virtual time.

The last line is JSON; exit code 1 if one of the figures is beyond what is demanded.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import this_machine
from processes import family, used
from test_idle import count_idle_transactions

ROOT = Path(__file__).parents[2]
DEMANDED = {"rss_mb": 90.0, "help_cpu_s": 0.25, "node_list_cpu_s": 0.6, "idle_transactions": 455.0}
RUNS = 5
START_S, REST_S = 240.0, 3.0  # of a loaded machine; next to no CPU time within so many seconds
REST_CPU_S = 0.15
PROGRAM = (sys.executable, "-m", "provisioner")
COUNT_MODULES = "import sys, provisioner.cli.serve.serve; print(len(sys.modules))"


def make_environment() -> dict[str, str]:
    """Return the environment of the program: this checkout, no other daemon, modules compiled."""
    unfit = ("PROVISIONER_", "PYTHONDONTWRITEBYTECODE")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(unfit)}
    return inherited | {"PYTHONPATH": str(ROOT)}


@contextmanager
def serve(folder: Path) -> Iterator[int]:
    """Run a daemon on an empty data directory; yield its process id once it serves."""
    (folder / "artifacts").mkdir()
    command = [
        *PROGRAM, "serve", "--lab", "--data", "data", "--artifacts", "artifacts",
        "--matrix", str(ROOT / "firmware_matrix.yaml"),
        "--artifact-port", "0", "--api-port", "0", "--agent-port", "0",
    ]  # fmt: skip
    log = folder / "daemon.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, cwd=folder, env=make_environment()
        )
    try:
        end = time.monotonic() + START_S
        while not any(line.endswith("serving") for line in log.read_text().splitlines()):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the daemon does not serve:\n{log.read_text()[-4000:]}")
            time.sleep(0.2)
        yield process.pid
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def wait_for_rest(pid: int) -> None:
    """Return once the daemon takes next to no CPU time."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        before = used(pid)[0]
        time.sleep(REST_S)
        if used(pid)[0] - before <= REST_CPU_S:
            return
    raise SystemExit("the daemon does not come to rest")


def read_rss(pid: int) -> float:
    """Return the resident MiB of a process and all below it."""
    kib = 0
    for one in family(pid):
        text = Path(f"/proc/{one}/status").read_text(encoding="ascii", errors="replace")
        kib += int(text.partition("VmRSS:")[2].split()[0])
    return kib / 1024


def measure_cpu(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Return the median of the CPU seconds of a command's runs. It must succeed."""
    seconds = []
    for _ in range(RUNS + 1):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
        seconds.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(seconds[1:])


def measure_imports(environment: Mapping[str, str]) -> dict[str, float]:
    """Return the MiB that the daemon's imports take, by package."""
    program = Path(__file__).with_name("import_memory.py")
    done = subprocess.run(
        [sys.executable, str(program)], stdout=subprocess.PIPE, check=True, env=environment
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def bench(folder: Path) -> dict[str, float | None]:
    """Return all figures but the transactions."""
    environment = make_environment()
    modules = subprocess.run(
        [sys.executable, "-c", COUNT_MODULES],
        stdout=subprocess.PIPE, text=True, check=True, cwd=folder, env=environment,
    )  # fmt: skip
    with serve(folder) as pid:
        wait_for_rest(pid)
        figures: dict[str, float | None] = {
            "rss_mb": round(read_rss(pid), 1),
            "pss_mb": round(used(pid)[1], 1) or None,
            "modules": int(modules.stdout),
        }
        for name, command in (
            ("python_cpu_s", (sys.executable, "-c", "pass")),
            ("help_cpu_s", (*PROGRAM, "--help")),
            ("node_list_cpu_s", (*PROGRAM, "node", "list", "--data", "data")),
        ):
            figures[name] = round(measure_cpu(command, folder, environment), 3)
    return figures


def main() -> int:
    """Print the JSON; 0: nothing is beyond what is demanded."""
    with tempfile.TemporaryDirectory() as folder:
        figures = bench(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        figures["idle_transactions"] = count_idle_transactions(Path(folder))[0]
    missed = sorted(n for n, most in DEMANDED.items() if (figures[n] or 0.0) > most)
    imports = {"imports_mb": measure_imports(make_environment())}
    report = {**this_machine.told(), **figures, **imports, "demanded": DEMANDED, "missed": missed}
    for name, value in report.items():
        sys.stdout.write(f"{name:>22}  {value}\n")
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
