"""kill -9 in the middle of writing: what was answered is there, what was not is whole or absent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.store import open_store

WRITER = Path(__file__).parent / "crashing_writer.py"


def written_until_killed(database: Path, lines: int) -> dict[str, int]:
    """The last turn of each node that the writer was told is on disk."""
    answered: dict[str, int] = {}
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(database)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as writer:  # fmt: skip
        for _ in range(lines):
            line = writer.stdout.readline()
            assert line, writer.stderr.read()
            name, turn = line.split()
            answered[name] = int(turn)
        writer.kill()
        for line in writer.stdout.read().splitlines():
            if len(line.split()) == 2:  # the last line may be cut off
                name, turn = line.split()
                answered[name] = int(turn)
    return answered


async def state(database: Path):
    store = open_store(database)
    nodes = {node.id: node for node in await store.nodes.list()}
    chain = await store.journal.verify()
    turns: dict[str, list[int]] = {}
    for row in await store.journal.list(limit=10_000):
        turns.setdefault(row["node"], []).append(int(row["detail"]["profile"]))
    active = await store.operations.list_active()
    await store.close()
    return nodes, chain, turns, active


@pytest.mark.parametrize(
    "lines_before_kill",
    [(130, 7), pytest.param((25, 60, 130, 7), marks=pytest.mark.long)],
    ids=["killed twice", "killed four times"],
)
def test_nothing_that_was_answered_is_lost_and_no_turn_is_half_there(tmp_path, lines_before_kill):
    database = tmp_path / "store.db"
    for lines in lines_before_kill:
        answered = written_until_killed(database, lines)

        nodes, chain, turns, active = asyncio.run(state(database))

        assert chain.intact
        assert {n: nodes[n].generation >= turn for n, turn in answered.items()} == (
            dict.fromkeys(answered, True)
        )
        # a turn is the node, its journal row and the operation's version, in one transaction
        assert {
            n: t for n, t in turns.items() if t != list(range(1, nodes[n].generation + 1))
        } == {}
        assert {n.id for n in nodes.values() if n.note != str(n.generation or "")} == set()
        assert len({o.node for o in active}) == len(active)
