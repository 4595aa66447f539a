"""A standby is promoted: what was lost is noticed, and a primary that was replaced is refused."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from given_events import event_of
from postgres_server import Server, free_port

from provisioner.daemon.recovery import counted_writes
from provisioner.model.input_error import InputError
from provisioner.store import open_store
from provisioner.store.database.high_water import MarkFile
from provisioner.store.sql_store import SqlStore

NOW = 1_700_000_000.0
Work = Callable[[SqlStore], Awaitable[None]]


@dataclass
class Standby(Server):
    """A copy of a running primary that follows it until it is promoted."""

    primary: Server | None = None

    def __post_init__(self) -> None:
        assert self.primary is not None
        self.folder = Path(tempfile.mkdtemp(prefix="provisioner-pg-", dir="/dev/shm"))
        shutil.chown(self.folder, *(2 * ["postgres"]))
        self.run(
            "pg_basebackup", "-D", str(self.data), "--write-recovery-conf", "--wal-method=stream",
            "--checkpoint=fast", "-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres",
        )  # fmt: skip


def served(directory: Path, database: str, *works: Work) -> str:
    """Start as `serve` does, do some work, stop; why it would only look."""
    directory.mkdir(mode=0o700, exist_ok=True)

    async def main() -> str:
        store = open_store(database)
        try:
            async with counted_writes(directory, store, NOW, str) as counted:
                for work in works:
                    await work(store)
                return counted.look_only
        finally:
            await store.close()

    return asyncio.run(main())


async def write(store: SqlStore) -> None:
    await store.journal.append(event_of("x"), NOW)


@dataclass
class Pair:
    """A primary, its standby, and a database on both."""

    primary: Server
    standby: Standby
    name: str

    def wait_until_equal(self) -> None:
        """Until the standby has everything."""
        [last] = self.primary.sql(self.name, "SELECT pg_current_wal_lsn()")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{last}'"
        for _ in range(600):
            if self.standby.sql(self.name, query) == ["t"]:
                return
            self.standby.sql(self.name, "SELECT pg_sleep(0.1)")
        raise AssertionError("the standby does not follow")

    def promote(self) -> str:
        """The standby is the primary from now on; its URL."""
        self.standby.sql(self.name, "SELECT pg_promote()")
        return self.standby.url(self.name)


@pytest.fixture
def pair() -> Iterator[Pair]:
    primary, standby = Server(memory=True), None
    try:
        primary.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSWORD", primary.environment["PGPASSWORD"])
            name = primary.make()
            standby = Standby(port=free_port(), primary=primary)
            standby.start()
            yield Pair(primary, standby, name)
    finally:
        if standby is not None:
            standby.remove()
        primary.remove()


def test_a_promotion_that_lost_nothing_goes_on_and_the_former_primary_is_refused(pair, tmp_path):
    directory, old = tmp_path / "data", pair.primary.url(pair.name)
    first = served(directory, old, write, write)
    pair.wait_until_equal()
    new = pair.promote()

    second = served(directory, new, write)

    mark = MarkFile(directory).read()
    assert mark is not None
    assert (first, second, mark.timeline) == ("", "", 2)
    with pytest.raises(InputError, match=r"timeline 1.*timeline 2: it is a former primary"):
        served(directory, old)


def test_an_asynchronous_failover_that_lost_writes_is_noticed(pair, tmp_path):
    directory, old = tmp_path / "data", pair.primary.url(pair.name)
    served(directory, old, write)
    pair.wait_until_equal()
    pair.standby.stop()
    served(directory, old, write, write)
    pair.primary.stop()
    pair.standby.start()

    why = served(directory, pair.promote())

    # two journal rows, and the entry of the second start
    assert "lacks the last 3 transactions of this daemon" in why


def test_a_failover_that_lost_another_daemons_writes_stops_one_that_lost_none(
    pair, tmp_path, monkeypatch
):
    """The machine of the other daemon went with the primary: nobody else knows what it did."""
    monkeypatch.setattr("provisioner.daemon.recovery.CONFIRM_S", 1)
    ours, other = tmp_path / "ours", tmp_path / "other"
    old = pair.primary.url(pair.name)
    served(other, old, write)
    served(ours, old, write)
    pair.wait_until_equal()
    pair.standby.stop()
    served(other, old, write)
    pair.primary.stop()
    pair.standby.start()
    new = pair.promote()

    assert "1 other daemons have not found their writes again" in served(ours, new)
    assert "lacks the last" in served(other, new)


def test_daemons_that_all_find_their_writes_go_on_after_a_failover(pair, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    old = pair.primary.url(pair.name)
    served(first, old, write)
    served(second, old, write)
    pair.wait_until_equal()
    new = pair.promote()

    async def start(directory: Path) -> str:
        return await asyncio.to_thread(served, directory, new, write)

    async def both() -> list[str]:
        return await asyncio.gather(start(first), start(second))

    assert asyncio.run(both()) == ["", ""]


def test_a_former_primary_with_a_synchronous_standby_takes_no_write_after_the_promotion(
    pair, tmp_path
):
    """The fence that docs/high-availability.md asks for besides that of the cluster manager."""
    old = pair.primary.url(pair.name)
    served(tmp_path / "data", old, write)
    pair.wait_until_equal()
    pair.primary.sql(pair.name, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    pair.primary.sql(pair.name, "SELECT pg_reload_conf()")
    new = pair.promote()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

    async def main() -> tuple[bool, int]:
        store = open_store(old)
        asked = asyncio.create_task(write(store))
        for _ in range(600):
            if asked.done() or pair.primary.sql(pair.name, waiting) != ["0"]:
                break
            await asyncio.sleep(0.1)
        answered = asked.done()
        pair.primary.stop()  # as its fence does; until then nobody is told that it was written
        await asyncio.gather(asked, return_exceptions=True)
        await store.close()
        later = open_store(new)
        rows = (await later.journal.verify()).rows
        await later.close()
        return answered, rows

    assert asyncio.run(main()) == (False, 1)
