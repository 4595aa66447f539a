"""Changes that a person asked for, written with the journal's row of them in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from provisioner.model.node import Node
from provisioner.store.rows import evidence_rows, node_rows
from provisioner.store.rows import journal as chain


def write_node_request(
    connection: Connection, node: Node, detail: Mapping[str, Any], now: float
) -> Node:
    """Save a node as a person asked for it. `StaleWrite` if it changed since it was read."""
    saved = node_rows.save_node(connection, node)
    chain.append(connection, "request", node.id, detail, now)
    return saved


def write_revocation(
    connection: Connection,
    certificate: str,
    node: str,
    reason: str,
    detail: Mapping[str, Any],
    now: float,
) -> None:
    """Revoke a certificate for good, by a person's word."""
    evidence_rows.revoke(connection, certificate, reason, now)
    row = {"request": "revoke", "certificate": certificate, "reason": reason, **detail}
    chain.append(connection, "request", node, row, now)
