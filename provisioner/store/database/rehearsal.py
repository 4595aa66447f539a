"""Writes to a shared server: work runs without the writers' lock, then is committed in one call.

The writers' lock of a site is never held across a client's round trips: a transaction of ten
statements over a link of 500 ms would stop every other daemon for six seconds.

Each piece of work runs as a rehearsal. A read is answered by one round trip, in which the server
runs the work's own writes so far, the read, and takes everything back. A write is only recorded.
Then one call hands all statements of the group to a function of the session: it takes the lock,
runs them, compares what each gives with what the rehearsal has seen, and the commit follows within
the same call. A piece of work whose rehearsal does not hold any more changes nothing, and is
rehearsed again, now with its writes tried for what they really give.

The rule that a reader would otherwise break: what takes the lock is one message of the simple query
protocol, which the server runs once it has all of it, never a pipeline, in whose middle it would
wait for the next statement for as long as a link is down.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

Work = Callable[[Connection], Any]

FIRST_WORD = re.compile(r"\s*(\w+)")
RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)
WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
CHANGES = WRITES | {"ALTER", "CREATE", "DROP", "TRUNCATE", "SET", "LOCK"}
# of statements that begin, end and take back parts of a rehearsal
CONTROLS = frozenset({"SAVEPOINT", "ROLLBACK", "RELEASE"})

# A piece of work with more writes reads without them at first: to run them before each read costs
# their square. What a read gave is compared all the same when they are committed.
BULK = 64
BULK_REHEARSALS = 4  # before it runs all of its writes before each read after all
# A near piece that others were faster than so often is written while the lock is held.
OVERTAKEN = 8

COUNTED = "count"  # a step is compared by the number of rows that it changed
DIGESTED = "digest"  # by a digest over the rows that it gave, in any order
UNSEEN = "unseen"  # not at all: nobody has used what it gave
ANSWERED = "answer"  # not at all, and its row is the call's answer

DIGEST_BEGIN = "WITH t AS ("
DIGEST_END = (
    ") SELECT count(*) || ' ' || "
    "md5(coalesce(string_agg(t::text, chr(10) ORDER BY t::text), '')) FROM t"
)
# In the session's own schema: it needs no right to change the site's, and leaves nothing behind.
FUNCTION = """
CREATE FUNCTION pg_temp.provisioner_commit(
    jobs jsonb, space int, what int, digest_begin text, digest_end text
) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    job jsonb;
    step jsonb;
    seen text;
    changed bigint;
    place int;
    answers text[] := '{}';
    answer text;
BEGIN
    PERFORM pg_advisory_xact_lock(space, what);
    FOR job IN SELECT value FROM jsonb_array_elements(jobs) LOOP
        answer := '';
        place := -1;
        BEGIN
            FOR step IN SELECT value FROM jsonb_array_elements(job -> 'steps') LOOP
                place := place + 1;
                IF step ->> 1 = 'digest' THEN
                    EXECUTE digest_begin || (step ->> 0) || digest_end INTO seen;
                ELSIF step ->> 1 = 'answer' THEN
                    EXECUTE 'WITH t AS (' || (step ->> 0) || ') SELECT row_to_json(t)::text FROM t'
                        INTO answer;
                    seen := step ->> 2;
                ELSE
                    EXECUTE step ->> 0;
                    GET DIAGNOSTICS changed = ROW_COUNT;
                    seen := CASE step ->> 1 WHEN 'count' THEN changed::text ELSE step ->> 2 END;
                END IF;
                IF seen IS DISTINCT FROM step ->> 2 THEN
                    RAISE EXCEPTION USING ERRCODE = 'PV001', MESSAGE = 'differs';
                END IF;
            END LOOP;
            IF NOT (job ->> 'keeps')::boolean THEN
                RAISE EXCEPTION USING ERRCODE = 'PV002';
            END IF;
        EXCEPTION
            WHEN SQLSTATE 'PV002' THEN answer := 'holds';
            WHEN OTHERS THEN answer := 'again: ' || place || ' ' || SQLSTATE || ' ' || SQLERRM;
        END;
        answers := answers || answer;
    END LOOP;
    RETURN answers;
END
$function$
"""
AGAIN = "again: "


@dataclass
class Script:
    """The statements of one piece of work, in order, and what it has seen of each.

    `guesses`: a write is taken to change one row, and is not tried; reads go without many writes,
    but for those that have to see them.
    """

    guesses: bool = True
    sees_writes: frozenset[str] = frozenset()
    lock: tuple[int, int] = (0, 0)
    steps: list[tuple[str, str, str | None]] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)  # where savepoints began
    guessed: bool = False
    wrote: bool = False

    def control(self, word: str) -> None:
        """Begin, end or take back a part."""
        if word == "SAVEPOINT":
            self.marks.append(len(self.steps))
        elif word == "RELEASE":
            self.marks.pop()
        else:
            del self.steps[self.marks.pop() :]

    def writes(self) -> list[str]:
        """Return the statements that change something, in what later ones see or may do."""
        return [text for text, _, _ in self.steps if _word(text) in CHANGES]


@dataclass
class Book:
    """Where the statements of one connection go: to a script, while there is one."""

    script: Script | None = None


class RehearsalCursor(psycopg.Cursor[Any]):
    """Runs a statement as the next one of its connection's script."""

    def __init__(
        self, connection: psycopg.Connection[Any], *, book: Book, row_factory: Any = None
    ) -> None:
        super().__init__(connection, row_factory=row_factory)
        self._book = book
        self._guess: int | None = None

    @property
    def rowcount(self) -> int:
        return super().rowcount if self._guess is None else self._guess

    def execute(self, query: Any, params: Any = None, **options: Any) -> RehearsalCursor:
        """Run or record one statement; see `Script`."""
        script = self._book.script
        if script is None:
            super().execute(query, params, **options)
            return self
        text = psycopg.ClientCursor(self.connection).mogrify(query, params)
        word = _word(text)
        self._guess = None
        if word in CONTROLS:
            script.control(word)
        elif word in WRITES and script.guesses and not RETURNING.search(str(query)):
            script.guessed = script.wrote = True
            self._guess = 1
            script.steps.append((text, COUNTED, "1"))
        else:
            # by the statement: a value of it may have the word as well
            self._try(script, text, word, returns=RETURNING.search(str(query)) is not None)
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **_options: Any) -> None:
        """Run or record one statement for each set of values."""
        if self._book.script is None:
            super().executemany(query, params_seq)
            return
        changed = 0
        for params in params_seq:
            self.execute(query, params)
            changed += max(self.rowcount, 0)
        self._guess = changed

    def _try(self, script: Script, text: str, word: str, *, returns: bool) -> None:
        """Run a statement after this work's writes, take all back, and record what it gave.

        In one message: locks that the server gives meanwhile are gone before it answers.
        """
        writes = word in WRITES
        before = script.writes()
        if script.guesses and len(before) > BULK and not writes and text not in script.sees_writes:
            before = []
        # SQLAlchemy asks an INSERT for the number that a sequence gave, which is another one when
        # it is committed, and which no row function uses
        gives_rows = not writes or (word != "INSERT" and returns)
        digested = gives_rows and word in {"SELECT", "WITH", *WRITES}
        said = ["BEGIN"]
        if before or writes:
            space, what = script.lock
            said.append(f"SELECT pg_advisory_xact_lock({space}, {what})")
        said += before
        if digested:
            said.append("SAVEPOINT digested")
            said.append(DIGEST_BEGIN + text + DIGEST_END)
            said.append("ROLLBACK TO SAVEPOINT digested")
        said += [text, "ROLLBACK"]
        try:
            super().execute(";\n".join(said).encode())
        except psycopg.Error:
            if not self.connection.closed:
                psycopg.Cursor(self.connection).execute("ROLLBACK")
            raise
        seen: Any = None
        for place in range(len(said) - 2):  # up to the answer of the last but one
            if digested and place == len(said) - 4:
                seen = self.fetchone()
            self.nextset()
        script.wrote = script.wrote or writes
        if digested:
            assert seen is not None, "an aggregate gives one row"
            script.steps.append((text, DIGESTED, seen[0]))
        elif writes:
            script.steps.append((text, COUNTED, str(super().rowcount)))
        else:
            script.steps.append((text, UNSEEN, None))


def _word(text: str) -> str:
    found = FIRST_WORD.match(text)
    return found[1].upper() if found else ""


@dataclass
class Piece:
    """One piece of work and its end: `result` or `error`, once it is `done`."""

    work: Work
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    script: Script = field(default_factory=Script)
    again: str = ""  # why the last rehearsal did not hold
    step: tuple[str, str, str | None] | None = None  # that did not hold
    overtaken: bool = False  # it is to be written while the lock is held
    rehearsals: int = 0

    def differed(self, answer: str) -> None:
        """Note which step did not give what the rehearsal had seen."""
        place, _, why = answer.removeprefix(AGAIN).partition(" ")
        self.again = why or "an error that may come of a guess"
        self.step = None
        if place.isdigit() and int(place) < len(self.script.steps):
            self.step = self.script.steps[int(place)]
            self.again += f": {self.step[0][:120]}"

    def next_script(self, lock: tuple[int, int]) -> Script:
        """Return how to rehearse: a bulk whose reads alone differed goes on guessing its writes."""
        bulk = len(self.script.steps) > BULK and self.rehearsals <= BULK_REHEARSALS
        if bulk and self.step is not None and self.step[1] == DIGESTED and self.error is None:
            return Script(sees_writes=self.script.sees_writes | {self.step[0]}, lock=lock)
        return Script(guesses=not self.again, lock=lock)


class Rehearsing:
    """Commits pieces of work on a connection that `postgres.rehearsal_connection` made."""

    def __init__(
        self, connection: Connection, lock: tuple[int, int], patience_s: float, chunk_s: float = 1.0
    ) -> None:
        """`patience_s`: for how long work is rehearsed again; `chunk_s`: after so long what is
        rehearsed is committed, so that the first need not wait for the last.
        """
        self._connection = connection
        self._lock = lock
        self._patience_s = patience_s
        self._chunk_s = chunk_s
        bare = connection.connection.driver_connection
        assert isinstance(bare, psycopg.Connection)
        self._bare = bare
        self._book = Book()
        make: Any = partial(RehearsalCursor, book=self._book)
        bare.cursor_factory = make

        def make_whole(connection: Any, name: str, **_: Any) -> Any:
            """Make no cursor of the server, which needs a transaction: all rows come at once."""
            return make(connection)

        whole: Any = make_whole
        bare.server_cursor_factory = whole
        with psycopg.Cursor(self._bare) as cursor:
            cursor.execute(FUNCTION.encode())

    def commit(
        self,
        pieces: Sequence[Piece],
        count: Work | None,
        keep: Callable[[object], None],
        *,
        near: bool = False,
    ) -> int:
        """Bring every piece to its end; return the number of transactions.

        `near`: what others are faster than again and again ends as `overtaken`, not written.

        Raises `DBAPIError` or `psycopg.Error` if the database fails: pieces that are not `done`
        may then be on disk, or not.
        """
        until = time.monotonic() + self._patience_s
        calls = 0
        left = [p for p in pieces if not p.done]
        while left:
            chunk = self._rehearse(left)
            counted = self._call(chunk, count)
            calls += 1
            if counted is not None:
                keep(counted)
            late = time.monotonic() > until
            for piece in chunk if near else ():
                bulk = len(piece.script.steps) > BULK
                often = piece.rehearsals >= (BULK_REHEARSALS if bulk else OVERTAKEN)
                if not piece.done and (often or late):
                    piece.done = piece.overtaken = True
            left = [p for p in left if not p.done]
            if left and late:
                for piece in left:
                    piece.done = True
                    piece.error = piece.error or TimeoutError(
                        f"others were faster for {self._patience_s:.0f} s: {piece.again}"
                    )
                left = []
        return calls

    def _rehearse(self, left: Sequence[Piece]) -> list[Piece]:
        """Run work without the lock, as much as there is time for; at least one piece."""
        started = time.monotonic()
        chunk = list[Piece]()
        for piece in left:
            piece.rehearsals += 1
            piece.script = piece.next_script(self._lock)
            piece.result = piece.error = None
            self._run(piece.script, piece)
            chunk.append(piece)
            if time.monotonic() - started > self._chunk_s:
                break
        return chunk

    def _run(self, script: Script, piece: Piece) -> None:
        self._book.script = script
        try:
            piece.result = piece.work(self._connection)
        except IntegrityError as error:
            piece.error = AssertionError(f"a row breaks a constraint: {error.orig}")
            piece.error.__cause__ = error
        except Exception as error:
            if self._bare.closed:
                raise
            piece.error = error
        finally:
            self._book.script = None

    def _call(self, chunk: Sequence[Piece], count: Work | None) -> object | None:
        """Commit the pieces whose rehearsal holds; return what `count` gave."""
        jobs = [{"steps": p.script.steps, "keeps": p.error is None} for p in chunk]
        if count is not None:
            jobs.append({"steps": self._counting(count), "keeps": True})
        space, what = self._lock
        with psycopg.ClientCursor(self._bare) as cursor:
            cursor.execute(
                b"SELECT pg_temp.provisioner_commit(%s::jsonb, %s, %s, %s, %s)",
                (json.dumps(jobs), space, what, DIGEST_BEGIN, DIGEST_END),
            )
            row = cursor.fetchone()
        assert row is not None, "a function gives one row"
        answers: list[str] = row[0]
        for piece, answer in zip(chunk, answers, strict=False):
            if answer.startswith(AGAIN) or (piece.error is not None and piece.script.guessed):
                piece.differed(answer)
            else:
                piece.done = True
        return None if count is None else _tuple(answers[-1])

    def _counting(self, count: Work) -> list[tuple[str, str, str | None]]:
        """Return the statement that counts; what it gives here is not what it will give."""
        script = Script(lock=self._lock)
        self._book.script = script
        try:
            count(self._connection)
        finally:
            self._book.script = None
        return [(text, ANSWERED, None) for text, _, _ in script.steps]


def _tuple(answer: str) -> object:
    if answer.startswith(AGAIN):
        return None
    row: Mapping[str, object] = json.loads(answer)
    return tuple(row.values())
