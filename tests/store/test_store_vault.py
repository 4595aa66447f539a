"""Credentials and their master key at rest: sealed, bound to their names, safe across a crash."""

from __future__ import annotations

import asyncio
import base64
import stat

import pytest
from sqlalchemy import update

from provisioner.model.input_error import InputError
from provisioner.ports import Secret, StaleWrite, StoreFailed
from provisioner.store import (
    MasterKey,
    Vault,
    open_signer,
    open_store,
    open_vault,
    prepare_key,
)
from provisioner.store.schema.schema import credentials

OLD, NEW, OTHER = Secret("old"), Secret("new"), Secret("other")


def test_a_change_is_pending_until_it_is_confirmed(run):
    async def scenario(store):
        vault = Vault(store, MasterKey.generate())
        nothing = await vault.current("n1/host"), await vault.pending("n1/host")
        await vault.put("n1/host", "root", OLD)
        await vault.begin("n1/host", "admin", NEW)
        both = await vault.current("n1/host"), await vault.pending("n1/host")
        await vault.confirm("n1/host")
        await vault.confirm("n1/host")
        after = await vault.current("n1/host"), await vault.pending("n1/host")
        return nothing, both, after, await vault.names()

    assert run(scenario) == (
        (None, None),
        (("root", OLD), ("admin", NEW)),
        (("admin", NEW), None),
        ("n1/host",),
    )


def test_a_pending_credential_is_never_written_over_by_another(run):
    async def scenario(store):
        vault = Vault(store, MasterKey.generate())
        await vault.put("n1/host", "root", OLD)
        await vault.begin("n1/host", "root", NEW)
        await vault.begin("n1/host", "root", NEW)
        with pytest.raises(StaleWrite):
            await vault.begin("n1/host", "root", OTHER)
        pending = await vault.pending("n1/host")
        await vault.put("n1/host", "root", OLD)
        await vault.begin("n1/host", "root", OTHER)
        return pending, await vault.pending("n1/host")

    assert run(scenario) == (("root", NEW), ("root", OTHER))


def test_a_first_credential_may_be_pending_only(run):
    async def scenario(store):
        vault = Vault(store, MasterKey.generate())
        await vault.begin("n1/host", "root", NEW)
        before = await vault.current("n1/host")
        await vault.confirm("n1/host")
        confirmed = await vault.current("n1/host")
        await vault.remove("n1/host")
        await vault.remove("n1/host")
        return before, confirmed, await vault.current("n1/host")

    assert run(scenario) == (None, ("root", NEW), None)


def test_a_ciphertext_moved_to_another_row_does_not_open(run):
    async def scenario(store):
        vault = Vault(store, MasterKey.generate())
        await vault.put("n1/host", "root", OLD)
        await vault.put("n2/host", "root", NEW)
        taken = await store.read(
            lambda c: c.scalar(
                credentials.select()
                .with_only_columns(credentials.c.current)
                .where(credentials.c.name == "n1/host")
            )
        )
        await store.write(
            lambda c: (
                c.execute(
                    update(credentials).where(credentials.c.name == "n2/host").values(current=taken)
                )
                and None
            )
        )
        with pytest.raises(StoreFailed, match="changed or moved"):
            await vault.current("n2/host")

    run(scenario)


@pytest.mark.parametrize("length", [0, 5, 12, 20])
def test_a_cut_off_ciphertext_does_not_open(length):
    key = MasterKey.generate()

    with pytest.raises(StoreFailed):
        key.open(key.seal(b"secret", "name")[:length], "name")


def test_neither_password_nor_key_is_in_the_file_or_in_any_repr(tmp_path):
    async def scenario():
        store = open_store(tmp_path / "data" / "store.db")
        vault = await open_vault(store, tmp_path / "data", {})
        await vault.put("n1/host", "administrator", Secret("correct horse battery"))
        key = await prepare_key(store, tmp_path / "data", {})
        signer = await open_signer(store, key, 1.0)
        await store.close()
        return key, f"{key!r} {key} {signer!r} {vault!r}"

    key, shown = asyncio.run(scenario())
    stored = b"".join(p.read_bytes() for p in (tmp_path / "data").glob("store.db*"))

    raw = base64.urlsafe_b64decode(key.text())
    assert [t in stored for t in (b"correct horse", b"administrator", raw)] == [False] * 3
    assert key.text() not in shown


def with_secret(directory, environ, *, name="n1/host"):
    """Open store and vault as a daemon does at its start; read one credential, or store it."""

    async def scenario():
        store = open_store(directory / "store.db")
        try:
            vault = await open_vault(store, directory, environ)
            login = await vault.current(name)
            if login is None:
                await vault.put(name, "root", OLD)
            return login
        finally:
            await store.close()

    return asyncio.run(scenario())


def test_the_key_file_is_made_at_the_first_start_and_used_from_then_on(tmp_path):
    first = with_secret(tmp_path, {})
    mode = stat.S_IMODE((tmp_path / "master.key").stat().st_mode)

    assert (first, mode, with_secret(tmp_path, {})) == (None, 0o600, ("root", OLD))


def test_a_key_from_the_environment_leaves_no_file(tmp_path):
    environ = {"PROVISIONER_KEY": MasterKey.generate().text()}
    with_secret(tmp_path, environ)

    assert with_secret(tmp_path, environ) == ("root", OLD)
    assert not (tmp_path / "master.key").exists()


def lost(directory):
    (directory / "master.key").unlink()
    return {}


def open_to_others(directory):
    (directory / "master.key").chmod(0o644)
    return {}


def garbled(directory):
    (directory / "master.key").write_text("zzz\n")
    return {}


def exchanged(directory):
    (directory / "master.key").write_text(MasterKey.generate().text())
    return {}


def wrong_in_environment(directory):
    return {"PROVISIONER_KEY": MasterKey.generate().text()}


def garbled_in_environment(directory):
    return {"PROVISIONER_KEY": "hunter2"}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lost, "master.key: is missing"),
        (open_to_others, "chmod 0600"),
        (garbled, "is not a key"),
        (exchanged, "sealed with key"),
        (wrong_in_environment, "PROVISIONER_KEY: is key"),
        (garbled_in_environment, "PROVISIONER_KEY: is not a key"),
    ],
)
def test_without_the_right_key_there_is_one_clear_error_and_no_new_key(tmp_path, spoil, message):
    with_secret(tmp_path, {})
    environ = spoil(tmp_path)
    before = sorted(p.name for p in tmp_path.glob("master*"))

    with pytest.raises(InputError, match=message) as raised:
        with_secret(tmp_path, environ)

    assert sorted(p.name for p in tmp_path.glob("master*")) == before
    assert "hunter2" not in str(raised.value)


def test_nonces_are_fresh():
    key = MasterKey.generate()

    assert key.seal(b"x", "n") != key.seal(b"x", "n")
