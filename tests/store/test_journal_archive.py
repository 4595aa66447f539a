"""The journal's past in archives: signed, chained, pruned only where a verified one holds it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from given_events import event_of
from sqlalchemy import text

from provisioner.model.input_error import InputError
from provisioner.ports import StaleWrite
from provisioner.store import SqlStore, open_store
from provisioner.store.database.backup import make_backup, restore_backup
from provisioner.store.database.journal_archive import (
    Archive,
    compare_archive,
    read_archive,
    read_directory,
    read_lines,
    read_span,
    write_archive,
)
from provisioner.store.repositories.signing_keys import MasterKey, exchange_signing_key, open_signer
from provisioner.store.rows.credential_rows import believed
from provisioner.store.rows.journal import check_beginning, read_base, verify
from provisioner.store.rows.journal_prune import Needs, Span, prune, read_needs
from provisioner.store.signing import Signer

NOW = 1000.0
NOTHING = Needs()


async def fill(store: SqlStore, rows: int = 10) -> Signer:
    for number in range(rows):
        await store.journal.append(
            event_of("moved", f"n{number % 3}", {"number": number}), float(number)
        )
    return await open_signer(store, MasterKey(b"k" * 32), NOW)


async def archive(
    store: SqlStore, signer: Signer, directory: Path, *ends: int
) -> tuple[Archive, ...]:
    """Write archives that end at these rows."""
    base, made = await store.read(read_base), []
    first, previous = base.through + 1, base.head
    for last in ends:
        lines = await store.read(partial(read_lines, first=first, last=last))
        made.append(write_archive(directory, lines, previous, signer, ("ada", NOW), "1.0"))
        first, previous = last + 1, made[-1].statement.head
    return tuple(made)


def span_of(one: Archive) -> Span:
    return Span(one.statement.first, one.statement.previous, one.digests, one.sha256)


async def remove(
    store: SqlStore, signer: Signer, one: Archive, needs: Needs = NOTHING
) -> tuple[int, ...]:
    step = partial(prune, span=span_of(one), needs=needs, signer=signer, by="ada", now=NOW)
    return (await store.write(step)).going


async def sequences(store: SqlStore) -> list[int]:
    return [int(row["seq"]) for row in await store.journal.list()]


def test_rows_are_archived_up_to_a_time_and_the_newest_stays(run, tmp_path):
    async def scenario(store: SqlStore) -> Any:
        await fill(store)
        base = await store.read(read_base)
        return [await store.read(partial(read_span, base=base, until=t)) for t in (3.5, 99, -1)]

    assert run(scenario) == [(1, 4), (1, 9), (1, 0)]


def test_a_pruned_journal_goes_on_and_is_verified_with_and_without_archives(run, tmp_path):
    async def scenario(store: SqlStore) -> Any:
        signer = await fill(store)
        before = await store.journal.verify()
        early = await store.read(read_base)
        one, two = await archive(store, signer, tmp_path, 4, 8)
        assert await remove(store, signer, one) == (1, 2, 3, 4)
        middle = await store.journal.verify()
        assert await remove(store, signer, two) == (5, 6, 7, 8)
        await store.journal.append(event_of("moved", "n1"), NOW)
        after = await store.journal.verify((before.rows, before.head))
        old = await store.journal.verify((3, one.digests[2]))
        keys, base = await store.read(believed), await store.read(read_base)
        compared = [
            await store.read(partial(compare_archive, archive=a, base=b))
            for a in read_directory(tmp_path, keys)
            for b in (base, early)  # read before another process pruned
        ]
        rows = await store.journal.list()
        return middle.intact, after, old.problem, compared, await sequences(store), rows

    middle, after, old, compared, left, rows = run(scenario)
    assert middle
    assert (after.intact, after.rows) == (True, 13)
    assert "archive" in old
    assert compared == [""] * 4
    assert left == [9, 10, 11, 12, 13]
    assert rows[2]["kind"] == "journal_pruned"
    assert (rows[2]["detail"]["by"], rows[2]["detail"]["removed"]) == ("ada", 4)


def test_rows_that_go_between_two_pages_of_a_verification_are_not_missing(run, tmp_path):
    async def scenario(store: SqlStore) -> Any:
        signer = await fill(store)
        waiting = list(await archive(store, signer, tmp_path, 4))

        async def look(work: Callable[[Any], Any]) -> Any:
            answer = await store.read(work)
            if work is check_beginning and waiting:
                await remove(store, signer, waiting.pop())
            return answer

        return await verify(look, None)

    check = run(scenario)
    assert (check.intact, check.rows) == (True, 11)


def test_rows_that_are_needed_stay_until_they_are_not(run, tmp_path):
    async def scenario(store: SqlStore) -> Any:
        signer = await fill(store)
        one, two = await archive(store, signer, tmp_path, 4, 8)
        needs = Needs(since={"n1": 0.0})
        first = await remove(store, signer, one, needs)
        await remove(store, signer, two, needs)
        check = await store.journal.verify()
        kept = [s for s in await sequences(store) if s <= 8]
        later = await remove(store, signer, one)
        again = await remove(store, signer, one)
        return first, check.intact, kept, later, again, (await store.journal.verify()).intact

    assert run(scenario) == ((1, 3, 4), True, [2, 5, 8], (2,), (), True)


def unguarded(connection: Any) -> None:
    of = " ON journal" if connection.dialect.name == "postgresql" else ""
    for change in ("update", "delete"):
        connection.execute(text(f"DROP TRIGGER journal_no_{change}{of}"))


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE journal SET detail = '{}' WHERE seq = 2",  # one that stayed
        "DELETE FROM journal WHERE seq = 5",
        "UPDATE journal_links SET previous = 'x' WHERE seq = 2",
        "DELETE FROM journal_links WHERE seq = 2",
        "DELETE FROM journal WHERE seq = 9",
        "UPDATE journal_base SET through = 9",
        "UPDATE journal_base SET head = 'x'",
        "DELETE FROM journal_base",
    ],
)
def test_tampering_after_a_prune_is_noticed(run, tmp_path, tampering):
    def tamper(connection: Any) -> None:
        unguarded(connection)
        connection.exec_driver_sql(tampering)

    async def scenario(store: SqlStore) -> bool:
        signer = await fill(store)
        (one,) = await archive(store, signer, tmp_path, 8)
        await remove(store, signer, one, Needs(since={"n1": 0.0}))
        assert (await store.journal.verify()).intact
        await store.write(tamper)
        return bool((await store.journal.verify()).intact)

    assert run(scenario) is False


def test_rights_on_the_database_alone_prune_nothing(run, tmp_path):
    """A base that another key signed is not believed; nor is one after the key was withdrawn."""

    async def scenario(store: SqlStore) -> Any:
        signer = await fill(store)
        (one,) = await archive(store, signer, tmp_path, 8)
        stranger = await other_signer()
        await remove(store, stranger, one)
        foreign = await store.journal.verify()
        return foreign.intact, foreign.problem

    intact, problem = run(scenario)
    assert not intact
    assert "signed" in problem


async def other_signer() -> Signer:
    other = open_store(":memory:", inline=True)
    try:
        return await open_signer(other, MasterKey(b"o" * 32), NOW)
    finally:
        await other.close()


def test_nothing_is_deleted_outside_of_a_prune(run, tmp_path):
    async def scenario(store: SqlStore) -> None:
        signer = await fill(store)
        (one,) = await archive(store, signer, tmp_path, 8)
        await remove(store, signer, one, Needs(since={"n1": 0.0}))
        for seq in (2, 9):
            delete = text(f"DELETE FROM journal WHERE seq = {seq}")
            with pytest.raises(AssertionError, match="append-only"):
                await store.write(lambda c, d=delete: c.execute(d))

    run(scenario)


def test_a_prune_that_is_cut_off_leaves_all_of_it(run, tmp_path):
    async def scenario(store: SqlStore) -> Any:
        signer = await fill(store)
        (one,) = await archive(store, signer, tmp_path, 8)

        def cut(connection: Any) -> None:
            prune(connection, span_of(one), NOTHING, signer, "ada", NOW)
            raise StaleWrite("cut off")

        with pytest.raises(StaleWrite):
            await store.write(cut)
        return await sequences(store), (await store.journal.verify()).intact

    assert run(scenario) == (list(range(1, 11)), True)


def test_an_archive_of_another_journal_removes_nothing(run, tmp_path):
    async def other() -> Archive:
        store = open_store(":memory:", inline=True)
        try:
            signer = await fill(store, 12)
            await store.journal.append(event_of("other"), 1.0)
            lines = await store.read(partial(read_lines, first=1, last=8))
            changed = [*lines[:4], *lines[4:]]
            return write_archive(tmp_path, changed, "0" * 64, signer, ("ada", NOW), "1.0")
        finally:
            await store.close()

    async def scenario(store: SqlStore) -> None:
        await store.journal.append(event_of("first"), 0.0)
        signer = await fill(store)
        with pytest.raises(StaleWrite, match="not the one"):
            await remove(store, signer, await other())
        (one, two) = await archive(store, signer, tmp_path / "own", 4, 8)
        with pytest.raises(StaleWrite, match="archive of row 1 is missing"):
            await remove(store, signer, two)
        assert await remove(store, signer, one) == (1, 2, 3, 4)

    (tmp_path / "own").mkdir()
    run(scenario)


def changed_line(file: Path, number: int, change: Callable[[list[Any]], None]) -> None:
    lines = file.read_text().splitlines()
    row = json.loads(lines[number])
    change(row)
    lines[number] = json.dumps(row)
    file.write_text("\n".join(lines) + "\n")


def drop_line(file: Path, number: int) -> None:
    lines = file.read_text().splitlines()
    del lines[number]
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda d: changed_line(d[1], 2, lambda r: r.__setitem__(4, "{}")),
            "differs from the written one",
        ),
        (lambda d: drop_line(d[1], 2), "is missing"),
        (lambda d: drop_line(d[1], -1), "does not hold rows"),
        (lambda d: drop_line(d[1], 0), "is not to be believed"),
        (lambda d: d[1].unlink(), "archive of row 4 is missing"),
        (lambda d: shutil.copy(d[0], d[1]), "is missing before it"),
        (lambda d: d[1].write_text("{}\n"), "no DSSE"),
        (lambda d: d[1].write_bytes(b"\xff\xfe\n"), "is not to be believed"),
        (lambda d: d[1].write_text("[" * 100_000 + "\n"), "is not to be believed"),
    ],
)
def test_a_damaged_missing_or_reordered_archive_is_found(tmp_path, damage, problem):
    async def made() -> dict[str, bytes]:
        store = open_store(":memory:", inline=True)
        try:
            signer = await fill(store)
            await archive(store, signer, tmp_path, 3, 6, 9)
            return {signer.key_id: signer.public_key}
        finally:
            await store.close()

    keys = asyncio.run(made())
    assert len(list(read_directory(tmp_path, keys))) == 3
    damage(sorted(tmp_path.glob("journal-*")))
    with pytest.raises(InputError) as caught:
        list(read_directory(tmp_path, keys))
    assert problem in str(caught.value)


def test_an_archive_of_a_key_that_was_withdrawn_is_not_believed(run, tmp_path):
    async def scenario(store: SqlStore) -> None:
        signer = await fill(store)
        (one,) = await archive(store, signer, tmp_path, 5)
        await exchange_signing_key(store, MasterKey(b"k" * 32), NOW)
        assert read_archive(one.file, await store.read(believed)).digests == one.digests
        await exchange_signing_key(store, MasterKey(b"k" * 32), NOW, compromised=True)
        with pytest.raises(InputError, match="none of the keys"):
            read_archive(one.file, await store.read(believed))

    run(scenario)


def test_an_archive_is_never_written_over(run, tmp_path):
    async def scenario(store: SqlStore) -> None:
        signer = await fill(store)
        await archive(store, signer, tmp_path, 5)
        with pytest.raises(InputError, match="cannot be written"):
            await archive(store, signer, tmp_path, 5)
        assert len(list(tmp_path.glob("*journal*"))) == 1

    run(scenario)


def test_a_backup_of_a_pruned_journal_is_restored(tmp_path):
    data = tmp_path / "data"

    async def made() -> None:
        store = open_store(data / "provisioner.db")
        try:
            signer = await fill(store)
            (one,) = await archive(store, signer, tmp_path, 8)
            await remove(store, signer, one, Needs(since={"n1": 0.0}))
        finally:
            await store.close()

    async def checked(file: Path) -> Any:
        store = open_store(file)
        try:
            check = await store.journal.verify()
            return check.intact, check.rows
        finally:
            await store.close()

    asyncio.run(made())
    backup = tmp_path / "backup.tar"
    key = MasterKey.generate()
    manifest = make_backup(data, str(data / "provisioner.db"), backup, NOW, "1.0", key)
    assert (manifest.journal_problem, manifest.journal_rows) == ("", 11)
    (tmp_path / "new").mkdir()
    restore_backup(backup, tmp_path / "new", str(tmp_path / "new" / "provisioner.db"), key)
    assert asyncio.run(checked(tmp_path / "new" / "provisioner.db")) == (True, 11)


def test_what_is_needed_of_an_empty_site_is_nothing(run):
    async def scenario(store: SqlStore) -> Needs:
        return await store.read(partial(read_needs, now=NOW))

    assert run(scenario) == NOTHING
