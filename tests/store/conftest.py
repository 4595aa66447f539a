"""One suite for every way a store runs: in the caller's thread or its own; file, memory, server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from postgres_server import Server

from provisioner.store import SqlStore, open_store

T = TypeVar("T")
Scenario = Callable[[SqlStore], Awaitable[T]]


WAYS = [
    "inline memory",
    "inline file",
    "threads memory",
    "threads file",
    "threads server",
]


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[Server, str]]:
    """A PostgreSQL server, and its database that has our schema and no rows."""
    server = Server(memory=True)
    try:
        # nobody cuts its power: what survives that is tried elsewhere
        server.start("-c", "fsync=off")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
            template = server.make()
            asyncio.run(open_store(server.url(template)).close())
            yield server, template
    finally:
        server.remove()


@pytest.fixture
def database(server: tuple[Server, str]) -> Iterator[str]:
    """The URL of a database with our schema and no rows."""
    running, template = server
    with psycopg.connect(running.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE one TEMPLATE {template} STRATEGY FILE_COPY")
        yield running.url("one")
        connection.execute("DROP DATABASE one WITH (FORCE)")


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario[T]], T]:
    """Runs a scenario on a store; a second scenario of one test meets the same file again."""
    how, where = request.param.split()
    path: str | Path = ":memory:" if where == "memory" else tmp_path / "data" / "store.db"
    if where == "server":
        path = request.getfixturevalue("database")

    def run_scenario(scenario: Scenario[T]) -> T:
        async def main() -> T:
            store = open_store(path, inline=how == "inline")
            try:
                return await scenario(store)
            finally:
                await store.close()

        return asyncio.run(main())

    return run_scenario
