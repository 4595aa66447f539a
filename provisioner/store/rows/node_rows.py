"""Rows of nodes. Each function is one part of a transaction on `connection`."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, insert, select, update

from provisioner.model.node import Node
from provisioner.planning.lifecycle.transition import describe_transition
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.rows import damage
from provisioner.store.rows import journal as chain
from provisioner.store.rows.records import parse_node
from provisioner.store.schema.schema import nodes

# made once: to build a statement costs more than to run it
_NODE = select(nodes.c.body).where(nodes.c.id == bindparam("name"))
_STORED = select(nodes.c.state, nodes.c.body).where(
    nodes.c.id == bindparam("name"), nodes.c.generation == bindparam("generation")
)
_LAST_CHANGE = select(func.coalesce(func.max(nodes.c.changed), 0))


def add_node(connection: Connection, node: Node) -> Node:
    """Return a new row, with the generation that the node has; `StaleWrite` if the id is taken."""
    if connection.scalar(select(nodes.c.id).where(nodes.c.id == node.id)) is not None:
        raise StaleWrite(f"there is a node {node.id} already")
    row = _columns(node) | {"changed": _next_change(connection)}
    connection.execute(insert(nodes).values(id=node.id, **row))
    return node


def read_node(connection: Connection, node_id: str) -> Node | None:
    """Return the present node, or None; a stand-in (`damage`) if its row cannot be read."""
    body = connection.scalar(_NODE, {"name": node_id})
    return None if body is None else parse_or_stand_in(connection, node_id, body)


def parse_or_stand_in(connection: Connection, node_id: str, body: str) -> Node:
    """Return the node in `body`, or its readable part."""
    try:
        return parse_node(body)
    except DamagedRow as error:
        named = DamagedRow(f"nodes, {node_id}", error.problem)
        damage.record(connection.engine, node_id, named)
        row = connection.execute(select(nodes).where(nodes.c.id == node_id)).one()
        return damage.stand_in(dict(row._mapping), named)


def save_node(connection: Connection, node: Node) -> Node:
    """Return the node with its generation raised; `StaleWrite` if it changed since it was read.

    A changed state is an event of the journal in the same transaction. `StaleWrite` also for a
    stand-in: nothing is written over a damaged row, so that it can be repaired.
    """
    if node.generation == damage.STAND_IN:
        raise StaleWrite(f"the row of {node.id} is damaged, and nothing is written over it")
    saved = node.model_copy(update={"generation": node.generation + 1})
    row = {"name": node.id, "generation": node.generation}
    stored = connection.execute(_STORED, row).first()
    if stored is not None and stored.state != node.state:
        event = describe_transition(parse_node(stored.body), saved)
        assert event is not None
        chain.append(connection, event, saved.entered_at)
    mine = (nodes.c.id == node.id) & (nodes.c.generation == node.generation)
    updated = connection.execute(
        update(nodes).where(mine).values(**_columns(saved), changed=_next_change(connection))
    )
    if updated.rowcount != 1:
        raise StaleWrite(f"node {node.id} is no longer at generation {node.generation}")
    return saved


def _next_change(connection: Connection) -> int:
    """Return a number above every other one. Writers take turns: it is unique, and none comes
    late.
    """
    return int(connection.scalar(_LAST_CHANGE) or 0) + 1


def _columns(node: Node) -> dict[str, object]:
    return {
        "kind": str(node.kind),
        "state": str(node.state),
        "generation": node.generation,
        "tenant": node.tenant,
        "release": node.release,
        "profile": node.profile,
        "rack": node.location.rack,
        "body": node.model_dump_json(),
    }
