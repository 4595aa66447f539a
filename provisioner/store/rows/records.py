"""Records to text and back. Every record is checked when it is read: a damaged row is `DamagedRow`,
no guess.

A device's text may hold characters that a database refuses (NUL in PostgreSQL) or that UTF-8 cannot
express (lone surrogates); `clean` replaces both before they reach a column.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, Engine, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement, FunctionElement

from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.ports.errors import DamagedRow

# ------------------------------------------------------------------------------
# One value out of a record's JSON, in SQLite's words and in PostgreSQL's.
#
# The path is our own literal text, never a parameter: PostgreSQL would take two parameters of equal
# value for two expressions, and refuse to group by one and select the other.


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


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], body: str, where: str) -> Model:
    """Return the record in `body`; `DamagedRow` names `where` ("nodes, n7") if it is not one."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or model.__name__
        raise DamagedRow(where, f"{field}: {problem['msg']}") from None


# Records are frozen and hold only frozen values, so that the same text may give the same object.
# Bounds: 8192 nodes are 256 scalable units of 32 (some 60 MB); an inventory of a full HGX node is
# some 200 KB, so that 512 of them stay below 100 MB.
@lru_cache(maxsize=8192)
def parse_node(body: str) -> Node:
    """Return a node; parsed once for each distinct text."""
    return parse(Node, body, "nodes")


@lru_cache(maxsize=512)
def parse_inventory(body: str) -> Inventory:
    """Return an inventory; parsed once for each distinct text."""
    return parse(Inventory, body, "inventories")


def clean(text: str) -> str:
    """Return the text as every database can store it: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def canonical(value: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys in pure ASCII: equal content, equal text, on every machine.

    Records inside are dumped; any other value without a JSON form is a `TypeError`, our bug.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_dump
    )


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return the inverse of `canonical`; `DamagedRow` if the text is not a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DamagedRow(where, "it is no JSON object")
    return value


def _dump(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


# ------------------------------------------------------------------------------
# Rows that cannot be read: the record of those met, and the rest of a node whose row is damaged.
#
# A list that leaves a damaged row out records it here, by the node that it belongs to, and the
# scheduler parks that node before it decides anything. So one bad row costs one node, and nothing
# is decided on half of a node's stored state. Reads run in threads of the store and may run twice,
# so that the record is a plain dictionary by engine in which a second entry changes nothing.


log = logging.getLogger(__name__)

STAND_IN = -1  # generation of a stand-in: no write of it can ever match its row
ROWS_MAX = 10_000  # that are recorded; a database with more of them is beyond use
_COLUMNS = ("kind", "state", "tenant", "release", "profile")

_damage: WeakKeyDictionary[Engine, dict[str, tuple[str, str]]] = WeakKeyDictionary()
_owners: WeakKeyDictionary[Engine, dict[tuple[str, str], DamagedRow]] = WeakKeyDictionary()


def parse_each(
    connection: Connection, model: type[Model], table: str, rows: Iterable[tuple[str, str, str]]
) -> tuple[Model, ...]:
    """Return the records of (key, node, body); damaged ones are left out and recorded.

    `node` is "" for a row that belongs to none.
    """
    records = []
    for key, node, body in rows:
        try:
            records.append(parse(model, body, f"{table}, {key}"))
        except DamagedRow as error:
            record(connection.engine, node, error)
    return tuple(records)


def record(engine: Engine, node: str, error: DamagedRow) -> None:
    """Record a damaged row, and report it once."""
    rows = _damage.setdefault(engine, {})
    if error.where not in rows and len(rows) < ROWS_MAX:
        rows[error.where] = node, error.problem
        log.error("%s%s", f"{node}: " if node else "", error)


def by_node(engine: Engine) -> Mapping[str, Blocker]:
    """Return, for each node with a damaged row that was met, what parks it."""
    rows = dict(_damage.get(engine, {}))
    return {node: DamagedRow(w, problem).blocker() for w, (node, problem) in rows.items() if node}


def stand_in(columns: Mapping[str, Any], error: DamagedRow) -> Node:
    """Return the readable part of a node whose row is damaged; it cannot be saved.

    The columns beside the body are believed first, then each field of the body that is valid by
    itself: its ports and BMCs, above all. Where nothing of the body can be read it may be a node
    that was given to another system, so that no act on it is allowed.
    """
    try:
        fields = json.loads(columns["body"])
    except (ValueError, RecursionError):
        fields = {}
    fields = fields if isinstance(fields, dict) else {}
    origin = Origin.TAKEN_IN if fields else Origin.DETACHED
    node = Node(id=columns["id"], kind=NodeKind.HOST, state=State.QUARANTINED, origin=origin)
    values = {**fields, **{name: columns[name] for name in _COLUMNS}}
    for name in Node.model_fields.keys() & values.keys() - {"id"}:
        try:
            changed = Node.model_validate({**node.model_dump(), name: values[name]})
        except ValidationError:
            continue
        node = changed
    blocker = error.blocker()
    return node.model_copy(
        update={"generation": STAND_IN, "blockers": (blocker,), "note": f"parked: {blocker.detail}"}
    )


def record_owner(engine: Engine, scope: str, name: str, error: DamagedRow) -> None:
    """Record a damaged row that nodes depend on, and report it once.

    `scope` is how they are found: the "tenant" that has them, their "rack", or the "node" itself.
    """
    record(engine, "", error)
    owners = _owners.setdefault(engine, {})
    if len(owners) < ROWS_MAX:
        owners.setdefault((scope, name), error)


def find_dependents(engine: Engine, nodes: Iterable[Node]) -> Mapping[str, Blocker]:
    """Return, for each of these nodes that depends on a damaged row, what parks it."""
    owners = dict(_owners.get(engine, {}))
    if not owners:
        return {}
    parked = {}
    for node in nodes:
        tenants = {node.tenant, *node.served.split(", ")} - {""}
        keys = [("node", node.id), ("rack", node.location.rack), *(("tenant", t) for t in tenants)]
        error = next((owners[key] for key in keys if key in owners), None)
        if error is not None:
            parked[node.id] = error.blocker()
    return parked


def count_owners(engine: Engine) -> int:
    """Return how many damaged rows that nodes depend on were met."""
    return len(_owners.get(engine, {}))
