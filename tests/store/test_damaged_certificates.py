"""One damaged row of a certificate or key costs that row: it is named, and never taken as valid."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from provisioner.model.certificate import Certificate
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.campaigns.release_drift import find_lapsed_certificates, list_unread
from provisioner.ports import DamagedRow
from provisioner.store import MasterKey, open_signer, open_store, public_keys
from provisioner.store.rows.evidence_rows import put_certificate

NOW = 1_800_000_000.0


def certificate(number: int) -> Certificate:
    return Certificate(
        id=f"c{number}", node=f"n{number}", release="r", profile="p", serials=("s",), versions=(),
        boot_id="b", location="l", ports=(), report_digest="d", matrix_digest="m",
        issued_at=NOW + number, expires_at=NOW + 1000 + number,
    )  # fmt: skip


def change(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement, values)


DAMAGE = [
    ("body = ?", "no JSON"),
    ("body = ?", "{}"),
    ("body = ?", b"\xff\xfe"),
    ("body = ?", certificate(3).model_dump_json()),  # another's
    ("issued_at = ?", "yesterday"),
    ("revoked_at = ?", "some day"),
]


@pytest.mark.parametrize(("what", "value"), DAMAGE)
def test_a_damaged_certificate_is_named_in_the_list_beside_the_others(
    tmp_path: Path, what: str, value: object
) -> None:
    file = tmp_path / "provisioner.db"

    async def story() -> None:
        store = open_store(file)
        for number in (1, 2, 3):
            await store.nodes.add(Node(id=f"n{number}", kind=NodeKind.HOST))
            await store.write(lambda c, n=number: put_certificate(c, certificate(n)))
        await store.close()
        change(file, f"UPDATE certificates SET {what} WHERE id = 'c2'", value)
        store = open_store(file)
        rows = await store.evidence.list_certificates(before=None, limit=10, node="")
        revoked = {r.certificate for r in await store.evidence.list_revocations()}
        whole = {row.id: row.certificate for row in rows}
        damaged = {row.id: row.damaged for row in rows if row.damaged}

        assert set(whole) == {"c1", "c2", "c3"}
        assert (whole["c1"], whole["c3"]) == (certificate(1), certificate(3))
        if what.startswith("body"):
            assert whole["c2"] is None
            assert list(damaged) == ["c2"]
            assert "certificates, c2" in damaged["c2"]
        elif what.startswith("revoked"):
            assert revoked == {"c2"}  # whatever stands there, it is not valid
        await store.close()

    asyncio.run(story())


def test_a_damaged_certificate_is_a_debt_and_never_a_valid_one() -> None:
    nodes = [
        Node(id=f"n{n}", kind=NodeKind.HOST, state=State.RELEASED, certificate=f"c{n}")
        for n in (1, 2)
    ]

    lines = find_lapsed_certificates(nodes, {"n1": certificate(1)}, set(), NOW + 5, {"n2"})
    unread = list_unread({"inventory": {"n7"}, "ledger": set()})

    assert [(line.node, line.version) for line in lines] == [("n2", "its row is damaged")]
    assert [(line.node, line.kind, line.waits_for) for line in unread] == [("n7", "inventory", "?")]


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("private = ?", "text", "of the type str"),
        ("private = ?", 7, "of the type int"),
        ("private = ?", 7.5, "of the type float"),
    ],
)
def test_a_private_key_of_a_wrong_type_is_one_clear_error(
    tmp_path: Path, what: str, value: object, words: str
) -> None:
    file, key = tmp_path / "provisioner.db", MasterKey.generate()

    async def start() -> None:
        store = open_store(file)
        try:
            await open_signer(store, key, NOW)
        finally:
            await store.close()

    asyncio.run(start())
    change(file, f"UPDATE signing_keys SET {what}", value)

    with pytest.raises(InputError, match=words):
        asyncio.run(start())


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_private_key_of_another_kind_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    file, key = tmp_path / "provisioner.db", MasterKey.generate()

    async def start() -> str:
        store = open_store(file)
        try:
            return (await open_signer(store, key, NOW)).key_id
        finally:
            await store.close()

    name = asyncio.run(start())
    change(file, "UPDATE signing_keys SET private = ?", key.seal(content, f"signing key {name}"))

    with pytest.raises(InputError, match="no Ed25519 key"):
        asyncio.run(start())


@pytest.mark.parametrize(
    ("column", "value"),
    [("public", "text"), ("public", b"short"), ("public", b"y" * 32), ("created_at", "once")],
)
def test_a_damaged_public_key_is_not_believed_and_hides_no_other(
    tmp_path: Path, column: str, value: object
) -> None:
    file, key = tmp_path / "provisioner.db", MasterKey.generate()

    async def story() -> None:
        store = open_store(file)
        damaged = (await open_signer(store, key, NOW)).key_id
        await store.close()
        change(file, "UPDATE signing_keys SET private = NULL")
        store = open_store(file)
        whole = (await open_signer(store, key, NOW + 1)).key_id
        await store.close()
        change(file, f"UPDATE signing_keys SET {column} = ? WHERE key_id = ?", value, damaged)
        store = open_store(file)
        assert set(await public_keys(store)) == {whole}
        await store.close()

    asyncio.run(story())


def test_one_damaged_certificate_is_still_an_error_where_it_is_the_one_that_is_asked_for(
    tmp_path: Path,
) -> None:
    file = tmp_path / "provisioner.db"

    async def story() -> None:
        store = open_store(file)
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.write(lambda c: put_certificate(c, certificate(1)))
        await store.close()
        change(file, "UPDATE certificates SET body = 'x'")
        store = open_store(file)
        with pytest.raises(DamagedRow, match="c1"):
            await store.evidence.get_certificate("c1")
        await store.close()

    asyncio.run(story())


PLANTED = [
    "CREATE TRIGGER quiet AFTER INSERT ON journal BEGIN UPDATE nodes SET tenant = 'x'; END",
    "CREATE VIEW quiet AS SELECT * FROM credentials",
    "CREATE VIRTUAL TABLE quiet USING fts5(words)",
    "CREATE TRIGGER number_new_node AFTER INSERT ON nodes BEGIN DELETE FROM alerts; END",
]


@pytest.mark.parametrize("statement", PLANTED)
def test_a_planted_object_ends_the_start_with_its_name(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "provisioner.db"
    asyncio.run(open_store(file).close())
    if "number_new_node" in statement:
        change(file, "DROP TRIGGER number_new_node")
    change(file, statement)

    with pytest.raises(InputError, match=r"no version of this program made: .*(quiet|number_new)"):
        open_store(file)


def test_our_own_triggers_and_a_persons_table_or_index_are_no_strangers(tmp_path: Path) -> None:
    file = tmp_path / "provisioner.db"
    asyncio.run(open_store(file).close())
    change(file, "CREATE TABLE notes (words TEXT)")
    change(file, "CREATE INDEX by_words ON notes (words)")

    asyncio.run(open_store(file).close())


TRIGGER = "CREATE TRIGGER quiet AFTER UPDATE ON nodes BEGIN SELECT 1; END"
FORGED = [  # type, text, page: what SQLite makes of a row is its text's
    ("index", TRIGGER, 0),
    ("table", TRIGGER, 0),
    ("table", "CREATE/**/VIRTUAL TABLE quiet USING fts5(words)", 0),
    ("table", "create  virtual table quiet USING fts5(words)", 0),
    ("index", "CREATE VIEW quiet AS SELECT * FROM tokens", 0),
    ("table", "CREATE TEMP TABLE quiet (id)", 0),
    ("table", "CREATE TABLE quiet (id)", 0),
]


@pytest.mark.parametrize(("kind", "words", "page"), FORGED)
def test_an_object_that_a_forged_file_gives_another_kind_is_refused(
    tmp_path: Path, schema: Path, kind: str, words: str, page: int
) -> None:
    file = tmp_path / "provisioner.db"
    shutil.copy2(schema, file)  # with its mode
    with closing(sqlite3.connect(file)) as forging, forging:
        forging.execute("PRAGMA writable_schema = ON")
        row = (kind, "quiet", "nodes" if "TRIGGER" in words else "quiet", page, words)
        forging.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)

    with pytest.raises(InputError, match=r"no version of this program made: .*quiet|malformed"):
        open_store(file)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("schema") / "provisioner.db"
    asyncio.run(open_store(file).close())
    return file
