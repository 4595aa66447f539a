"""The store: facts in rows, and secrets encrypted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

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
from provisioner.ports.wire import Secret


class Store(Protocol):
    """The durable truth. Every method is one short transaction.

    `Node` writes carry the generation that was read (`StaleWrite` otherwise); writes of a driver
    carry its operation (`Fenced` otherwise) and return it with the version raised.
    """

    @property
    def waiting(self) -> int: ...  # pieces of work that wait for their turn

    # nodes
    async def add_node(self, node: Node) -> Node: ...
    async def node(self, node_id: str) -> Node | None: ...
    async def nodes(self) -> Sequence[Node]:
        """Return every node except those that are `set_aside`."""
        ...

    def damaged(self) -> Mapping[str, Blocker]:
        """Return the blocker of each node that a damaged row belongs to, of the rows read so
        far.
        """
        ...

    async def set_aside(self) -> Sequence[Node]:
        """Return the nodes with a damaged row among those read so far; `nodes` leaves them out.

        A node whose own row is damaged has only its readable fields: its ports may be missing.
        """
        ...

    async def nodes_named(self, names: Collection[str]) -> Mapping[str, Node]:
        """Return the existing nodes among these names; the cost depends on their number only."""
        ...

    async def save_node(self, node: Node) -> Node: ...

    # operations
    async def open_operation(self, node: str, want: str, now: float) -> Operation | None:
        """Open an active operation and return it; None if the node already has one."""
        ...

    async def active_operations(self) -> Sequence[Operation]: ...
    async def operation(self, operation_id: str) -> Operation | None: ...
    async def take(self, operation_id: str) -> Operation:
        """Become the operation's driver: raise the epoch, which fences the previous driver."""
        ...

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
        """Write the outcome of one turn in one fenced transaction; return the new operation and
        node.

        `standing` is checked in the same transaction: raises `StaleWrite` if it does not hold.
        """
        ...

    async def end_operation(
        self, operation: Operation, status: OperationStatus, note: str
    ) -> Operation:
        """End the operation (or park it for a person); fenced like every write."""
        ...

    # the ledger
    async def intend(
        self, operation: Operation, action: str, before: Mapping[str, Any], now: float
    ) -> tuple[Operation, LedgerEntry]:
        """Check the fence and write the ledger row in one transaction, on disk before this
        returns.
        """
        ...

    async def settle(
        self,
        operation: Operation,
        entry: LedgerEntry,
        status: ActionStatus,
        *,
        task: str = "",
        outcome: str = "",
        now: float,
    ) -> tuple[Operation, LedgerEntry]: ...

    async def last_entry(self, operation_id: str, action: str) -> LedgerEntry | None: ...
    async def entries(self, node: str) -> Sequence[LedgerEntry]: ...

    # observations and proofs
    async def inventory(self, node: str) -> Inventory | None: ...
    async def report(self, node: str) -> HealthReport | None: ...
    async def reports(self, node: str, since: float) -> Sequence[HealthReport]:
        """Return the reports that ended at `since` or later, the newest first."""
        ...

    async def put_evidence(self, text: str) -> str:
        """Store raw output and return its SHA-256. The same text is stored once."""
        ...

    async def evidence(self, digest: str) -> str | None: ...
    async def certificate(self, certificate_id: str) -> Certificate | None: ...
    async def attested(self, certificate: Certificate) -> bool:
        """Return whether a key of ours that was not withdrawn signed exactly this certificate."""
        ...

    async def revoke(self, certificate_id: str, reason: str, now: float) -> None: ...
    async def revoked(self, certificate_id: str) -> bool: ...
    async def revocations(self) -> Sequence[Revocation]: ...
    async def proof(self, node: str) -> ReleaseProof | None: ...

    # measurements of the fleet and the baselines learned from them
    async def put_sample(self, sample: Sample) -> None: ...
    async def samples(self, profile: str, versions: str | None, limit: int) -> Sequence[Sample]:
        """Return the newest samples of a profile, of one set of versions or (None) of all."""
        ...

    async def samples_mark(self, profile: str, versions: str) -> tuple[int, float]:
        """Return a mark that changes with every sample of one set of versions.

        Equal marks mean the same samples.
        """
        ...

    async def put_baseline(self, baseline: Baseline) -> None: ...
    async def baselines(self, profile: str) -> Sequence[Baseline]: ...

    # tests among nodes
    async def put_fabric_session(
        self, session: FabricSession, outcomes: Sequence[FabricOutcome] = ()
    ) -> FabricSession:
        """Write a session, and with its last write its outcomes of nodes.

        Raises `Fenced` if another daemon has written it since.
        """
        ...

    async def fabric_sessions(self) -> Sequence[FabricSession]:
        """Return the sessions that are under way."""
        ...

    async def fabric_outcome(self, node: str) -> FabricOutcome | None:
        """Return the newest session's outcome of a node or leaf."""
        ...

    # tenants
    async def put_tenant(self, tenant: Tenant) -> None:
        """Store a tenant of the expected-hardware list; a tenant with a number stays unchanged."""
        ...

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
        """Store a tenant and the nodes that leave it, with a row of the journal, in one
        transaction.

        `by` is the person who asked; "" is the daemon itself. Raises `StaleWrite` if any of them
        has changed since it was read, or if a name, VRF or number is taken.
        """
        ...

    async def remove_tenant(self, tenant: Tenant, now: float) -> None:
        """Remove a tenant whose network no device has any more; `StaleWrite` if it has changed."""
        ...

    async def tenants(self) -> Sequence[Tenant]: ...

    # the journal, append-only and hash-chained
    async def journal(self, event: Event, now: float) -> None: ...
    async def journal_rows(
        self, after: int = 0, limit: int = 1000
    ) -> Sequence[Mapping[str, Any]]: ...

    async def clock_mark(self, name: str) -> float | None:
        """Return the time of a mark ("last", "accepted"), or None."""
        ...

    async def put_clock_mark(self, name: str, at: float) -> None: ...

    async def put_matrix(self, digest: str, text: str, now: float) -> None: ...

    async def close(self) -> None: ...


class Credentials(Protocol):
    """BMC and switch credentials, encrypted at rest. A change is pending before it is made."""

    async def current(self, name: str) -> tuple[str, Secret] | None:
        """Return (username, password) in force for "node/bmc", or None."""
        ...

    async def pending(self, name: str) -> tuple[str, Secret] | None:
        """Return the credential that may already be in force: a rotation was begun, not
        confirmed.
        """
        ...

    async def begin(self, name: str, username: str, secret: Secret) -> None:
        """Store the new credential as pending, on disk, before it is sent to the device."""
        ...

    async def confirm(self, name: str) -> None:
        """Make the pending credential the current one, after the device accepted it."""
        ...

    async def put(self, name: str, username: str, secret: Secret) -> None:
        """Store a credential that is in force."""
        ...

    async def remove(self, name: str) -> None: ...
