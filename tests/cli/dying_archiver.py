"""Runs `provisioner audit …` with small archives and kills its own process at one point.

Run as a program by the tests: `python dying_archiver.py KIND NUMBER WORDS…`. The point is the
event of that number among those of one kind: `os.link` and `os.remove` of an archive's file, `sql`
for a statement that writes, `commit` for the end of a transaction, or `none`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from typing import Any

from sqlalchemy import Connection, Engine, event

from provisioner.cli import main
from provisioner.cli.serve import audit_archive

WRITES = ("INSERT", "UPDATE", "DELETE")
FILES = ("os.link", "os.remove")
KIND, NUMBER = sys.argv[1], int(sys.argv[2])
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


if __name__ == "__main__":
    audit_archive.ROWS_MAX = 3
    event.listen(Engine, "before_cursor_execute", count_statement)
    event.listen(Engine, "commit", count_commit)
    sys.addaudithook(count_file)
    sys.argv[:] = ["provisioner", "audit", *sys.argv[3:]]
    main()
