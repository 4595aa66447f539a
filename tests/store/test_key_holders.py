"""`db reseal` on a server: every daemon has the new key at hand before a row is sealed with it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from provisioner.cli.serve.backup import reseal
from provisioner.daemon.cluster import digest_code
from provisioner.model.input_error import InputError
from provisioner.planning.watch.membership import WorksBy
from provisioner.ports import Secret
from provisioner.store import open_store
from provisioner.store.database.seat import Seat, count_key_holders
from provisioner.store.repositories.key_exchange import KeyRing, prepare_keys
from provisioner.store.repositories.signing_keys import KEY_FILE, NEXT_FILE, read_key_file
from provisioner.store.repositories.vault import Vault


def open_ring(database: str, directory: Path, word: str = "") -> tuple[KeyRing, str]:
    """A daemon's keys, and the password that it reads, or writes first."""

    async def scenario() -> tuple[KeyRing, str]:
        store = open_store(database)
        ring = await prepare_keys(store, directory, {})
        vault = Vault(store, ring)
        if word:
            await vault.put("n1/host", "root", Secret(word))
        login = await vault.current("n1/host")
        await store.close()
        return ring, "" if login is None else login[1].reveal()

    return asyncio.run(scenario())


def sit(database: str, name: str, code: str, keys: KeyRing | None = None) -> Seat:
    works = WorksBy(digests={"code": code})
    list_keys = tuple if keys is None else keys.list_ids
    seat = Seat(database, name, "test", 30.0, works=works, list_keys=list_keys)
    seat.take()
    return seat


def hand_over(one: Path, other: Path, name: str) -> None:
    shutil.copyfile(one / name, other / name)
    (other / name).chmod(0o600)


def test_rows_stay_under_the_old_key_until_each_daemon_has_the_new_one(
    database: str, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    ring, _ = open_ring(database, one, "hunter2")
    two.mkdir(mode=0o700)
    hand_over(one, two, KEY_FILE)
    other, _ = open_ring(database, two)
    code = digest_code()
    seats = [sit(database, "one", code, ring), sit(database, "two", code, other)]
    for seat in seats:
        seat.beat()
    assert count_key_holders(database, ring.id) == 2

    with pytest.raises(InputError, match="0 of 2 daemons have the new key"):
        reseal(one, database)
    for seat in seats:
        seat.beat()
    new = read_key_file(one / NEXT_FILE)
    assert count_key_holders(database, new.id) == 1
    with pytest.raises(InputError, match="1 of 2 daemons have the new key"):
        reseal(one, database)
    hand_over(one, two, NEXT_FILE)
    seats[1].beat()
    reseal(one, database)

    for directory in (one, two):
        assert open_ring(database, directory)[1] == "hunter2"
        assert read_key_file(directory / KEY_FILE).id == new.id
    for seat in seats:
        seat.leave()


def test_a_daemon_of_another_version_on_the_server_is_named(database: str, tmp_path: Path) -> None:
    open_ring(database, tmp_path / "one", "hunter2")
    seat = sit(database, "old", "another code")
    with pytest.raises(InputError, match="of another version"):
        reseal(tmp_path / "one", database)
    seat.leave()
    reseal(tmp_path / "one", database)
    assert open_ring(database, tmp_path / "one")[1] == "hunter2"
