"""Rows that cannot be read: the record of those met, and the rest of a node whose row is damaged.

A list that leaves a damaged row out records it here, by the node that it belongs to, and the
scheduler parks that node before it decides anything. So one bad row costs one node, and nothing is
decided on half of a node's stored state. Reads run in threads of the store and may run twice, so
that the record is a plain dictionary by engine in which a second entry changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, Engine

from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows.records import parse

Model = TypeVar("Model", bound=BaseModel)
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
    no = error.blocker()
    return node.model_copy(
        update={"generation": STAND_IN, "blockers": (no,), "note": f"parked: {no.detail}"}
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
