"""The outcome of one turn of a node's operation, as one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from provisioner.model.certificate import Certificate
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.operation import Operation
from provisioner.model.tenant import ReleaseProof
from provisioner.store import evidence_rows, node_rows, operation_rows
from provisioner.store import journal as chain


def record(
    connection: Connection,
    operation: Operation,
    node: Node | None,
    parts: tuple[Inventory | None, HealthReport | None, Certificate | None, ReleaseProof | None],
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    now: float,
) -> tuple[Operation, Node | None]:
    """The outcome of one turn: all of it or nothing."""
    inventory, report, certificate, proof = parts
    fenced = operation_rows.fence(connection, operation)
    saved = None if node is None else node_rows.save_node(connection, node)
    if inventory is not None:
        evidence_rows.put_inventory(connection, inventory, now)
    if report is not None:
        evidence_rows.put_report(connection, report)
    if certificate is not None:
        evidence_rows.put_certificate(connection, certificate)
    if proof is not None:
        evidence_rows.put_proof(connection, proof)
    for kind, detail in rows:
        chain.append(connection, kind, operation.node, detail, now)
    return fenced, saved
