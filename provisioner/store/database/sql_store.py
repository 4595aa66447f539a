"""`Store` on a relational database: each method is one short transaction on a lane.

Nothing here blocks the event loop (unless opened `inline`), and no transaction is held across an
await: the row functions are synchronous and a lane runs them as one piece of work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from provisioner.model.agent import AgentSession
from provisioner.model.certificate import Certificate, Revocation
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.events.event import Event
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.model.standing import ReleaseConditions
from provisioner.model.tenant import ReleaseProof, Tenant
from provisioner.ports.errors import DamagedRow
from provisioner.store.database import database, postgres
from provisioner.store.database.database import MEMORY
from provisioner.store.database.lanes import InlineLane, Lane, Result, ThreadLane, Work
from provisioner.store.database.migrating import Copier
from provisioner.store.database.setting_aside import Aside
from provisioner.store.rows import (
    agent_rows,
    clock_rows,
    cohort_rows,
    damage,
    evidence_rows,
    fabric_rows,
    node_rows,
    operation_rows,
    signing_key_rows,
    tenant_rows,
    turn_rows,
)
from provisioner.store.rows import journal as chain
from provisioner.store.rows.fleet import Fleet, read_named
from provisioner.store.signing import verify


def open_store(
    path: str | Path,
    *,
    inline: bool = False,
    copy_first: Copier | None = None,
    reads_only: bool = False,
) -> SqlStore:
    """A store on the database file at `path`, in memory at ":memory:", or at a PostgreSQL URL.

    `inline`: run in the calling thread, for simulation under virtual time. `copy_first` copies a
    database of an older version before it is migrated; without it such a database is refused.
    `reads_only`: nothing can be written, and a database of another version is refused.
    Blocks while the database is checked. Raises `InputError` if it cannot be used. The caller
    holds `lock_data_directory` first if it is going to migrate.
    """
    if postgres.is_postgres(path):
        engine = postgres.open_postgres(str(path), copy_first)
        to_write, to_read = postgres.write_connection(engine), postgres.read_connection(engine)
    else:
        if reads_only:
            engine = database.open_reading(Path(path))
            only = ThreadLane(database.read_connection(engine), "store-reader", reads=True)
            return SqlStore(engine, only, only)
        engine = database.open_database(path, copy_first)
        to_write, to_read = database.write_connection(engine), database.read_connection(engine)
    if inline:
        lane = InlineLane(to_write)
        return SqlStore(engine, lane, lane)
    writer = ThreadLane(to_write, "store-writer")
    if str(path) == MEMORY:  # one connection is all there is
        return SqlStore(engine, writer, writer)
    return SqlStore(engine, writer, ThreadLane(to_read, "store-reader", reads=True))


class SqlStore:
    """See `ports.Store` for what each method promises; `StoreFailed` from any of them is final."""

    def __init__(self, engine: Engine, writer: Lane, reader: Lane) -> None:
        self.writer, self.reader = writer, reader
        self._engine, self._fleet = engine, Fleet()
        self._aside = Aside(engine)

    @property
    def shared(self) -> bool:
        """Whether other daemons may write too."""
        return self._engine.dialect.name == "postgresql"

    @property
    def file(self) -> Path | None:
        """The database's file; None in memory or on a server."""
        return database.file_of(self._engine)

    @property
    def waiting(self) -> int:
        return self.writer.waiting + self.reader.waiting

    async def write(self, work: Work[Result]) -> Result:
        """Run synchronous row functions in one transaction; on disk when this returns."""
        return await self.writer.run(work)

    async def read(self, work: Work[Result]) -> Result:
        """Run queries on one snapshot, which has every write that was answered before."""
        return await self.reader.run(work)

    async def _read_of(self, node: str, work: Work[Result]) -> Result:
        """Read rows of one node; a damaged one is recorded as that node's."""
        try:
            return await self.read(work)
        except DamagedRow as error:
            damage.record(self._engine, node, error)
            raise DamagedRow(error.where, error.problem, node) from None

    async def close(self) -> None:
        """Finish the writes that wait, then close the file. A second call does nothing."""
        await self.writer.close()
        await self.reader.close()
        self._engine.dispose()

    # nodes

    async def add_node(self, node: Node) -> Node:
        return await self.write(lambda c: node_rows.add_node(c, node))

    async def node(self, node_id: str) -> Node | None:
        return await self.read(lambda c: node_rows.read_node(c, node_id))

    async def nodes(self) -> Sequence[Node]:
        return self._aside.leave_out(await self._fleet.nodes(self.read))

    def damaged(self) -> Mapping[str, Blocker]:
        return self._aside.damaged()

    async def set_aside(self) -> Sequence[Node]:
        readable = await self._fleet.nodes(self.read)
        self._aside.take(readable)
        damaged = self._aside.damaged()
        return *self._fleet.damaged, *(n for n in readable if n.id in damaged)

    async def nodes_named(self, names: Collection[str]) -> Mapping[str, Node]:
        return await self.read(lambda c: read_named(c, names))

    async def save_node(self, node: Node) -> Node:
        return await self.write(lambda c: node_rows.save_node(c, node))

    # operations

    async def open_operation(self, node: str, want: str, now: float) -> Operation | None:
        return await self.write(lambda c: operation_rows.open_operation(c, node, want, now))

    async def active_operations(self) -> Sequence[Operation]:
        return await self.read(operation_rows.active_operations)

    async def operation(self, operation_id: str) -> Operation | None:
        return await self.read(lambda c: operation_rows.read_operation(c, operation_id))

    async def take(self, operation_id: str) -> Operation:
        return await self.write(lambda c: operation_rows.take(c, operation_id))

    async def record(
        self,
        operation: Operation,
        *,
        node: Node | None = None,
        inventory: Inventory | None = None,
        report: HealthReport | None = None,
        certificate: Certificate | None = None,
        proof: ReleaseProof | None = None,
        events: Sequence[Event] = (),
        standing: ReleaseConditions | None = None,
        now: float,
    ) -> tuple[Operation, Node | None]:
        parts = (inventory, report, certificate, proof)
        assert node is None or node.id == operation.node, "a driver writes its own node only"
        assert all(p is None or p.node == operation.node for p in parts), "of its own node only"
        kept = tuple(events)
        return await self.write(
            lambda c: turn_rows.record(c, operation, node, parts, kept, now, standing)
        )

    async def end_operation(
        self, operation: Operation, status: OperationStatus, note: str
    ) -> Operation:
        ended = operation.model_copy(update={"status": status, "note": note})
        return await self.write(lambda c: operation_rows.fence(c, ended))

    # the ledger

    async def intend(
        self, operation: Operation, action: str, before: Mapping[str, Any], now: float
    ) -> tuple[Operation, LedgerEntry]:
        return await self.write(lambda c: operation_rows.intend(c, operation, action, before, now))

    async def settle(
        self,
        operation: Operation,
        entry: LedgerEntry,
        status: ActionStatus,
        *,
        task: str = "",
        outcome: str = "",
        now: float,
    ) -> tuple[Operation, LedgerEntry]:
        return await self.write(
            lambda c: operation_rows.settle(
                c, operation, entry, status, task=task, outcome=outcome, now=now
            )
        )

    async def last_entry(self, operation_id: str, action: str) -> LedgerEntry | None:
        return await self.read(lambda c: operation_rows.last_entry(c, operation_id, action))

    async def entries(self, node: str) -> Sequence[LedgerEntry]:
        return await self._read_of(node, lambda c: operation_rows.entries(c, node))

    # what was seen and proved

    async def inventory(self, node: str) -> Inventory | None:
        return await self._read_of(node, lambda c: evidence_rows.read_inventory(c, node))

    async def report(self, node: str) -> HealthReport | None:
        return await self._read_of(node, lambda c: evidence_rows.read_report(c, node))

    async def reports(self, node: str, since: float) -> Sequence[HealthReport]:
        return await self._read_of(node, lambda c: evidence_rows.read_reports(c, node, since))

    async def put_evidence(self, text: str) -> str:
        packed = evidence_rows.pack(text)
        await self.write(lambda c: evidence_rows.put_evidence(c, *packed))
        return packed[0]

    async def evidence(self, digest: str) -> str | None:
        return await self.read(lambda c: evidence_rows.read_evidence(c, digest))

    async def certificate(self, certificate_id: str) -> Certificate | None:
        return await self.read(lambda c: evidence_rows.read_certificate(c, certificate_id))

    async def attested(self, certificate: Certificate) -> bool:
        keys = await self.read(signing_key_rows.believed)
        return verify(certificate, keys)

    async def revocations(self) -> Sequence[Revocation]:
        return await self.read(evidence_rows.read_revocations)

    async def revoke(self, certificate_id: str, reason: str, now: float) -> None:
        await self.write(lambda c: evidence_rows.revoke(c, certificate_id, reason, now))

    async def revoked(self, certificate_id: str) -> bool:
        return await self.read(lambda c: evidence_rows.revoked(c, certificate_id))

    async def proof(self, node: str) -> ReleaseProof | None:
        return await self._read_of(node, lambda c: evidence_rows.read_proof(c, node))

    # maintenance agents (`ports.AgentRows`)

    async def agent_sessions(self) -> Sequence[AgentSession]:
        return await self.read(agent_rows.read_sessions)

    async def put_agent_session(self, session: AgentSession) -> None:
        await self.write(lambda c: agent_rows.put_session(c, session))

    async def hand_out_agent_token(self, session: AgentSession) -> bool:
        return await self.write(lambda c: agent_rows.hand_out(c, session))

    async def change_agent_session(self, node: str, changes: Mapping[str, object]) -> None:
        await self.write(lambda c: agent_rows.change_session(c, node, changes))

    # what the fleet measures and teaches

    async def put_sample(self, sample: Sample) -> None:
        await self.write(lambda c: cohort_rows.put_sample(c, sample))

    async def samples(self, profile: str, versions: str | None, limit: int) -> Sequence[Sample]:
        return await self.read(lambda c: cohort_rows.read_samples(c, profile, versions, limit))

    async def samples_mark(self, profile: str, versions: str) -> tuple[int, float]:
        return await self.read(lambda c: cohort_rows.read_mark(c, profile, versions))

    async def put_baseline(self, baseline: Baseline) -> None:
        await self.write(lambda c: cohort_rows.put_baseline(c, baseline))

    async def baselines(self, profile: str) -> Sequence[Baseline]:
        return await self.read(lambda c: cohort_rows.read_baselines(c, profile))

    # tests among nodes

    async def put_fabric_session(
        self, session: FabricSession, outcomes: Sequence[FabricOutcome] = ()
    ) -> FabricSession:
        return await self.write(lambda c: fabric_rows.put(c, session, outcomes))

    async def fabric_sessions(self) -> Sequence[FabricSession]:
        return await self.read(fabric_rows.read_open)

    async def fabric_outcome(self, node: str) -> FabricOutcome | None:
        return await self._read_of(node, lambda c: fabric_rows.read_outcome(c, node))

    # tenants, journal, matrices

    async def put_tenant(self, tenant: Tenant) -> None:
        await self.write(lambda c: tenant_rows.put_tenant(c, tenant))

    async def save_tenant(
        self,
        tenant: Tenant,
        *,
        new: bool,
        nodes: Sequence[Node],
        request: str,
        by: str = "",
        now: float,
    ) -> Tenant:
        keep = partial(tenant_rows.keep, tenant=tenant, new=new, nodes=nodes)
        return await self.write(partial(keep, request=request, by=by, now=now))

    async def remove_tenant(self, tenant: Tenant, now: float) -> None:
        await self.write(lambda c: tenant_rows.forget(c, tenant, now))

    async def tenants(self) -> Sequence[Tenant]:
        return await self.read(tenant_rows.read_tenants)

    async def journal(self, event: Event, now: float) -> None:
        await self.write(lambda c: chain.append(c, event, now))

    async def journal_rows(self, after: int = 0, limit: int = 1000) -> Sequence[Mapping[str, Any]]:
        return await self.read(lambda c: chain.read(c, after, limit))

    async def verify_journal(self, known: tuple[int, str] | None = None) -> chain.ChainCheck:
        """See `journal.verify`."""
        return await chain.verify(self.read, known)

    async def clock_mark(self, name: str) -> float | None:
        return await self.read(lambda c: clock_rows.read_mark(c, name))

    async def put_clock_mark(self, name: str, at: float) -> None:
        await self.write(lambda c: clock_rows.put_mark(c, name, at))

    async def put_matrix(self, digest: str, text: str, now: float) -> None:
        await self.write(lambda c: evidence_rows.put_matrix(c, digest, text, now))
