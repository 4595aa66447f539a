"""One value out of a record's JSON, in SQLite's words and in PostgreSQL's.

The path is our own literal text, never a parameter: PostgreSQL would take two parameters of equal
value for two expressions, and refuse to group by one and select the other.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement, FunctionElement

_PATH = re.compile(r"[a-z_]+(\.[a-z_]+|\[\d+\])*")


class _JsonText(FunctionElement[str]):
    """`path` of the JSON text in a column, as text; NULL if there is none."""

    name = "json_text"
    type = Text()
    inherit_cache = False  # the path is part of it

    def __init__(self, column: ColumnElement[Any], path: str) -> None:
        assert _PATH.fullmatch(path), path
        super().__init__(column)
        self.path = path


def json_text(column: ColumnElement[Any], path: str) -> ColumnElement[str]:
    """Return the value at `path` ("blockers[0].reason"), for a SELECT; NULL where there is none."""
    return _JsonText(column, path)


@compiles(_JsonText)
def _other(element: _JsonText, compiler: Any, **more: Any) -> str:
    inner = compiler.process(element.clauses, **more)
    # a damaged row is counted without the value, rather than failing the whole statement
    return f"CASE WHEN json_valid({inner}) THEN json_extract({inner}, '$.{element.path}') END"


@compiles(_JsonText, "postgresql")
def _postgresql(element: _JsonText, compiler: Any, **more: Any) -> str:
    inner = compiler.process(element.clauses, **more)
    keys = ",".join(re.findall(r"[a-z_]+|\d+", element.path))
    # a device's text may hold an escaped NUL, which PostgreSQL does not even read past
    replaced = rf"replace({inner}, '\u0000', '\ufffd')"
    return f"(CAST({replaced} AS json) #>> '{{{keys}}}')"
