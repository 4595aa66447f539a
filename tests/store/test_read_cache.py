"""A read that is asked again costs no transaction, and never misses a write."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from provisioner.model.node import Node, NodeKind, State
from provisioner.ports import Secret, StoreFailed
from provisioner.store import SqlStore, open_store
from provisioner.store.database import read_cache
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

Runner = Callable[[Callable[[SqlStore], object]], object]
NODE = Node(id="n1", kind=NodeKind.HOST, state=State.INTAKE)


async def read_all(store: SqlStore) -> tuple[object, ...]:
    """What an idle daemon asks again and again."""
    return (
        await store.nodes.list(),
        await store.nodes.get("n1"),
        await store.tenants.list(),
        await store.operations.list_active(),
        await store.operations.list_entries("n1"),
        await store.fabric.list_sessions(),
        await store.campaigns.list(),
        await store.alerts.list("n1"),
        await store.evidence.get_inventory("n1"),
    )


def test_reads_between_two_writes_share_one_transaction_each(run: Runner) -> None:
    async def scenario(store: SqlStore) -> None:
        node = await store.nodes.add(NODE)
        await read_all(store)
        first = await read_all(store)  # by now the list of nodes asks for changes alone
        before = store.reader.transactions
        again = [await read_all(store) for _ in range(5)]
        spent = store.reader.transactions - before
        saved = await store.nodes.save(node.model_copy(update={"note": "changed"}))
        after = await read_all(store)

        assert again == [first] * 5
        assert after[0] == (saved,)
        assert after[1] == saved
        if not store.shared:
            assert spent == 0
            # the new answers were read once each; the save is a transaction of its own
            assert store.reader.transactions - before <= len(after) + 1

    run(scenario)


def test_a_write_that_was_refused_leaves_the_answers_true(run: Runner) -> None:
    async def scenario(store: SqlStore) -> None:
        await store.nodes.add(NODE)
        assert (await store.nodes.get("n1")) == NODE

        def fail(connection: object) -> None:
            connection.execute(text("DELETE FROM nodes"))  # type: ignore[attr-defined]
            raise ValueError("on purpose")

        with pytest.raises(ValueError, match="on purpose"):
            await store.write(fail)
        assert (await store.nodes.get("n1")) == NODE

    run(scenario)


def test_another_programs_write_is_seen(tmp_path: Path) -> None:
    async def main(*, inline: bool) -> list[str]:
        file = tmp_path / str(inline) / "store.db"
        store = open_store(file, inline=inline)
        try:
            notes = []
            await store.nodes.add(NODE)
            for number in range(3):
                stored = await store.nodes.get("n1")
                assert stored is not None
                notes.append(stored.note)
                body = stored.model_copy(update={"note": f"{number}"}).model_dump_json()
                with sqlite3.connect(file) as other:
                    other.execute("UPDATE nodes SET body = ?", (body,))
                other.close()
            return notes
        finally:
            await store.close()

    assert asyncio.run(main(inline=True)) == ["", "0", "1"]
    assert asyncio.run(main(inline=False)) == ["", "0", "1"]


def test_a_closed_store_answers_nothing_that_it_remembers(tmp_path: Path) -> None:
    async def main() -> None:
        for inline in (True, False):
            store = open_store(tmp_path / str(inline) / "store.db", inline=inline)
            await store.tenants.list()
            await store.close()
            with pytest.raises(StoreFailed):
                await store.tenants.list()

    asyncio.run(main())


def test_credentials_are_kept_sealed() -> None:
    async def main() -> None:
        store = open_store(":memory:", inline=True)
        vault = Vault(store, MasterKey.generate())
        await vault.put("bmc", "admin", Secret("one"))
        assert (await vault.current("bmc")) == ("admin", Secret("one"))
        assert b"one" not in repr(vars(store.reader._cache)).encode()  # type: ignore[attr-defined]
        await vault.put("bmc", "admin", Secret("two"))
        assert (await vault.current("bmc")) == ("admin", Secret("two"))
        await store.close()

    asyncio.run(main())


def test_it_never_grows_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "ANSWERS_MAX", 8)

    async def main() -> None:
        store = open_store(":memory:", inline=True)
        for number in range(100):
            assert await store.nodes.get(f"n{number}") is None
            assert len(store.reader._cache._answers) <= 8  # type: ignore[attr-defined]
        await store.close()

    asyncio.run(main())


@given(st.lists(st.sampled_from(["read", "write", "other", "refused"]), max_size=12))
def test_any_order_of_reads_and_writes_is_answered_as_without_it(steps: list[str]) -> None:
    async def main() -> None:
        store = open_store(":memory:", inline=True)
        await store.nodes.add(NODE)
        for number, step in enumerate(steps):
            stored = await store.nodes.get("n1")
            plain = await store.read(lambda c: c.scalar(text("SELECT body FROM nodes")))
            assert stored is not None
            assert stored == Node.model_validate_json(plain)
            changed = stored.model_copy(update={"note": str(number)})
            if step == "write":
                await store.nodes.save(changed)
            elif step == "other":
                await store.tenants.list()
            elif step == "refused":
                with pytest.raises(Exception, match="n1"):
                    await store.nodes.add(NODE)
        await store.close()

    asyncio.run(main())
