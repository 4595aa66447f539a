"""The outcome of one turn of a node's operation, as one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from provisioner.model.certificate import Certificate
from provisioner.model.events.event import Event
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.operation import Operation
from provisioner.model.standing import ReleaseConditions
from provisioner.model.tenant import ReleaseProof
from provisioner.planning.certification.certification import find_expiry, identify_installation
from provisioner.ports.errors import StaleWrite
from provisioner.store.rows import evidence_rows, node_rows, operation_rows, tenant_rows
from provisioner.store.rows import journal as chain


def record(
    connection: Connection,
    operation: Operation,
    node: Node | None,
    parts: tuple[Inventory | None, HealthReport | None, Certificate | None, ReleaseProof | None],
    events: Sequence[Event],
    now: float,
    standing: ReleaseConditions | None = None,
) -> tuple[Operation, Node | None]:
    """Return the outcome of one turn: all of it or nothing. `StaleWrite` if `standing` does not
    hold.
    """
    inventory, report, certificate, proof = parts
    fenced = operation_rows.fence(connection, operation)
    if standing is not None:
        _check_standing(connection, operation.node, standing, now)
    saved = None if node is None else node_rows.save_node(connection, node)
    if inventory is not None:
        evidence_rows.put_inventory(connection, inventory, now)
    if report is not None:
        evidence_rows.put_report(connection, report)
    if certificate is not None:
        evidence_rows.put_certificate(connection, certificate)
    if proof is not None:
        evidence_rows.put_proof(connection, proof)
    for event in events:
        chain.append(connection, event, now, operation.node)
    return fenced, saved


def _check_standing(
    connection: Connection, node: str, standing: ReleaseConditions, now: float
) -> None:
    """Raise `StaleWrite` with the first condition that no longer holds for this node."""
    name = standing.certificate
    certificate = evidence_rows.read_certificate(connection, name)
    if certificate is None or evidence_rows.revoked(connection, name):
        raise StaleWrite(f"certificate {name} was revoked")
    if find_expiry(certificate, now):
        raise StaleWrite(f"certificate {name} has expired")
    inventory = evidence_rows.read_inventory(connection, node)
    if inventory is None or identify_installation(inventory) != standing.inventory:
        raise StaleWrite(f"the parts or versions of {node} have changed")
    tenant = tenant_rows.read_tenant(connection, standing.tenant)
    if tenant is None or tenant.vrf != standing.vrf:
        raise StaleWrite(f"{standing.vrf} is not the network of tenant {standing.tenant} any more")
