"""A primary with two synchronous standbys, of which any one is enough: one may die, not both."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from given_events import event_of
from postgres_server import Server, unprivileged

from provisioner.daemon.cluster import LOST
from provisioner.store import open_store
from provisioner.store.database.postgres import wait_reason
from provisioner.store.database.waits import WaitWatch

NAMES = "ANY 1 (s1, s2)"
GONE = f"no synchronous standby answers it (synchronous_standby_names: {NAMES})"
LIMIT_S = 60.0


class Standby(Server):
    """A standby of a running primary; `name` is the one that the primary knows it by."""

    primary: Server
    name: str

    def __init__(self, primary: Server, name: str) -> None:
        self.primary, self.name = primary, name
        super().__init__()

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="provisioner-pg-"))
        if os.getuid() == 0:
            user = unprivileged()
            os.chown(self.folder, int(str(user["user"])), int(str(user["group"])))
        primary = ["-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres"]
        self.run("pg_basebackup", *primary, "-D", str(self.data), "-R", "--no-sync", "-c", "fast")

    def start(self, *more: str) -> None:
        super().start("-c", f"cluster_name={self.name}", *more)


@pytest.fixture(scope="module")
def trio() -> Iterator[tuple[Server, Standby, Standby, str]]:
    """The primary, its standbys, and a database with our schema."""
    servers: list[Server] = []
    try:
        with pytest.MonkeyPatch.context() as patch:
            primary = Server(memory=True)
            servers.append(primary)
            primary.start()
            patch.setenv("PGPASSWORD", primary.environment["PGPASSWORD"])
            standbys = [Standby(primary, name) for name in ("s1", "s2")]
            servers += standbys
            for standby in standbys:
                standby.start()
            primary.sql("postgres", f"ALTER SYSTEM SET synchronous_standby_names = '{NAMES}'")
            primary.sql("postgres", "SELECT pg_reload_conf()")
            database = primary.make()
            asyncio.run(open_store(primary.url(database)).close())
            yield primary, *standbys, database  # type: ignore[misc]
    finally:
        for server in reversed(servers):
            server.remove()


def test_one_standby_may_die_and_a_wait_for_both_is_reported_and_over_when_one_is_back(
    trio, caplog, request
):
    primary, first, second, database = trio
    url, over = primary.url(database), threading.Event()
    # software that another test of this process runs may have disabled the logger
    log = logging.getLogger("provisioner.store.database.waits")
    log.disabled = False
    log.addHandler(caplog.handler)
    request.addfinalizer(partial(log.removeHandler, caplog.handler))

    async def scenario() -> tuple[bool, int]:
        store = open_store(url)
        first.stop()
        await asyncio.wait_for(store.journal.append(event_of("one is enough"), 1.0), LIMIT_S)
        second.stop()
        with WaitWatch(3.0, partial(wait_reason, url), lambda _why: over.set(), 0.5):
            waiting = asyncio.ensure_future(store.journal.append(event_of("both are gone"), 2.0))
            await asyncio.to_thread(over.wait, LIMIT_S)
            waits = not waiting.done()
            first.start()
            await asyncio.wait_for(waiting, LIMIT_S)
            await asyncio.sleep(1.0)
        rows = (await store.journal.verify()).rows
        await store.close()
        return waits, rows

    waits, rows = asyncio.run(scenario())
    second.start()

    assert (waits, over.is_set(), rows) == (True, True, 2)
    assert f"a transaction of the store-writer has waited 1 s for the database: {GONE}" in (
        caplog.text
    )
    assert "the database answers again" in caplog.text


@pytest.mark.long
def test_a_daemon_that_starts_while_no_standby_answers_says_so_and_ends(trio, tmp_path):
    primary, first, second, database = trio
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({"api_serve": False, "database_wait_max_s": 10.0}))
    (tmp_path / "artifacts").mkdir()
    for standby in (first, second):
        standby.stop()
    try:
        done = subprocess.run(
            [
                sys.executable, "-m", "provisioner", "serve", "--data", str(tmp_path / "data"),
                "--database", primary.url(database), "--artifacts", str(tmp_path / "artifacts"),
                "--settings", str(settings), "--lab",
            ],
            capture_output=True, text=True, timeout=240, check=False, env=primary.environment,
        )  # fmt: skip
    finally:
        for standby in (first, second):
            standby.start()

    told = done.stdout + done.stderr
    assert done.returncode == LOST, told
    assert f"s for the database: {GONE}" in told
    assert "this daemon ends at once" in told
