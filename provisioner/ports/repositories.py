"""The repositories of the store, one for each aggregate. Every method is one short transaction.

`Node` writes carry the generation that was read (`StaleWrite` otherwise); writes of a driver
carry its operation (`Fenced` otherwise) and return it with the version raised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.certificate import Certificate, Revocation
from provisioner.model.cohort import Baseline, HealthReport, Sample
from provisioner.model.events.event import Event
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.inventory import Inventory, ListedVersion
from provisioner.model.node import Node, ReleaseConditions
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import ReleaseProof, Tenant


class NodeRepository(Protocol):
    """Nodes, with the ones that damaged rows set aside."""

    async def add(self, node: Node) -> Node: ...

    async def get(self, node_id: str) -> Node | None: ...

    async def list(self) -> Sequence[Node]:
        """Return every node except those that are `set_aside`."""
        ...

    def find_damaged(self) -> Mapping[str, Blocker]:
        """The blocker of each node that a damaged row belongs to, of the rows read so far."""
        ...

    async def list_set_aside(self) -> Sequence[Node]:
        """Return the nodes with a damaged row among those read so far; `nodes` leaves them out.

        A node whose own row is damaged has only its readable fields: its ports may be missing.
        """
        ...

    async def list_cabled(self, switches: Collection[str]) -> Sequence[Node]:
        """Return the nodes of `list` that have a port at one of these switches, by id.

        The cost depends on their number and on what changed.
        """
        ...

    async def list_guarded(self) -> Sequence[Node]:
        """Return all adopted and detached nodes by id, also those set aside for a damaged row.

        The cost depends on their number and on what changed: it is asked before each write.
        """
        ...

    async def list_named(self, names: Collection[str]) -> Mapping[str, Node]:
        """Return the existing nodes among these names; the cost depends on their number only."""
        ...

    async def list_unassigned(self, names: Collection[str]) -> Sequence[Node]:
        """Return the certified hosts without a tenant among these names, by their present rows,
        except those that are set aside.
        """
        ...

    async def save(self, node: Node) -> Node: ...


class OperationRepository(Protocol):
    """Operations of nodes, the turns of their drivers, and the ledger of actions."""

    async def open(self, node: str, want: str, now: float) -> Operation | None:
        """Open an active operation and return it; None if the node already has one."""
        ...

    async def list_active(self) -> Sequence[Operation]: ...

    async def get(self, operation_id: str) -> Operation | None: ...

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

    async def end(self, operation: Operation, status: OperationStatus, note: str) -> Operation:
        """End the operation (or park it for a person); fenced like every write."""
        ...

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

    async def get_last_entry(self, operation_id: str, action: str) -> LedgerEntry | None: ...

    async def list_entries(self, node: str) -> Sequence[LedgerEntry]: ...


class EvidenceRepository(Protocol):
    """Evidence about nodes: inventories, reports, raw output, certificates, proofs, matrices."""

    async def get_inventory(self, node: str) -> Inventory | None: ...

    async def put_inventory(self, inventory: Inventory, now: float) -> None:
        """Store a reading that no operation made, unless it is equal to the last one."""
        ...

    async def list_versions(
        self, names: Collection[str] | None = None
    ) -> tuple[Mapping[str, str], Mapping[str, tuple[ListedVersion, ...]]]:
        """Return (node -> digest of its set of versions, digest -> its versions) of the newest
        inventories, of all nodes or of some. Nodes without an inventory are left out.
        """
        ...

    async def list_parts(
        self,
        names: Collection[str] | None,
        serials: Collection[str],
        models: Collection[str],
        limit: int | None = None,
    ) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return node -> (lines of serial, tab and part; models) of nodes that have one of these
        texts in them; serials are in small letters, and an empty text is in each.
        """
        ...

    async def get_report(self, node: str) -> HealthReport | None: ...

    async def list_reports(self, node: str, since: float) -> Sequence[HealthReport]:
        """Return the reports that ended at `since` or later, the newest first."""
        ...

    async def put_output(self, text: str) -> str:
        """Store raw output and return its SHA-256. The same text is stored once."""
        ...

    async def get_output(self, digest: str) -> str | None: ...

    async def get_certificate(self, certificate_id: str) -> Certificate | None: ...

    async def read_trust(self, certificate: Certificate) -> tuple[bool, bool]:
        """Return whether a believed key signed it, and whether it is revoked, read together."""
        ...

    async def is_attested(self, certificate: Certificate) -> bool:
        """Return whether a key of ours that was not withdrawn signed exactly this certificate."""
        ...

    async def revoke(self, certificate_id: str, reason: str, now: float) -> None: ...

    async def is_revoked(self, certificate_id: str) -> bool: ...

    async def list_revocations(self) -> Sequence[Revocation]: ...

    async def get_proof(self, node: str) -> ReleaseProof | None: ...

    async def put_matrix(self, digest: str, text: str, now: float) -> None: ...


class CohortRepository(Protocol):
    """Measurements of the fleet, and the baselines learned from them."""

    async def put_sample(self, sample: Sample) -> None: ...

    async def list_samples(
        self, profile: str, versions: str | None, limit: int
    ) -> Sequence[Sample]:
        """Return the newest samples of a profile, of one set of versions or (None) of all."""
        ...

    async def get_samples_mark(self, profile: str, versions: str) -> tuple[int, float]:
        """Return a mark that changes with every sample of one set of versions.

        Equal marks mean the same samples.
        """
        ...

    async def put_baseline(self, baseline: Baseline) -> None: ...

    async def list_baselines(self, profile: str) -> Sequence[Baseline]: ...


class FabricRepository(Protocol):
    """Sessions of tests among nodes, and their outcomes."""

    async def put_session(
        self, session: FabricSession, outcomes: Sequence[FabricOutcome] = ()
    ) -> FabricSession:
        """Write a session, and with its last write its outcomes of nodes.

        Raises `Fenced` if another daemon has written it since.
        """
        ...

    async def list_sessions(self) -> Sequence[FabricSession]: ...

    async def get_outcome(self, node: str) -> FabricOutcome | None:
        """Return the newest session's outcome of a node or leaf."""
        ...


class TenantRepository(Protocol):
    async def put(self, tenant: Tenant) -> None:
        """Store a tenant of the expected-hardware list; a tenant with a number stays unchanged."""
        ...

    async def save(
        self,
        tenant: Tenant,
        *,
        new: bool,
        nodes: Sequence[Node],
        request: str,
        by: str = "",
        now: float,
        known: Collection[str] | None = None,
    ) -> Tenant:
        """Store a tenant and the nodes that leave it, with a row of the journal, in one
        transaction.

        `by` is the person who asked; "" is the daemon itself. Raises `StaleWrite` if any of them
        has changed since it was read, if a name, VRF or number is taken, or if the tenant has a
        node that is not among the `known` ones (None: it may have any).
        """
        ...

    async def allocate(self, node: Node, tenant: Tenant, now: float) -> Node:
        """Give a node to a tenant, with a row of the journal, in one transaction.

        Raises `StaleWrite` if node or tenant has changed since it was read.
        """
        ...

    async def remove(self, tenant: Tenant, now: float) -> None:
        """Remove a tenant whose network no device has any more; `StaleWrite` if it has changed."""
        ...

    async def list(self) -> Sequence[Tenant]: ...


class JournalRepository(Protocol):
    """The journal: append-only and hash-chained."""

    async def append(self, event: Event, now: float) -> None: ...

    async def list(self, after: int = 0, limit: int = 1000) -> Sequence[Mapping[str, Any]]: ...


class ClockMarkRepository(Protocol):
    """Marks of the wall clock: against which a jump backwards is noticed, and when a host last
    proved its firmware ("attested su0-n01").
    """

    async def get(self, name: str) -> float | None:
        """Return the time of a mark ("last", "accepted"), or None."""
        ...

    async def put(self, name: str, at: float) -> None: ...
