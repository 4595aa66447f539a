"""A start that meets a full server, or a machine without CPU to spare, waits and says why."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_server import PASSWORD
from sqlalchemy import make_url

from provisioner.control.engine import engine_dbos
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.store import open_store
from provisioner.store.database import postgres, waits
from provisioner.store.database.seat import Seat

LIMIT_S = 30.0


@pytest.fixture
def limited(server: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a role that may connect three times; superusers have reserved connections."""
    monkeypatch.setattr(postgres, "FULL_PAUSE_S", 0.05)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE few LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 3")
        owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO few")
        owner.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO few")
        owner.execute("GRANT ALL ON SCHEMA public TO few")
        yield database.replace("postgres@", "few@")
        owner.execute("DROP OWNED BY few")
        for pid in owner.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'few'"):
            owner.execute("SELECT pg_terminate_backend(%s)", pid)
        owner.execute("DROP ROLE few")


def held(url: str, count: int) -> list[psycopg.Connection[Any]]:
    return [psycopg.connect(url) for _ in range(count)]


def wait_until(holds: Any) -> None:
    until = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("taken", [3, 2])
def test_a_start_waits_for_a_connection_and_says_how_many_are_needed(limited, caplog, taken):
    """With one left it gets that one, and waits for its second."""
    others = held(limited, taken)
    opened = []
    starting = threading.Thread(target=lambda: opened.append(open_store(limited)))
    starting.start()
    wait_until(lambda: "PostgreSQL has no connection left" in caplog.text)
    assert waits.too_long(0.0) is None  # the limit of waits does not end a start that waits so
    assert not opened

    for other in others:
        other.close()
    starting.join(LIMIT_S)

    assert 'too many connections for role "few". A daemon takes up to 13' in caplog.text
    asyncio.run(opened[0].close())


def test_a_store_that_is_open_waits_for_its_connections_and_its_work_is_done(limited, caplog):
    store = open_store(limited)
    others = held(limited, 3)

    async def scenario() -> object:
        adding = asyncio.ensure_future(store.nodes.add(Node(id="n1", kind=NodeKind.HOST)))
        await asyncio.to_thread(wait_until, lambda: "no connection left" in caplog.text)
        assert not adding.done()
        for other in others:
            other.close()
        await asyncio.wait_for(adding, LIMIT_S)
        found = await store.nodes.get("n1")
        await store.close()
        return found

    found = asyncio.run(scenario())

    assert found is not None


def test_a_seat_waits_for_its_connections(limited, caplog):
    others = held(limited, 2)
    seat = Seat(limited, "a", "test", 10.0)
    seated = threading.Thread(target=seat.take)
    seated.start()
    wait_until(lambda: "no connection left" in caplog.text)
    others[0].close()
    seated.join(LIMIT_S)

    assert seat.number > 0
    seat.leave()


def test_the_queue_of_operations_waits_for_all_its_connections_and_holds_none(
    limited, caplog, monkeypatch
):
    monkeypatch.setattr(engine_dbos, "POOL", 1)  # two are opened at once, as many as there are
    others = held(limited, 2)
    url = make_url(limited)
    finding = threading.Thread(target=engine_dbos._find_room, args=(url,))
    finding.start()
    wait_until(lambda: "no connection left" in caplog.text)
    held(limited, 1)[0].close()  # the one that is free was not kept
    others[0].close()
    finding.join(LIMIT_S)

    assert not finding.is_alive()


def test_any_other_refusal_of_the_server_ends_the_start_at_once(database):
    with pytest.raises(InputError, match=r"authentication failed|does not exist"):
        open_store(database.replace("postgres@", "nobody@"))


@pytest.fixture
def slow_start(server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database, whose migration is slower than its server's patience."""
    running, _ = server
    name = running.make()
    monkeypatch.setattr(postgres, "STALLED_MS", 200)
    upgrade = postgres._upgrade

    def slow(connection: Any, revision: str) -> None:
        time.sleep(0.8)
        upgrade(connection, revision)

    monkeypatch.setattr(postgres, "_upgrade", slow)
    yield running.url(name)
    with psycopg.connect(running.url("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_migration_that_gets_no_cpu_is_not_ended_by_its_own_limit(slow_start):
    asyncio.run(open_store(slow_start).close())


def test_a_start_that_the_server_ended_for_its_slowness_names_the_load(slow_start, monkeypatch):
    monkeypatch.setattr(postgres, "UNHURRIED_STALLED_MS", 200)

    with pytest.raises(InputError, match=r"too slow.*idle-in-transaction.*load of this machine"):
        open_store(slow_start)
