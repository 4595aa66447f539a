"""Rows of nodes and tenants. Each function is one part of a transaction on `connection`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select, update

from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.ports.errors import StaleWrite
from provisioner.store.records import parse, parse_node
from provisioner.store.schema import nodes, tenants


def add_node(connection: Connection, node: Node) -> Node:
    """A new row, with the generation that the node has; `StaleWrite` if the id is taken."""
    if connection.scalar(select(nodes.c.id).where(nodes.c.id == node.id)) is not None:
        raise StaleWrite(f"there is a node {node.id} already")
    connection.execute(insert(nodes).values(id=node.id, **_columns(node)))
    return node


def read_node(connection: Connection, node_id: str) -> Node | None:
    """The node as it is now, or None."""
    body = connection.scalar(select(nodes.c.body).where(nodes.c.id == node_id))
    return None if body is None else parse_node(body)


def read_nodes(connection: Connection) -> Sequence[Node]:
    """Every node, by id."""
    return tuple(map(parse_node, connection.scalars(select(nodes.c.body).order_by(nodes.c.id))))


def save_node(connection: Connection, node: Node) -> Node:
    """The node with its generation raised; `StaleWrite` if it changed since it was read."""
    saved = node.model_copy(update={"generation": node.generation + 1})
    done = connection.execute(
        update(nodes)
        .where(nodes.c.id == node.id, nodes.c.generation == node.generation)
        .values(**_columns(saved))
    )
    if done.rowcount != 1:
        raise StaleWrite(f"node {node.id} is no longer at generation {node.generation}")
    return saved


def _columns(node: Node) -> dict[str, object]:
    return {
        "kind": str(node.kind),
        "state": str(node.state),
        "generation": node.generation,
        "body": node.model_dump_json(),
    }


def put_tenant(connection: Connection, tenant: Tenant) -> None:
    """Make or replace a tenant."""
    body = tenant.model_dump_json()
    done = connection.execute(
        update(tenants).where(tenants.c.name == tenant.name).values(body=body)
    )
    if done.rowcount == 0:
        connection.execute(insert(tenants).values(name=tenant.name, body=body))


def read_tenants(connection: Connection) -> Sequence[Tenant]:
    """Every tenant, by name."""
    rows = connection.execute(select(tenants.c.name, tenants.c.body).order_by(tenants.c.name))
    return tuple(parse(Tenant, row.body, f"tenants, {row.name}") for row in rows)
