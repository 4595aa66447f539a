"""The command lines of tests among nodes, run by a true shell, with a stand-in for perftest."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.checks.fabric import fabric_workloads
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.execution.validate.fabric_outputs import (
    CLEAN,
    FOLDER,
    LOOK,
    MARK,
    build_measure_line,
    host_end,
    parse_sections,
    serve,
)

RULE = "-" * 87
OWN = f"{MARK}_{os.getpid()}"  # other tests mark theirs at the same time on this machine
# serves until it is ended, measures at once; one rail has no connection
STAND_IN = f"""#!/bin/sh
case "$*" in
*--use_cuda=?|*--use_cuda=??) exec sleep 600 ;;
*"-d mlx5_9 "*) echo "Couldn't connect to 172.0.0.0:18524"; exit 1 ;;
esac
cat <<END
{RULE}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    5000             778.20             778.10             0.011594
{RULE}
END
"""
LISTENERS = """#!/bin/sh
echo "LISTEN 0 128 *:18515 *:*"
echo "LISTEN 0 128 *:18524 *:*"
"""


def member(name: str) -> Member:
    rails = (
        RailPort(rail=0, device="mlx5_0", address="172.0.0.0", gpu=0),
        RailPort(rail=9, device="mlx5_9", address="172.0.0.2", gpu=1),
    )
    return Member(node=name, address="10.0.0.1", rails=rails)


TESTS = [fabric_workloads.build_rdma_pair_test(member("a"), member("b"), rail) for rail in (0, 9)]


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[dict[str, str]]:
    for name, text in (("ib_write_bw", STAND_IN), ("ss", LISTENERS)):
        tool = tmp_path / name
        tool.write_text(text)
        tool.chmod(0o755)
    yield {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    run(CLEAN, dict(os.environ))


def run(line: str, environment: dict[str, str]) -> str:
    line = line.replace(MARK, OWN).replace(FOLDER, f"{FOLDER}{os.getpid()}.")
    done = subprocess.run(
        ["/bin/sh", "-c", line], env=environment, capture_output=True, timeout=60, check=True
    )
    return done.stdout.decode()


def marked(word: str) -> list[str]:
    """Processes that carry a mark, by what they run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"{OWN}={word}".encode() in environment.split(b"\0"):
            found.append(line.replace(b"\0", b" ").decode())
    return found


def serving(word: str) -> bool:
    """Wait until both servers run their program: one that is just loaded shows no mark."""
    until = time.monotonic() + 60
    while sum("sleep 600" in line for line in marked(word)) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    return sum("sleep 600" in line for line in marked(word)) >= 2


def gone(word: str) -> bool:
    until = time.monotonic() + 60
    while marked(word) and time.monotonic() < until:
        time.sleep(0.02)
    return not marked(word)


def test_servers_outlive_the_line_that_starts_them_and_end_by_their_mark(
    tools: dict[str, str],
) -> None:
    told = run(serve("s/it's one/server", TESTS), tools)

    assert told == "listening 2\n"
    assert serving("s/it's one/server")
    assert run(CLEAN, tools).endswith("cleaned\n")
    assert gone("s/it's one/server")


def test_clients_tell_each_rail_apart_and_leave_nothing_behind(
    tools: dict[str, str], tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())

    told = parse_sections(run(build_measure_line("s/t/client", TESTS), tools))

    assert told[0][0].count("778.10") == 1
    assert (told[0][1], told[9][1]) == (0, 1)
    assert "Couldn't connect" in told[9][0]
    assert set(tmp_path.iterdir()) == before
    assert gone("s/t/client")


def test_a_host_without_rdma_devices_says_only_that_it_was_looked_at(tools: dict[str, str]) -> None:
    told = run(LOOK, tools).splitlines()

    assert told[0].endswith("/ib_write_bw")
    assert told[-1] == "looked"


@pytest.mark.parametrize(
    ("leaf_end", "expected"),
    [
        ("172.32.0.1/31", "172.32.0.0"),
        ("172.32.0.0/31", "172.32.0.1"),
        ("172.32.0.1/30", ""),  # nobody says which of the others it is
        ("", ""),
        ("; reboot", ""),
    ],
)
def test_the_host_has_the_other_address_of_its_cable(leaf_end: str, expected: str) -> None:
    assert host_end(leaf_end) == expected
