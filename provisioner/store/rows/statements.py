"""Statements on the rows of one table, made once for each table and set of columns.

SQLAlchemy takes ten times longer to build and recognise an UPDATE of ten columns than to run one
that it has seen: whatever is written at each turn of a node goes through these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Insert,
    Row,
    Select,
    Table,
    Update,
    bindparam,
    delete,
    insert,
    select,
    update,
)

_SHAPES = 1024  # more than the program has: the names of columns come from the code


def insert_row(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Add one row; raises as `Connection.execute`."""
    connection.execute(_insert(table), dict(row))


def update_rows(
    connection: Connection, table: Table, where: Mapping[str, Any], values: Mapping[str, Any]
) -> int:
    """Write plain values into the rows whose columns equal `where`; return how many there were."""
    statement = _update(table, tuple(where), tuple(values))
    return connection.execute(statement, {**_parameters(where), **values}).rowcount


def delete_rows(connection: Connection, table: Table, **where: object) -> int:
    """Delete the rows whose columns equal `where`; return how many there were."""
    return connection.execute(_delete(table, tuple(where)), _parameters(where)).rowcount


def find_row(connection: Connection, table: Table, **where: object) -> Row[Any] | None:
    """Return the first row whose columns equal `where`, or None."""
    query = _select(table, tuple(table.c), tuple(where))
    return connection.execute(query, _parameters(where)).first()


def find_value(connection: Connection, column: Column[Any], **where: object) -> Any:
    """Return one column of the first row whose columns equal `where`; None if there is none."""
    return connection.scalar(_select(column.table, (column,), tuple(where)), _parameters(where))


def _parameters(where: Mapping[str, object]) -> dict[str, object]:
    assert None not in where.values(), "nothing equals NULL"
    return {f"where_{name}": value for name, value in where.items()}


@lru_cache(_SHAPES)
def _insert(table: Table) -> Insert:
    return insert(table)


@lru_cache(_SHAPES)
def _update(table: Table, where: tuple[str, ...], values: tuple[str, ...]) -> Update:
    written: dict[str, Any] = {name: bindparam(name) for name in values}
    return update(table).where(*_equal(table, where)).values(written)


@lru_cache(_SHAPES)
def _delete(table: Table, where: tuple[str, ...]) -> Delete:
    return delete(table).where(*_equal(table, where))


@lru_cache(_SHAPES)
def _select(table: Table, columns: tuple[Column[Any], ...], where: tuple[str, ...]) -> Select[Any]:
    return select(*columns).where(*_equal(table, where))


def _equal(table: Table, names: tuple[str, ...]) -> list[Any]:
    return [table.c[name] == bindparam(f"where_{name}") for name in names]
