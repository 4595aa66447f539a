"""Answers of reads, valid until the next change of the database: most reads ask the same again.

An idle daemon looks at its rows many times between two writes. SQLite counts the changes of a
connection and shows commits of others as a version of the file, and to read both costs a hundredth
of a transaction. A server has nothing as cheap, so that nothing of one is kept here.

The rule that a reader would otherwise break: a function that is read through the cache returns
frozen values alone, since several callers get the same object.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from sqlalchemy import Connection

ANSWERS_MAX = 1024  # the fleet's tables are asked as a whole, and a node's rows are small


class Question(NamedTuple):
    """A row function and its arguments after the connection."""

    function: Callable[..., Any]
    arguments: tuple[Hashable, ...]

    def ask(self, connection: Connection) -> Any:
        """Run the function in a transaction."""
        return self.function(connection, *self.arguments)


class ReadCache:
    """The answers of one lane, used by the lane's thread alone."""

    def __init__(self) -> None:
        self._version: tuple[int, int] | None = None
        self._answers: dict[Question, Any] = {}

    def refresh(self, connection: Connection) -> None:
        """Forget every answer if anything was written since the last call.

        Called outside of a transaction, and before the one whose answers are put here: a commit in
        between makes the version an older one, never a newer.
        """
        version = _read_version(connection)
        if version is None or version != self._version or len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        self._version = version

    def __contains__(self, question: Question) -> bool:
        return question in self._answers

    def __getitem__(self, question: Question) -> Any:
        return self._answers[question]

    def put(self, question: Question, answer: Any) -> None:
        """Keep the answer of a transaction that ended."""
        if self._version is not None:
            self._answers[question] = answer


def _read_version(connection: Connection) -> tuple[int, int] | None:
    """Return the count of this connection's changes and the version of the file; None if unknown.

    sqlite.org/pragma.html#pragma_data_version: it shows the commits of every other connection.
    """
    bare = connection.connection.driver_connection
    if not isinstance(bare, sqlite3.Connection):
        return None
    (version,) = bare.execute("PRAGMA data_version").fetchone()
    return bare.total_changes, version
