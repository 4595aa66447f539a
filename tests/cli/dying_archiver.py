"""Archives or prunes a data directory's journal and kills its own process at one point.

Run as a program by the tests: `python dying_archiver.py KIND NUMBER archive|prune DATA`. The point
is the event of that number among those of one kind: `os.link` and `os.remove` of an archive's
file, `sql` for a statement that writes, `commit` for the end of a transaction, or `none`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

from provisioner.daemon.data import open_data
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.repositories import journal_archives
from provisioner.store.repositories.journal_archives import Actor

WRITES = ("INSERT", "UPDATE", "DELETE")
FILES = ("os.link", "os.remove")
KIND, NUMBER = sys.argv[1], int(sys.argv[2])
OLD_S = 10 * 86_400.0
counts: Counter[str] = Counter()


def count(kind: str) -> None:
    """Count an event, and kill the process without any warning at the one that was chosen."""
    counts[kind] += 1
    if kind == KIND and counts[kind] == NUMBER:
        os.kill(os.getpid(), signal.SIGKILL)


def count_statement(_connection: Connection, _cursor: Any, statement: str, *_more: Any) -> None:
    if statement.lstrip().upper().startswith(WRITES):
        count("sql")


def count_commit(_connection: Connection) -> None:
    count("commit")


def count_file(kind: str, arguments: tuple[Any, ...]) -> None:
    if kind in FILES and "journal-" in str(arguments[0]):
        count(kind)


async def change_journal(verb: str, data: Path) -> None:
    """Carry the change out, and print the number of rows that were removed."""
    now = WallClock().now()
    async with open_data(data, now) as opened:
        archives, directory = opened.store.archives, data / "archives"
        if verb == "archive":
            await archives.write_archives(directory, now - OLD_S, opened.signer, Actor("ada", now))
        else:
            await archives.survey_removal(directory, now)
            removed = await archives.prune_rows(directory, opened.signer, Actor("ada", now))
            sys.stdout.write(f"{removed}\n")


if __name__ == "__main__":
    journal_archives.ROWS_MAX = 3
    event.listen(Engine, "before_cursor_execute", count_statement)
    event.listen(Engine, "commit", count_commit)
    sys.addaudithook(count_file)
    asyncio.run(change_journal(sys.argv[3], Path(sys.argv[4])))
