"""Transactions on one database: work for the writer's lane, and work for the reader's.

Nothing here blocks the event loop (unless opened `inline`), and no transaction is held across an
await: the row functions are synchronous and a lane runs them as one piece of work.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, cast

from sqlalchemy import Connection, Engine

from provisioner.ports.errors import DamagedRow
from provisioner.store.database import database
from provisioner.store.database.lanes import Lane, Result, Work
from provisioner.store.database.read_cache import Question
from provisioner.store.rows import records

Arguments = ParamSpec("Arguments")


class Transactions:
    """The two lanes of one database, which all its repositories share.

    `StoreFailed` from any of them is final.
    """

    def __init__(self, engine: Engine, writer: Lane, reader: Lane) -> None:
        self.engine = engine
        self.writer = writer
        self.reader = reader

    @property
    def shared(self) -> bool:
        """Return whether other daemons may write too."""
        return self.engine.dialect.name == "postgresql"

    @property
    def file(self) -> Path | None:
        """Return the database's file; None in memory or on a server."""
        return database.file_of(self.engine)

    @property
    def waiting(self) -> int:
        return self.writer.waiting + self.reader.waiting

    async def write(self, work: Work[Result]) -> Result:
        """Run synchronous row functions in one transaction; on disk when this returns."""
        return await self.writer.run(work)

    async def read(self, work: Work[Result]) -> Result:
        """Run queries on one snapshot, which has every write that was answered before."""
        return await self.reader.run(work)

    async def read_of(self, node: str, work: Work[Result]) -> Result:
        """Read rows of one node; a damaged one is recorded as that node's."""
        try:
            return await self.read(work)
        except DamagedRow as error:
            records.record(self.engine, node, error)
            raise DamagedRow(error.where, error.problem, node) from None

    async def recall(
        self,
        function: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Read as `read` does, without a transaction if nothing was written since the last time.

        `function` returns frozen values: its other callers get the same object.
        """
        assert not named, "arguments are given by place: they are the key"
        places = cast(tuple[Hashable, ...], arguments)
        return cast(Result, await self.reader.recall(Question(function, places)))

    async def recall_of(self, function: Callable[[Connection, str], Result], node: str) -> Result:
        """Recall rows of one node; a damaged one is recorded as that node's."""
        try:
            return await self.recall(function, node)
        except DamagedRow as error:
            records.record(self.engine, node, error)
            raise DamagedRow(error.where, error.problem, node) from None

    async def close(self) -> None:
        """Finish the writes that wait, then close the file. A second call does nothing."""
        await self.writer.close()
        await self.reader.close()
        self.engine.dispose()


class _Repository(Protocol):
    """What has methods that `reads` and `writes` make."""

    _transactions: Transactions


class _Forward(Generic[Arguments, Result]):
    """A method that runs one row function in a transaction, with its own arguments."""

    def __init__(
        self, function: Callable[Concatenate[Connection, Arguments], Result], *, changes: bool
    ) -> None:
        self._function = function
        self._changes = changes

    def __get__(
        self, repository: _Repository, owner: object = None
    ) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
        lanes = repository._transactions
        run = lanes.write if self._changes else lanes.read

        async def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            return await run(lambda c: self._function(c, *arguments, **named))

        return call


def reads(
    function: Callable[Concatenate[Connection, Arguments], Result],
) -> _Forward[Arguments, Result]:
    """Return a repository's method that reads by this row function."""
    return _Forward(function, changes=False)


def writes(
    function: Callable[Concatenate[Connection, Arguments], Result],
) -> _Forward[Arguments, Result]:
    """Return a repository's method that writes by this row function, in one transaction."""
    return _Forward(function, changes=True)
