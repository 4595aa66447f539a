"""Changes that a person asked for, written with the journal's row of them in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection

from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node
from provisioner.store.rows import evidence_rows, node_rows
from provisioner.store.rows import journal as chain


def write_node_request(
    connection: Connection, node: Node, event: RequestCarriedOut, now: float
) -> Node:
    """Save a node as a person asked for it. `StaleWrite` if it changed since it was read."""
    saved = node_rows.save_node(connection, node)
    chain.append(connection, event, now, node.id)
    return saved


def write_detachment(
    connection: Connection, node: Node, certificate: str, event: RequestCarriedOut, now: float
) -> None:
    """Save a node that is given back, and revoke its certificate. `StaleWrite` if it changed."""
    write_node_request(connection, node, event, now)
    if certificate:
        evidence_rows.revoke(connection, certificate, node.note, now)


def write_revocation(
    connection: Connection,
    certificate: str,
    node: str,
    reason: str,
    by: str,
    now: float,
    change: int | None = None,
) -> None:
    """Revoke a certificate for good as a person asked; `change` is the API's number of it."""
    evidence_rows.revoke(connection, certificate, reason, now)
    event = RequestCarriedOut(
        about=node, request="revoke", certificate=certificate, reason=reason, by=by
    )
    if change is not None:
        event = event.model_copy(update={"id": change})
    chain.append(connection, event, now)
