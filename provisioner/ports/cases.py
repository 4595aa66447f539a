"""The store of repair cases and of notices to tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.case import Case, TenantNotice
from provisioner.model.events.event import Event
from provisioner.model.node import Node
from provisioner.model.operation import Operation


class CaseRepository(Protocol):
    """Stored cases and notices, on disk when a method returns. A case carries the generation
    read.
    """

    async def list_open(self) -> Sequence[Case]: ...
    async def get_open(self, node: str) -> Case | None: ...
    async def get(self, case_id: str) -> Case | None: ...
    async def list(self, node: str = "", limit: int = 1000) -> Sequence[Case]:
        """Return the cases of a node, or of all nodes; the newest first."""
        ...

    async def add(
        self,
        case: Case,
        *,
        notices: Sequence[TenantNotice] = (),
        events: Sequence[Event] = (),
        now: float,
    ) -> Case | None:
        """Add a case and return it; None if the node already has an open one."""
        ...

    async def save(
        self,
        case: Case,
        *,
        notices: Sequence[TenantNotice] = (),
        events: Sequence[Event] = (),
        now: float,
    ) -> Case:
        """Store the case with its generation raised; raise `StaleWrite` if it has changed since."""
        ...

    async def allocate_spare(
        self, case: Case, spare: Node, *, notices: Sequence[TenantNotice] = (), now: float
    ) -> tuple[Case, Node, Operation | None]:
        """Store the case that names a spare, give the spare its tenant, and open the operation
        that releases it, in one transaction; the operation is None if the spare has one already.

        Raises `StaleWrite` if the case or the spare has changed since it was read: then nothing of
        it is stored, and no notice.
        """
        ...

    async def list_journal_of(
        self, node: str, since: float, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        """Return the node's first `limit` rows of the journal since a time, in order."""
        ...

    async def list_tenancy(self, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return the journal's rows about the tenants of nodes, after a row number, in order."""
        ...

    async def list_notices(
        self, tenant: str = "", *, unsent: bool = False
    ) -> Sequence[TenantNotice]: ...
    async def put_notice(self, notice: TenantNotice) -> None:
        """Add a notice, or replace it after its delivery or acceptance."""
        ...
