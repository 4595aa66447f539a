"""An archiving and a prune whose process is killed, and two prunes at the same time."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from dying_archiver import change
from given_events import event_of
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.node import Node, NodeKind, State
from provisioner.runtime.wall_clock import WallClock

# one process imports the program, and each change is a copy of it
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["provisioner.daemon.data"])
DAY_S = 86_400.0


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder whose data directory `var` has twelve old rows, some of a node with an operation."""

    async def fill() -> None:
        now = WallClock().now()
        async with open_data(tmp_path / "var", now) as opened:
            await opened.store.nodes.add(Node(id="n1", kind=NodeKind.HOST, state=State.CERTIFIED))
            for number in range(12):
                at = now - (20 - number) * DAY_S
                about = "n1" if number in (5, 7) else "n2"
                await opened.store.journal.append(event_of("moved", about, {"number": number}), at)
                if number == 4:
                    await opened.store.operations.open("n1", "converge", at)

    asyncio.run(fill())
    return tmp_path


@dataclass(frozen=True)
class Change:
    """A change in a process of its own; `removed` receives how many rows it removed."""

    process: ForkServerProcess
    removed: Connection

    def end(self) -> int:
        """Wait for it; return how it ended."""
        self.process.join(240)
        assert self.process.exitcode is not None
        return self.process.exitcode


def start(site: Path, kind: str, number: int, verb: str) -> Change:
    receiver, sender = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=change, args=(kind, number, verb, site / "var", sender))
    process.start()
    sender.close()
    return Change(process, receiver)


def succeed(site: Path, verb: str) -> None:
    assert start(site, "none", 0, verb).end() == 0


def kill_at(site: Path, kind: str, number: int, verb: str) -> None:
    """Run a change until it kills itself at a point."""
    assert start(site, kind, number, verb).end() == -signal.SIGKILL


async def live_rows(site: Path) -> dict[int, tuple[object, ...]]:
    async with open_data(site / "var", WallClock().now()) as opened:
        rows = await opened.store.journal.list(limit=1000)
        return {row["seq"]: (row["kind"], row["node"], row["detail"]) for row in rows}


def all_rows(site: Path) -> dict[int, tuple[object, ...]]:
    """Return every row that the database or an archive holds."""
    held = asyncio.run(live_rows(site))
    for file in (site / "var" / "archives").glob("journal-*.jsonl"):
        for line in file.read_text().splitlines()[1:]:
            seq, _, kind, node, detail, _ = json.loads(line)
            row = (kind, node, json.loads(detail))
            assert held.setdefault(seq, row) == row
    return held


def verified(site: Path) -> bool:
    """Return whether the journal verifies alone and, if any are there, with its archives."""
    words = [["verify"]]
    if list((site / "var" / "archives").glob("journal-*")):
        words.append(["verify", "--archives", "var/archives"])
    results = [run(["audit", *w, "--data", "var", "--json"], site) for w in words]
    return all(done.returncode == 0 for done in results)


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param("os.link", 2, marks=pytest.mark.long),
        ("commit", 2),
    ],  # before a file has its name; while the journal's row is made
)
def test_an_archiving_that_is_killed_loses_nothing_and_goes_on(site, kind, number):
    before = all_rows(site)

    kill_at(site, kind, number, "archive")

    assert verified(site)
    assert before.items() <= all_rows(site).items()
    succeed(site, "archive")
    assert verified(site)
    files = sorted((site / "var" / "archives").glob("journal-*.jsonl"))
    numbers = [int(part) for f in files for part in f.stem.split("-")[1:]]
    assert numbers[0] == 1
    assert all(b == a + 1 for a, b in zip(numbers[1::2], numbers[2::2], strict=False))


@pytest.mark.parametrize(("kind", "number"), [("sql", 3), ("commit", 2)])
def test_a_prune_that_is_killed_loses_nothing_and_goes_on(site, kind, number):
    succeed(site, "archive")
    before = all_rows(site)

    kill_at(site, kind, number, "prune")

    assert verified(site)
    assert before.items() <= all_rows(site).items()
    succeed(site, "prune")
    assert verified(site)
    assert before.items() <= all_rows(site).items()
    live = asyncio.run(live_rows(site))
    old = {seq for seq, row in live.items() if row[0] == "moved" and seq in range(1, 10)}
    assert {live[seq][1] for seq in old} == {"n1"}  # its operation is open


def test_two_prunes_at_once_remove_each_row_once(site):
    succeed(site, "archive")
    before = all_rows(site)

    both = [start(site, "none", 0, "prune") for _ in range(2)]

    assert [one.end() for one in both] == [0, 0]
    assert verified(site)
    held = all_rows(site)
    assert before.items() <= held.items()
    removed = sum(one.removed.recv() for one in both)
    assert removed == len(held) - len(asyncio.run(live_rows(site)))
