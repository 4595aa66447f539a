"""Archives or prunes a data directory's journal and kills its own process at one point.

Tests run `change` in a process of its own. The point is the event of that number among those of
one kind: `os.link` and `os.remove` of an archive's file, `sql` for a statement that writes,
`commit` for the end of a transaction, or `none`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from multiprocessing.connection import Connection as IpcConnection
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

from provisioner.daemon.data import open_data
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.repositories import journal_archives
from provisioner.store.repositories.journal_archives import Actor

WRITES = ("INSERT", "UPDATE", "DELETE")
FILES = ("os.link", "os.remove")
OLD_S = 10 * 86_400.0
counts: Counter[str] = Counter()
point = ("none", 0)


def count(kind: str) -> None:
    """Count an event, and kill the process without any warning at the one that was chosen."""
    counts[kind] += 1
    if (kind, counts[kind]) == point:
        os.kill(os.getpid(), signal.SIGKILL)


def count_statement(_connection: Connection, _cursor: Any, statement: str, *_more: Any) -> None:
    if statement.lstrip().upper().startswith(WRITES):
        count("sql")


def count_commit(_connection: Connection) -> None:
    count("commit")


def count_file(kind: str, arguments: tuple[Any, ...]) -> None:
    if kind in FILES and "journal-" in str(arguments[0]):
        count(kind)


async def change_journal(verb: str, data: Path) -> int:
    """Carry the change out; return the number of rows that were removed."""
    now = WallClock().now()
    async with open_data(data, now) as opened:
        archives, directory = opened.store.archives, data / "archives"
        if verb == "archive":
            await archives.write_archives(directory, now - OLD_S, opened.signer, Actor("ada", now))
            return 0
        await archives.survey_removal(directory, now)
        return await archives.prune_rows(directory, opened.signer, Actor("ada", now))


def change(kind: str, number: int, verb: str, data: Path, removed: IpcConnection) -> None:
    """Carry a change out until the point, and send the number of rows that were removed."""
    global point
    point = (kind, number)
    journal_archives.ROWS_MAX = 3
    event.listen(Engine, "before_cursor_execute", count_statement)
    event.listen(Engine, "commit", count_commit)
    sys.addaudithook(count_file)
    removed.send(asyncio.run(change_journal(verb, data)))
