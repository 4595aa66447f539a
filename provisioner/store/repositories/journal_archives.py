"""The journal's past in files: written, compared with the live rows, and pruned.

Rule: a row leaves the database only if a file holds it that was verified here, and each file's rows
leave in one transaction of their own, so that a stop in between leaves a whole journal. Files are
read and written in threads: one has up to 50,000 rows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from provisioner.model.events.request_events import ClockAccepted, JournalArchived
from provisioner.model.input_error import InputError
from provisioner.ports.errors import StaleWrite
from provisioner.store.database import journal_archive
from provisioner.store.database.data_directory import prepare_directory
from provisioner.store.database.journal_archive import Archive, compare_archive
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.rows import agent_rows, journal, page_rows
from provisioner.store.rows.credential_rows import believed
from provisioner.store.rows.journal import Base, read_base
from provisioner.store.rows.journal_prune import (
    Removal,
    Span,
    find_removal,
    prune_unneeded,
    read_needs,
)
from provisioner.store.signing import Signer

# ------------------------------------------------------------------------------
# How far each receiver has taken the journal.
#
# The journal is the queue: nothing is copied. A position moves only after the receiver has proved
# that it read the rows, so that a crash in between sends them again and never leaves one out.


class SqlJournalRepository:
    """The journal: append-only and hash-chained."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    append = writes(journal.append)

    async def list(self, after: int = 0, limit: int = 1000) -> Sequence[Mapping[str, Any]]:
        return await self._transactions.read(lambda c: journal.read(c, after, limit))

    async def verify(self, known: tuple[int, str] | None = None) -> journal.ChainCheck:
        """Verify the chain; see `journal.verify`."""
        return await journal.verify(self._transactions.read, known)

    # Return the newest row's number and digest; (0, "") of an empty journal.
    get_head = reads(page_rows.journal_head)

    async def list_page(
        self,
        *,
        after: int,
        limit: int,
        kinds: Collection[str] = (),
        node: str = "",
        backwards: bool = False,
    ) -> tuple[tuple[Mapping[str, Any], ...], int]:
        """Return rows after (backwards: before) a number, and the number that was read last."""
        return await self._transactions.read(
            lambda c: page_rows.journal_page(
                c, after=after, limit=limit, kinds=kinds, node=node, backwards=backwards
            )
        )


class SqlClockMarkRepository:
    """Marks of the wall clock: against which a jump backwards is noticed, and when a host last
    proved its firmware ("attested su0-n01").
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Return the time of a mark ("last", "accepted"), or None.
    get = reads(agent_rows.read_mark)
    put = writes(agent_rows.put_mark)

    async def accept(self, now: float, event: ClockAccepted) -> None:
        """Accept the clock as it stands, with the event, in one transaction."""
        await self._transactions.write(lambda c: _accept(c, now, event))


def _accept(connection: Connection, now: float, event: ClockAccepted) -> None:
    agent_rows.put_mark(connection, agent_rows.ACCEPTED, now)
    journal.append(connection, event, now)


class SqlAuditExportRepository:
    """Stored positions. Every method is one short transaction, on disk when it returns."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Keep the positions of these receivers alone; a new one begins at the oldest row.
    set_receivers = writes(journal.set_receivers)
    list = reads(journal.read_exports)

    # Return a receiver's position, and the next rows after it, the oldest first.
    list_rows = reads(journal.read_rows)

    # Move the position to `last`, unless another daemon moved it from `position`.
    record_taken = writes(journal.record_taken)
    record_failure = writes(journal.record_failure)


ROWS_MAX = journal_archive.ROWS_MAX  # of one file


@dataclass(frozen=True)
class Actor:
    """The person of a change, its time, and the version of the program that makes it."""

    by: str
    now: float
    program: str = ""


@dataclass(frozen=True)
class RemovalSurvey:
    """The rows that archives allow to remove, and how many stay for which reason."""

    archives: int
    going: int
    staying: int
    reasons: Mapping[str, int]


class SqlArchiveRepository:
    """One directory of archives beside the journal of one database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._turn = asyncio.Lock()  # files of one directory continue each other

    async def find_rows(self, directory: Path, until: float) -> tuple[int, int]:
        """Return (first, last) of the rows up to a time that no archive holds; last < first: none.

        Raises InputError for an archive that is not trusted.
        """
        end = await self._find_end(directory)
        read = self._transactions.read
        return await read(partial(journal_archive.read_span, base=end, until=until))

    async def write_archives(
        self, directory: Path, until: float, signer: Signer, actor: Actor
    ) -> tuple[Archive, ...]:
        """Write the rows up to a time into files that continue the directory's.

        Each file is on disk and verified before the journal records it. Raises InputError.
        """
        async with self._turn:
            end = await self._find_end(directory)
            read = self._transactions.read
            first, last = await read(partial(journal_archive.read_span, base=end, until=until))
            if last < first:
                return ()
            prepare_directory(directory)
            written: list[Archive] = []
            previous = end.head
            for begin in range(first, last + 1, ROWS_MAX):
                stop = min(begin + ROWS_MAX - 1, last)
                lines = await read(partial(journal_archive.read_lines, first=begin, last=stop))
                archive = await asyncio.to_thread(
                    journal_archive.write_archive,
                    directory,
                    lines,
                    previous,
                    signer,
                    (actor.by, actor.now),
                    actor.program,
                )
                previous = archive.statement.head
                written.append(archive)
                await self._record(archive, actor)
            return tuple(written)

    async def survey_removal(self, directory: Path, now: float) -> RemovalSurvey:
        """Return the rows that a prune would remove, after all was verified.

        Raises InputError if the live journal or an archive is not intact, or they do not join.
        """
        check = await journal.verify(self._transactions.read, None)
        if not check.intact:
            raise _refuse(directory, f"the live journal is not intact at row {check.broken_at}")
        read = self._transactions.read
        needs = await read(partial(read_needs, now=now))
        base = await read(read_base)
        removals: list[Removal] = []
        async for archive in self._read_archives(directory):
            if archive.statement.first > base.through + 1:
                raise _refuse(directory, f"the archive of row {base.through + 1} is missing")
            if why := await read(partial(compare_archive, archive=archive, base=base)):
                raise _refuse(directory, why)
            step = partial(find_removal, span=build_span(archive), needs=needs, base=base)
            try:
                removals.append(await read(step))
            except StaleWrite as error:
                raise _refuse(directory, str(error)) from None
            if archive.statement.last > base.through:
                base = Base(archive.statement.last, archive.statement.head)
        reasons: Counter[str] = Counter()
        for removal in removals:
            reasons.update(removal.reasons)
        going = sum(len(removal.going) for removal in removals)
        staying = sum(len(removal.staying) for removal in removals)
        return RemovalSurvey(len(removals), going, staying, reasons)

    async def prune_rows(self, directory: Path, signer: Signer, actor: Actor) -> int:
        """Remove the rows that archives hold and nothing needs; return their number.

        Call `survey_removal` first. Raises InputError, also if the live rows changed meanwhile;
        the archives before the one that it names are pruned by then.
        """
        removed = 0
        async with self._turn:
            async for archive in self._read_archives(directory):
                step = partial(
                    prune_unneeded,
                    span=build_span(archive),
                    signer=signer,
                    by=actor.by,
                    now=actor.now,
                )
                try:
                    removed += len((await self._transactions.write(step)).going)
                except StaleWrite as error:
                    raise _refuse(directory, str(error)) from None
        return removed

    async def verify(self, directory: Path, known: tuple[int, str] | None) -> journal.ChainCheck:
        """Verify the live journal and the archives, and that they join.

        Raises InputError for an archive that is not trusted.
        """
        read = self._transactions.read
        base = await read(read_base)
        reached = 0
        matched = known is None
        async for archive in self._read_archives(directory):
            statement = archive.statement
            if reached == 0 and statement.first != 1:
                problem = f"the archive of row 1 is missing in {directory}"
                return journal.ChainCheck(0, "", 1, problem)
            if why := await read(partial(compare_archive, archive=archive, base=base)):
                return journal.ChainCheck(reached, "", statement.first, why)
            if known is not None and statement.first <= known[0] <= statement.last:
                if archive.digests[known[0] - statement.first] != known[1]:
                    return journal.ChainCheck(0, "", known[0], "not the known journal")
                matched = True
            reached = statement.last
        if reached < base.through:
            problem = f"the archive of row {reached + 1} is missing"
            return journal.ChainCheck(0, "", reached + 1, problem)
        return await journal.verify(self._transactions.read, None if matched else known)

    async def _find_end(self, directory: Path) -> Base:
        """Return the last archived row: of the files that exist, or else of the pruned ones."""
        read = self._transactions.read
        base = await read(read_base)
        end = base
        async for archive in self._read_archives(directory):
            if why := await read(partial(compare_archive, archive=archive, base=base)):
                raise _refuse(directory, why)
            statement = archive.statement
            if statement.last > end.through:
                if statement.first > end.through + 1:
                    raise _refuse(directory, f"the archive of row {end.through + 1} is missing")
                end = Base(statement.last, statement.head)
        return end

    async def _read_archives(self, directory: Path) -> AsyncIterator[Archive]:
        """Yield the verified archives in their order, each read in a thread."""
        keys = await self._transactions.read(believed)
        archives: Iterator[Archive] = journal_archive.read_directory(directory, keys)
        while (archive := await asyncio.to_thread(next, archives, None)) is not None:
            yield archive

    async def _record(self, archive: Archive, actor: Actor) -> None:
        statement = archive.statement
        event = JournalArchived(
            by=actor.by,
            file=str(archive.file),
            first=statement.first,
            last=statement.last,
            head=statement.head,
            sha256=archive.sha256,
        )
        await self._transactions.write(lambda c: journal.append(c, event, actor.now))


def build_span(archive: Archive) -> Span:
    """Return the rows of an archive in the form of the row functions."""
    statement = archive.statement
    return Span(statement.first, statement.previous, archive.digests, archive.sha256)


def _refuse(directory: Path, problem: str) -> InputError:
    remedy = "Nothing more was removed. Run `provisioner audit verify --archives DIR`."
    return InputError(str(directory), "", problem, remedy)
