"""What is PostgreSQL's own: opening it, several writers, and a server that goes away."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from given_events import event_of
from postgres_server import PASSWORD

from provisioner.model.alert import Alert
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Secret, StoreFailed
from provisioner.store import Vault, open_signer, open_store, prepare_key
from provisioner.store.database import postgres
from provisioner.store.repositories.atlas import MarkKind
from provisioner.store.rows.home_rows import read_fleet
from provisioner.store.schema.schema import metadata


def test_migrations_build_exactly_the_schema_on_postgresql(database):
    engine = postgres.open_postgres(database)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()

    assert differences == []


def of_something_else(connection):
    connection.execute("DROP TABLE alembic_version")


def newer(connection):
    connection.execute("UPDATE alembic_version SET version_num = '9999'")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (of_something_else, "database of something else"),
        (newer, "schema 9999: was written by a newer version"),
    ],
)
def test_a_server_database_that_is_not_ours_is_refused(database, spoil, message):
    with psycopg.connect(database) as connection:
        spoil(connection)

    with pytest.raises(InputError, match=message):
        open_store(database)


def test_a_database_that_orders_texts_by_a_language_is_refused(server):
    running, _ = server
    with psycopg.connect(running.url("postgres"), autocommit=True) as connection:
        known = {r[0] for r in connection.execute("SELECT collname FROM pg_collation")}
        if "en_US.utf8" not in known:
            # any other encoding is refused by the same check
            connection.execute(
                "CREATE DATABASE worded TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"
            )
        else:
            connection.execute("CREATE DATABASE worded TEMPLATE template0 LOCALE 'en_US.utf8'")

    with pytest.raises(InputError, match=r"wanted are UTF8 and C.*--locale=C"):
        open_store(running.url("worded"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://nobody@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql://postgres@127.0.0.1:{port}/nothing", '"nothing" does not exist'),
        ("postgresql://postgres@127.0.0.1:9/x", "refused"),
        ("postgresql://postgres@127.0.0.1:{port}/", "names no database"),
        ("postgresql:", "no URL"),
    ],
)
def test_a_server_that_cannot_be_used_is_one_clear_error_without_its_password(server, url, message):
    asked = url.format(port=server[0].port).replace("@", f":{PASSWORD.replace(' ', '%20')}@")

    with pytest.raises(InputError, match=message) as raised:
        open_store(asked)

    assert "correct" not in str(raised.value)


def test_two_daemons_on_one_database_write_one_journal_without_a_hole(database):
    async def scenario():
        stores = [open_store(database), open_store(database)]
        await asyncio.gather(
            *(stores[i % 2].journal.append(event_of("x", f"n{i}"), 1.0) for i in range(200)),
            *(store.nodes.add(Node(id="n1", kind=NodeKind.HOST)) for store in stores),
            return_exceptions=True,
        )
        opened = await asyncio.gather(*(s.operations.open("n1", "x", 1.0) for s in stores))
        check = await stores[0].journal.verify()
        for store in stores:
            await store.close()
        return check.intact, check.rows, sum(o is not None for o in opened)

    assert asyncio.run(scenario()) == (True, 200, 1)


def test_a_writer_that_stands_still_is_ended_and_the_next_one_writes(database, monkeypatch):
    monkeypatch.setattr(postgres, "STALLED_MS", 300)

    async def scenario():
        stopped, other = open_store(database), open_store(database)
        connection = postgres.write_connection(stopped.engine)()
        connection.begin()  # as a process that was stopped here
        await other.journal.append(event_of("x"), 1.0)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            connection.connection.driver_connection.execute("SELECT 1")
        connection.invalidate()
        connection.close()
        check = await other.journal.verify()
        for store in (stopped, other):
            await store.close()
        return check.rows

    assert asyncio.run(scenario()) == 1


def test_a_reading_may_take_long_to_parse_and_a_writer_waits_for_none(database, monkeypatch):
    """As of the rows of 65,536 nodes on a machine short of CPU: it holds no lock."""
    monkeypatch.setattr(postgres, "STALLED_MS", 200)

    def parse_slowly(connection):
        rows = connection.exec_driver_sql("SELECT 1").all()
        time.sleep(0.8)
        return len(rows) + connection.exec_driver_sql("SELECT 1").scalar_one()

    async def scenario():
        store = open_store(database)
        reading = asyncio.create_task(store.read(parse_slowly))
        await store.journal.append(event_of("x"), 1.0)
        written_first = not reading.done()
        found = await reading
        await store.close()
        return found, written_first

    assert asyncio.run(scenario()) == (2, True)


def test_a_group_whose_server_goes_away_is_not_written_twice(server, database):
    """Its COMMIT may be on disk: whoever asked is told that it failed, and looks again."""
    running, _ = server

    async def scenario():
        store = open_store(database)
        await store.journal.append(event_of("first"), 1.0)
        await store.nodes.list()  # the reader connects
        with psycopg.connect(running.url("postgres"), autocommit=True) as person:
            person.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'provisioner' AND datname = 'one'"
            )
        answers = await asyncio.gather(
            *(store.journal.append(event_of("lost"), 1.0) for _ in range(5)), return_exceptions=True
        )
        await store.journal.append(event_of("again"), 1.0)
        with pytest.raises(StoreFailed):
            await store.nodes.list()  # the reader's connection went too
        kinds = [row["kind"] for row in await store.journal.list()]
        await store.close()
        return ["failed" if isinstance(a, StoreFailed) else "kept" for a in answers], kinds

    answers, kinds = asyncio.run(scenario())

    assert "failed" in answers
    assert kinds == ["first", *answers.count("kept") * ["lost"], "again"]


def test_figures_of_the_fleet_are_counted_alike_by_both_databases(run):
    blocker = Blocker(reason=Reason.DRIFT, subject="n1", detail="x\x00y", unblock="z")

    async def scenario(store):
        for number in range(3):
            node = Node(id=f"n{number}", kind=NodeKind.HOST, entered_at=10.0)
            await store.nodes.add(node.model_copy(update={"blockers": (blocker,) * (number % 2)}))
        raised = Alert(node="n1", id="FanFailed", target="a", source="w", since=1.0, last_at=1.0)
        await store.alerts.put([raised], [], 1.0)
        marks = {kind.value: await store.atlas.list_marks(kind, 20.0) for kind in MarkKind}
        limits = dict.fromkeys(State, 5.0)
        return await store.read(lambda c: read_fleet(c, 20.0, limits, 2)), marks

    fleet, marks = run(scenario)

    assert marks == {"certificate": [], "alert": [("n1", "FanFailed")], "wave": []}
    assert fleet.blocked == {"drift": 1}
    assert [(s.nodes, s.longest_s, s.over_limit) for s in fleet.states] == [(3, 10.0, 3)]
    assert fleet.late == (("n0", "discovered", 5.0), ("n1", "discovered", 5.0))


def test_a_dump_without_the_queues_tables_holds_everything_that_is_true(server, database, tmp_path):
    """The commands of docs/high-availability.md; journal, secrets and the signing key are whole."""
    running, _ = server
    dump = running.folder / "provisioner.dump"

    async def write():
        store = open_store(database)
        key = await prepare_key(store, tmp_path, {})
        signer = await open_signer(store, key, 1.0)
        await Vault(store, key).put("n1/bmc", "root", Secret("hunter2"))
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.operations.open("n1", "journey", 1.0)
        for number in range(20):
            await store.journal.append(event_of("x", "n1", {"number": number}), 1.0)
        check = await store.journal.verify()
        await store.close()
        return signer.key_id, check

    async def read(url):
        store = open_store(url)
        key = await prepare_key(store, tmp_path, {})
        kept = await Vault(store, key).current("n1/bmc")
        signer = await open_signer(store, key, 2.0)
        check = await store.journal.verify()
        active = [o.id for o in await store.operations.list_active()]
        await store.journal.append(event_of("after"), 2.0)  # and goes on
        await store.close()
        return signer.key_id, check, active, kept

    signed, head = asyncio.run(write())
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA dbos")
        connection.execute("CREATE TABLE dbos.workflow_status (id integer)")
    running.client("pg_dump", "-Fc", "--exclude-schema=dbos", f"--file={dump}", "one")
    restored = running.make()
    running.client("pg_restore", "--exit-on-error", f"--dbname={restored}", str(dump))
    found = asyncio.run(read(running.url(restored)))

    assert found == (signed, head, ["n1#1"], ("root", Secret("hunter2")))
    with psycopg.connect(running.url(restored)) as connection:
        queues = connection.execute("SELECT to_regclass('dbos.workflow_status')").fetchone()
    assert queues == (None,)
