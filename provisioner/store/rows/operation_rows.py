"""Rows of operations and of the ledger: the right to write, and the intended actions.

Every write of a driver passes `fence`, in the same transaction as the write itself. A driver that
was replaced while it slept (its epoch is old) or that lost track (its version is old) changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, bindparam, func, select, update
from sqlalchemy.exc import IntegrityError

from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.events.event import Event
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, ReleaseConditions
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.model.tenant import ReleaseProof
from provisioner.planning.certification.certification import find_expiry, identify_installation
from provisioner.ports.errors import DamagedRow, Fenced, StaleWrite
from provisioner.store.rows import (
    evidence_rows,
    journal,
    node_rows,
    records,
    request_rows,
    tenant_rows,
)
from provisioner.store.rows.records import canonical, clean, parse_object
from provisioner.store.rows.statements import find_value, insert_row, update_rows
from provisioner.store.schema.schema import ledger, operations

# Statuses after which an action is no longer under way; `settled_at` is the time of the last.
SETTLED = frozenset(
    {ActionStatus.CONFIRMED, ActionStatus.ABSENT, ActionStatus.FAILED, ActionStatus.UNCLEAR}
)

_SETTLEMENT = {"status", "task", "outcome", "settled_at", "settled_epoch"}  # columns it writes

# made once: every turn of every operation runs these
_ONE = select(operations).where(operations.c.id == bindparam("wanted"))
_ACTIVE = (
    select(operations)
    .where(operations.c.status == str(OperationStatus.ACTIVE))
    .order_by(operations.c.node)
)
_DISRUPTING = _ACTIVE.where(operations.c.phase != "")
_NAMES = tuple(operations.c.keys())  # of a whole row, in its order
_OF_NODE = select(ledger).where(ledger.c.node == bindparam("name")).order_by(ledger.c.id)
_LAST_NUMBER = select(func.max(operations.c.number)).where(operations.c.node == bindparam("name"))
_TAKEN = (
    update(operations)
    .where(
        operations.c.id == bindparam("wanted"),
        operations.c.status == str(OperationStatus.ACTIVE),
    )
    .values(epoch=operations.c.epoch + 1, version=operations.c.version + 1)
)
_LAST_ATTEMPT = (
    select(ledger)
    .where(ledger.c.operation == bindparam("of"), ledger.c.action == bindparam("wanted"))
    .order_by(ledger.c.attempt.desc())
    .limit(1)
)
_HELD = update(operations).where(
    operations.c.id == bindparam("wanted"),
    operations.c.epoch == bindparam("held_epoch"),
    operations.c.version == bindparam("held_version"),
    operations.c.status == str(OperationStatus.ACTIVE),
)


def open_operation(connection: Connection, node: str, want: str, now: float) -> Operation | None:
    """A new active operation with the id "node#number"; None if the node has an active one."""
    if _active_of(connection, node) is not None:
        return None
    last = connection.scalar(_LAST_NUMBER, {"name": node})
    number = (last or 0) + 1
    operation = Operation(id=f"{node}#{number}", node=node, want=want, opened_at=now)
    try:
        with connection.begin_nested():
            row = _columns(operation) | {"node": node, "number": number}
            insert_row(connection, operations, row)
    except IntegrityError:
        # two daemons on one database: the unique index decided, and the other one was first
        if _active_of(connection, node) is not None:
            return None
        raise
    return operation


def _active_of(connection: Connection, node: str) -> str | None:
    active = str(OperationStatus.ACTIVE)
    found: str | None = find_value(connection, operations.c.id, node=node, status=active)
    return found


def _columns(operation: Operation) -> dict[str, object]:
    return {
        "id": operation.id,
        "want": operation.want,
        "status": str(operation.status),
        "epoch": operation.epoch,
        "version": operation.version,
        "phase": clean(operation.phase),
        "opened_at": operation.opened_at,
        "note": clean(operation.note),
    }


def read_operation_row(row: Row[Any]) -> Operation:
    """Return the operation of a whole row; raises `DamagedRow`."""
    fields = dict(zip(_NAMES, row, strict=True))  # a row's own mapping takes four times as long
    del fields["number"]
    try:
        return Operation(**fields)
    except ValidationError as error:
        raise _damaged(f"operations, {row.id}", error) from None


def read_operation(connection: Connection, operation_id: str) -> Operation | None:
    """Return one operation, active or not."""
    row = connection.execute(_ONE, {"wanted": operation_id}).first()
    return None if row is None else read_operation_row(row)


def active_operations(connection: Connection) -> Sequence[Operation]:
    """Return the operations that a daemon drives again when it starts, by node."""
    return readable_operations(connection, _ACTIVE)


def disrupting_operations(connection: Connection) -> Sequence[Operation]:
    """Return the active operations whose step takes something out of service, by node."""
    return readable_operations(connection, _DISRUPTING)


def readable_operations(connection: Connection, query: Select[Any]) -> tuple[Operation, ...]:
    """Return the operations whose rows can be read; the others park their nodes."""
    readable = []
    for row in connection.execute(query).all():
        try:
            readable.append(read_operation_row(row))
        except DamagedRow as error:
            records.record(connection.engine, row.node, error)
    return tuple(readable)


def take(connection: Connection, operation_id: str) -> Operation:
    """Take an operation over as its driver; `Fenced` if it is not active (any more)."""
    updated = connection.execute(_TAKEN, {"wanted": operation_id})
    taken = read_operation(connection, operation_id) if updated.rowcount == 1 else None
    if taken is None:
        raise Fenced(f"operation {operation_id} is not active")
    return taken


def fence(connection: Connection, operation: Operation) -> Operation:
    """Prove that the caller still drives it, and write its purpose, status, phase and note.

    Return the operation with its version raised; `Fenced` if another writer was faster, or it
    ended.
    """
    written = operation.model_copy(
        update={
            "version": operation.version + 1,
            "phase": clean(operation.phase),
            "note": clean(operation.note),
        }
    )
    held = {
        "wanted": operation.id,
        "held_epoch": operation.epoch,
        "held_version": operation.version,
    }
    values = {
        "version": written.version,
        "want": written.want,
        "status": str(written.status),
        "phase": written.phase,
        "note": written.note,
    }
    updated = connection.execute(_HELD, held | values)
    if updated.rowcount != 1:
        raise Fenced(
            f"operation {operation.id} is no longer at epoch {operation.epoch}, "
            f"version {operation.version}"
        )
    return written


def end(connection: Connection, operation: Operation, now: float | None) -> Operation:
    """Write the end of an operation, and with `now` that of the request that it carries out."""
    ended = fence(connection, operation)
    if now is not None:
        request_rows.end_carried(connection, ended, now)
    return ended


def intend(
    connection: Connection, operation: Operation, action: str, before: Mapping[str, Any], now: float
) -> tuple[Operation, LedgerEntry]:
    """Check the fence and store the intent in one transaction.

    An attempt that is still under way must be settled first: to intend the same action again would
    be to repeat it blindly, which is an assertion.
    """
    fenced = fence(connection, operation)
    last = last_entry(connection, operation.id, action)
    assert last is None or last.status in SETTLED, f"{action}: attempt {last.attempt} is open"
    stored = canonical(before)
    entry = LedgerEntry(
        operation=operation.id,
        node=operation.node,
        action=action,
        attempt=1 if last is None else last.attempt + 1,
        status=ActionStatus.INTENDED,
        intended_at=now,
        epoch=operation.epoch,
        before=parse_object(stored, "ledger"),  # as a reader will get it, not as it was handed in
    )
    insert_row(connection, ledger, entry.model_dump(mode="json") | {"before": stored})
    return fenced, entry


def settle(
    connection: Connection,
    operation: Operation,
    entry: LedgerEntry,
    status: ActionStatus,
    *,
    task: str,
    outcome: str,
    now: float,
) -> tuple[Operation, LedgerEntry]:
    """Record the outcome of an action. A later operation of the node may settle an earlier one's
    action.

    `StaleWrite` if the row's status is no longer the entry's. An empty `task` or `outcome` leaves
    the stored one.
    """
    assert entry.node == operation.node, "an entry is settled by its own node's driver"
    fenced = fence(connection, operation)
    settled = entry.model_copy(
        update={
            "status": status,
            "task": clean(task) or entry.task,
            "outcome": clean(outcome) or entry.outcome,
            "settled_at": now if status in SETTLED else 0.0,
            "settled_epoch": operation.epoch if status in SETTLED else None,
        }
    )
    open_entry = entry.model_dump(mode="json", include={"operation", "action", "attempt", "status"})
    settlement = settled.model_dump(mode="json", include=_SETTLEMENT)
    if update_rows(connection, ledger, open_entry, settlement) != 1:
        raise StaleWrite(f"{entry.action}, attempt {entry.attempt}, is no longer {entry.status}")
    return fenced, settled


def last_entry(connection: Connection, operation_id: str, action: str) -> LedgerEntry | None:
    """Return the newest attempt at one action of one operation."""
    row = connection.execute(_LAST_ATTEMPT, {"of": operation_id, "wanted": action}).first()
    return None if row is None else read_entry_row(row)


def entries(connection: Connection, node: str) -> Sequence[LedgerEntry]:
    """Return every action on one node, oldest first."""
    return tuple(map(read_entry_row, connection.execute(_OF_NODE, {"name": node})))


def read_entry_row(row: Row[Any]) -> LedgerEntry:
    """Return the entry of a whole row; raises `DamagedRow`."""
    fields = dict(row._mapping)
    where = f"ledger, {fields.pop('id')}"
    fields["before"] = parse_object(fields["before"], where)
    try:
        return LedgerEntry(**fields)
    except ValidationError as error:
        raise _damaged(where, error) from None


def _damaged(where: str, error: ValidationError) -> DamagedRow:
    first = error.errors()[0]
    return DamagedRow(where, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


# ------------------------------------------------------------------------------
# The outcome of one turn of a node's operation, as one transaction.


def record(
    connection: Connection,
    operation: Operation,
    node: Node | None,
    parts: tuple[Inventory | None, HealthReport | None, Certificate | None, ReleaseProof | None],
    events: Sequence[Event],
    now: float,
    standing: ReleaseConditions | None = None,
) -> tuple[Operation, Node | None]:
    """The outcome of one turn: all of it or nothing. `StaleWrite` if `standing` does not hold."""
    inventory, report, certificate, proof = parts
    fenced = fence(connection, operation)
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
        journal.append(connection, event, now, operation.node)
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
