"""What group commit is worth: writes per second, many coroutines at once against one by one.

Run it by itself: `.venv/bin/python tests/bench/bench_store.py [directory]`. The ratio is what
counts: the absolute numbers are those of the disk under the directory.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from provisioner.model.events.node_events import RemedyTried
from provisioner.store import SqlStore, open_store

WRITES = 2000


async def one_by_one(store: SqlStore) -> None:
    for number in range(WRITES):
        await store.journal.append(RemedyTried(about=f"n{number}", attempt=number), 1.0)


async def together(store: SqlStore) -> None:
    await asyncio.gather(
        *(store.journal.append(RemedyTried(about=f"n{n}", attempt=n), 1.0) for n in range(WRITES))
    )


async def measure(directory: Path) -> None:
    rates = {}
    for scenario in (one_by_one, together):
        store = open_store(directory / f"{scenario.__name__}.db")
        start, commits = time.perf_counter(), store.writer.transactions
        await scenario(store)
        elapsed, commits = time.perf_counter() - start, store.writer.transactions - commits
        rates[scenario] = WRITES / elapsed
        sys.stdout.write(
            f"{scenario.__name__:>12}: {rates[scenario]:8.0f} writes/s, {commits} commits\n"
        )
        await store.close()
    sys.stdout.write(f"       ratio: {rates[together] / rates[one_by_one]:8.1f}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        asyncio.run(measure(Path(made)))
