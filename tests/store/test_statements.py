"""Rows that are written and found by statements which were made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, create_engine, select

from provisioner.store.rows.statements import (
    delete_rows,
    find_row,
    find_value,
    insert_row,
    update_rows,
)

PARTS = Table(
    "parts",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("slot", Integer, nullable=False),
    Column("note", Text),
)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    PARTS.metadata.create_all(engine)
    with engine.begin() as connection:
        for name, slot in (("a", 1), ("b", 1), ("c", 2)):
            insert_row(connection, PARTS, {"name": name, "slot": slot})
        yield connection
    engine.dispose()


def rows(connection: Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in connection.execute(select(PARTS).order_by(PARTS.c.name))]


def test_a_row_is_changed_where_all_columns_are_equal_and_nowhere_else(
    connection: Connection,
) -> None:
    assert update_rows(connection, PARTS, {"name": "a", "slot": 2}, {"note": "x"}) == 0
    assert update_rows(connection, PARTS, {"slot": 1, "name": "b"}, {"slot": 7, "note": "y"}) == 1
    assert update_rows(connection, PARTS, {"name": "c"}, {"name": "d"}) == 1  # its key as well

    assert rows(connection) == [("a", 1, None), ("b", 7, "y"), ("d", 2, None)]


def test_what_is_found_is_what_was_asked_for(connection: Connection) -> None:
    row = find_row(connection, PARTS, name="c")

    assert row is not None
    assert tuple(row) == ("c", 2, None)
    assert find_value(connection, PARTS.c.slot, name="b") == 1
    assert find_row(connection, PARTS, name="none") is None
    assert find_value(connection, PARTS.c.slot, name="a", note="x") is None


def test_only_equal_rows_are_deleted(connection: Connection) -> None:
    assert delete_rows(connection, PARTS, slot=1) == 2
    assert delete_rows(connection, PARTS, name="c", slot=1) == 0

    assert rows(connection) == [("c", 2, None)]


def test_a_question_for_null_is_refused_for_it_would_find_nothing(connection: Connection) -> None:
    with pytest.raises(AssertionError, match="NULL"):
        find_value(connection, PARTS.c.slot, note=None)
    with pytest.raises(AssertionError, match="NULL"):
        delete_rows(connection, PARTS, note=None)
