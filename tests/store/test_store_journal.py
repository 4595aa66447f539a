"""The journal shows what was done to it."""

from __future__ import annotations

import pytest
from given_events import event_of
from sqlalchemy import text

from provisioner.store import SqlStore


async def written(store: SqlStore, rows: int) -> None:
    for number in range(rows):
        await store.journal.append(
            event_of("moved", f"n{number}", {"number": number}), 0.1 + number
        )


def test_rows_come_in_pages_in_the_order_they_were_written(run):
    async def scenario(store):
        await written(store, 5)
        first = await store.journal.list(limit=2)
        rest = await store.journal.list(after=first[-1]["seq"])
        return [(r["seq"], r["at"], r["detail"]["number"]) for r in (*first, *rest)]

    assert run(scenario) == [(n + 1, 0.1 + n, n) for n in range(5)]


def test_an_untouched_journal_holds(run):
    async def scenario(store):
        empty = await store.journal.verify()
        await written(store, 5)
        full = await store.journal.verify((empty.rows, empty.head))
        return empty.intact, full.intact, full.rows, full.head, await store.journal.list()

    empty, full, rows, head, read = run(scenario)

    assert (empty, full, rows) == (True, True, 5)
    assert head == read[-1]["digest"]


def unguarded(connection):
    """Somebody with rights on the database takes away what guards the journal."""
    of = " ON journal" if connection.dialect.name == "postgresql" else ""
    for change in ("update", "delete"):
        connection.execute(text(f"DROP TRIGGER journal_no_{change}{of}"))


@pytest.mark.parametrize(
    ("tampering", "broken_at"),
    [
        ("UPDATE journal SET detail = '{\"number\":9}' WHERE seq = 3", 3),
        ("UPDATE journal SET at = at + 1 WHERE seq = 1", 1),
        ("UPDATE journal SET node = 'n9' WHERE seq = 5", 5),
        ("DELETE FROM journal WHERE seq = 2", 2),
        ("UPDATE journal SET seq = -1 WHERE seq = 1", 1),
        ("INSERT INTO journal SELECT 0, at, kind, node, detail, digest FROM journal LIMIT 1", 1),
        ("INSERT INTO journal SELECT 6, at, kind, node, detail, digest FROM journal LIMIT 1", 6),
    ],
)
def test_tampering_is_found_at_its_row(run, tampering, broken_at):
    def tamper(connection):
        unguarded(connection)
        connection.exec_driver_sql(tampering)

    async def scenario(store):
        await written(store, 5)
        await store.write(tamper)
        return await store.journal.verify()

    check = run(scenario)

    assert (check.intact, check.broken_at) == (False, broken_at)


def test_a_journal_cut_off_at_its_end_is_not_the_known_one(run):
    def cut(connection):
        unguarded(connection)
        connection.execute(text("DELETE FROM journal WHERE seq > 3"))

    async def scenario(store):
        await written(store, 5)
        known = await store.journal.verify()
        await store.write(cut)
        unaided = await store.journal.verify()
        aided = await store.journal.verify((known.rows, known.head))
        return unaided.intact, aided.intact

    assert run(scenario) == (True, False)


@pytest.mark.parametrize("change", ["UPDATE journal SET at = 0", "DELETE FROM journal"])
def test_the_database_itself_refuses_to_change_the_journal(run, change):
    async def scenario(store):
        await written(store, 1)
        with pytest.raises(AssertionError, match="append-only"):
            await store.write(lambda c: c.execute(text(change)) and None)
        return (await store.journal.verify()).intact

    assert run(scenario)
