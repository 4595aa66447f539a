"""The master key is exchanged while daemons run: rows under two keys, and a death at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from provisioner.model.input_error import InputError
from provisioner.ports import Secret
from provisioner.store import open_signer, open_store
from provisioner.store.repositories import key_exchange
from provisioner.store.repositories.key_exchange import (
    BATCH,
    OLD_FILE,
    KeyRing,
    begin_exchange,
    end_exchange,
    prepare_key,
    prepare_keys,
    walk,
)
from provisioner.store.repositories.signing_keys import KEY_FILE, NEXT_FILE, MasterKey, read_key_ids
from provisioner.store.repositories.vault import Vault
from provisioner.store.schema.schema import credentials

ROWS = 7
WAITS_MAX = 40


class Killed(BaseException):
    """The process is gone."""


class Daemon:
    """A process with the database and the keys as they are on disk when it starts."""

    def __init__(self, directory: Path, database: str = "") -> None:
        self.directory = directory
        self.store: Any = open_store(database or directory / "store.db", inline=not database)

    async def start(self) -> Daemon:
        self.keys = await prepare_keys(self.store, self.directory, {})
        self.vault = Vault(self.store, self.keys)
        return self

    async def read(self) -> dict[str, tuple[str, str]]:
        """Every password, the one in force and the pending one."""
        found = {}
        for name in await self.vault.names():
            logins = (await self.vault.current(name), await self.vault.pending(name))
            texts = ["" if login is None else login[1].reveal() for login in logins]
            found[name] = (texts[0], texts[1])
        return found

    async def fill(self, count: int = ROWS) -> None:
        for number in range(count):
            await self.vault.put(f"n{number}/host", "root", Secret(f"word {number}"))
        await self.vault.begin("n0/host", "root", Secret("next word"))
        await open_signer(self.store, self.keys, 1.0)

    async def ids(self) -> set[str]:
        return set(await self.store.read(read_key_ids))

    async def stop(self) -> None:
        await self.store.close()


def list_keys(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.glob("master*"))


def none(_done: int, _total: int) -> None:
    return


async def exchange(daemon: Daemon) -> int:
    """What `db reseal` does."""
    new = begin_exchange(daemon.directory)
    count = await walk(daemon.store, daemon.keys, new, none)
    end_exchange(daemon.directory)
    return count


def live(tmp_path: Path, story: Callable[[Path], Awaitable[None]]) -> None:
    directory = tmp_path / "data"
    asyncio.run(story(directory))


def test_two_processes_read_and_write_while_the_rows_are_under_two_keys(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        daemon = await Daemon(directory).start()
        await daemon.fill()
        before = await daemon.read()
        (old,) = await daemon.ids()
        new = begin_exchange(directory)
        await daemon.vault.put("n1/host", "root", Secret("while it lasts"))
        assert await daemon.ids() == {old, new.id}, "sealed with the new key from here on"
        assert await daemon.read() == before | {"n1/host": ("while it lasts", "")}
        await daemon.vault.begin("n2/host", "root", Secret("pending"))
        await daemon.vault.confirm("n0/host")

        restarted = await Daemon(directory).start()  # both keys are needed, and kept
        assert await restarted.read() == await daemon.read()
        assert (await restarted.read())["n2/host"] == ("word 2", "pending")
        with pytest.raises(InputError, match="being exchanged"):
            await prepare_key(restarted.store, directory, {})

        assert await walk(restarted.store, restarted.keys, new, none) == ROWS + 1 - 2
        end_exchange(directory)
        for one in (await Daemon(directory).start(), restarted, daemon):
            assert await one.read() == await daemon.read()
            assert await one.ids() == {new.id}
            await one.vault.put("n3/host", "root", Secret("afterwards"))
            assert await one.ids() == {new.id}
            await one.stop()
        assert not (directory / OLD_FILE).exists(), "a start found that nothing needs it"

    live(tmp_path, story)


class Fused:
    """The store of one process; each transaction is a moment, before which it may be killed."""

    def __init__(self, inner: Any, at: int) -> None:
        self._inner, self._at, self.seen = inner, at, 0

    async def read(self, work: Any) -> Any:
        return await self._moment(self._inner.read, work)

    async def write(self, work: Any) -> Any:
        return await self._moment(self._inner.write, work)

    async def _moment(self, act: Any, work: Any) -> Any:
        self.seen += 1
        if self.seen == self._at:
            raise Killed
        return await act(work)


def test_a_death_before_any_transaction_or_file_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_exchange, "BATCH", 2)

    async def story(directory: Path) -> None:
        daemon = await Daemon(directory).start()
        await daemon.fill()
        before = await daemon.read()
        for at in range(1, WAITS_MAX):
            fused = Fused(daemon.store, at)
            new = begin_exchange(directory)
            with suppress(Killed):
                await walk(fused, daemon.keys, new, none)  # type: ignore[arg-type]
            successor = await Daemon(directory).start()
            assert await successor.read() == before == await daemon.read(), at
            await successor.vault.put("n5/host", "root", Secret("word 5"))
            assert await daemon.read() == before, at
            await exchange(successor)
            assert len(await successor.ids()) == 1
            assert not (directory / NEXT_FILE).exists()
            await successor.stop()
            if fused.seen < at:
                return
        raise AssertionError("it does not end")

    live(tmp_path, story)


@pytest.mark.parametrize("step", ["the next key", "the old key aside", "the rename"])
def test_a_death_between_two_files_leaves_keys_that_open_everything(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    async def story(directory: Path) -> None:
        daemon = await Daemon(directory).start()
        await daemon.fill()
        before = await daemon.read()
        with monkeypatch.context() as patched, suppress(Killed):
            if step == "the next key":
                patched.setattr(key_exchange, "sync_directory", killed)
            new = begin_exchange(directory)
            await walk(daemon.store, daemon.keys, new, none)
            name = "write_private" if step == "the old key aside" else "_promote"
            patched.setattr(key_exchange, name, killed)
            end_exchange(directory)
        successor = await Daemon(directory).start()
        assert await successor.read() == before
        await exchange(successor)
        assert await (await Daemon(directory).start()).read() == before

    live(tmp_path, story)


def test_a_row_that_is_still_sealed_with_the_old_key_after_the_end_opens_at_the_next_start(
    tmp_path: Path,
) -> None:
    async def story(directory: Path) -> None:
        daemon = await Daemon(directory).start()
        await daemon.fill()
        late = Vault(daemon.store, daemon.keys.newest())  # a process that never looks at the files
        await exchange(daemon)
        await late.put("late/host", "root", Secret("late word"))
        successor = await Daemon(directory).start()
        assert (await successor.read())["late/host"] == ("late word", "")
        assert (directory / OLD_FILE).exists()
        await exchange(successor)
        last = await Daemon(directory).start()
        assert (await last.read())["late/host"] == ("late word", "")

    live(tmp_path, story)


def test_without_the_next_key_a_start_in_the_middle_is_refused_and_makes_no_key(
    tmp_path: Path,
) -> None:
    async def story(directory: Path) -> None:
        daemon = await Daemon(directory).start()
        await daemon.fill()
        begin_exchange(directory)
        await daemon.vault.put("n1/host", "root", Secret("under the new one"))
        (directory / NEXT_FILE).unlink()
        with pytest.raises(InputError, match="sealed with key"):
            await Daemon(directory).start()
        assert list_keys(directory) == [KEY_FILE]

    live(tmp_path, story)


def test_progress_counts_the_rows_and_the_walk_takes_them_in_parts(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        daemon = await Daemon(directory).start()
        key = daemon.keys.newest()
        names = [f"m{n}" for n in range(BATCH + 3)]
        sealed = {n: key.seal(b'["r","p"]', f"credential {n}") for n in names}
        rows = [{"name": n, "key_id": key.id, "current": sealed[n]} for n in names]
        await daemon.store.write(lambda c: c.execute(insert(credentials), rows) and None)
        seen: list[tuple[int, int]] = []
        await walk(daemon.store, daemon.keys, begin_exchange(directory), lambda *c: seen.append(c))
        assert seen[:3] == [(0, BATCH + 3), (BATCH, BATCH + 3), (BATCH + 3, BATCH + 3)]
        assert await daemon.vault.current(f"m{BATCH}") == ("r", Secret("p"))

    live(tmp_path, story)


def test_a_ring_shows_no_key() -> None:
    key = MasterKey.generate()
    assert key.text() not in repr(KeyRing([key]))


def test_two_daemons_on_a_server_and_one_of_them_in_another_directory(
    database: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        first = await Daemon(tmp_path / "one", database).start()
        await first.fill()
        (tmp_path / "two").mkdir(mode=0o700)
        key = tmp_path / "two" / KEY_FILE
        key.write_bytes((tmp_path / "one" / KEY_FILE).read_bytes())
        key.chmod(0o600)
        second = await Daemon(tmp_path / "two", database).start()
        new = begin_exchange(first.directory)
        following = second.directory / NEXT_FILE
        following.write_bytes((first.directory / NEXT_FILE).read_bytes())
        following.chmod(0o600)
        assert new.id in second.keys.list_ids()

        async def write() -> None:
            for number in range(20):
                await second.vault.put("n1/host", "root", Secret(f"again {number}"))
                await asyncio.sleep(0)

        await asyncio.gather(walk(first.store, first.keys, new, none), write())
        end_exchange(first.directory)
        assert await first.ids() == {new.id}
        assert (await first.read())["n1/host"] == ("again 19", "")
        assert await second.read() == await first.read()
        again = await Daemon(second.directory, database).start()  # which puts the key into force
        assert not following.exists()
        assert await again.read() == await first.read()
        for one in (first, second, again):
            await one.stop()

    asyncio.run(scenario())
