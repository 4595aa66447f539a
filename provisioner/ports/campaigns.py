"""The store of campaigns, their nodes, release pins, and notices to tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.adoption.capability import Grant
from provisioner.model.campaign import Campaign, CampaignRow, ReleasePin
from provisioner.model.case import Case, TenantNotice
from provisioner.model.events.event import Event
from provisioner.model.events.fleet_events import CampaignChanged
from provisioner.model.node import Node
from provisioner.model.operation import Operation

# ------------------------------------------------------------------------------
# The store of repair cases and of notices to tenants.


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


# ------------------------------------------------------------------------------
# The store of the capabilities that people granted over adopted nodes.


class GrantRepository(Protocol):
    """All decisions, one for each scope, name and capability."""

    @property
    def newest(self) -> Sequence[Grant]:
        """Return the decisions that were last read or written here, without reading again."""
        ...

    async def list(self) -> Sequence[Grant]: ...

    async def put(self, grants: Sequence[Grant], now: float) -> None:
        """Store decisions with their events in one transaction."""
        ...


class CampaignRepository(Protocol):
    """Stored campaigns. Every method is one short transaction, on disk when it returns."""

    async def add(self, campaign: Campaign, by: str, now: float) -> Campaign: ...
    async def get(self, campaign_id: str) -> Campaign | None: ...
    async def list(self) -> Sequence[Campaign]:
        """Return all campaigns, the oldest first."""
        ...

    async def save(
        self,
        campaign: Campaign,
        event: CampaignChanged,
        now: float,
        rows: Sequence[CampaignRow] | None = None,
    ) -> Campaign:
        """Store the campaign with its generation raised, and a row of the journal; return it.

        `rows`: its nodes, from the start on; None leaves them unchanged. Raises `StaleWrite` if the
        campaign has changed since it was read.
        """
        ...

    async def list_rows(self, campaign_id: str) -> Sequence[CampaignRow]: ...
    async def list_active_rows(self) -> Sequence[CampaignRow]:
        """Return the nodes of all campaigns that were started and are not over."""
        ...

    async def put_rows(
        self,
        campaign: Campaign,
        rows: Sequence[CampaignRow],
        now: float,
        notices: Sequence[TenantNotice] = (),
    ) -> None:
        """Store the progress of nodes and the notices to their tenants.

        A notice that is already stored stays unchanged. Raises `StaleWrite` if the campaign has
        changed since it was read.
        """
        ...

    async def admit(
        self, campaign: Campaign, row: CampaignRow | None, node: Node, why: str, now: float
    ) -> Node:
        """Store the start of a node's upgrade and return the node.

        One transaction writes the node's row, the campaign's row of it, the revocation of its
        certificate and the journal. `row` None: a host that only makes room for a leaf. Raises
        `StaleWrite` if the node or the campaign has changed since it was read.
        """
        ...

    async def list_pins(self) -> Sequence[ReleasePin]: ...

    async def put_pin(self, pin: ReleasePin, now: float) -> None: ...
    async def drop_pin(self, pin: ReleasePin, now: float) -> None: ...
    async def list_notices(self, tenant: str = "") -> Sequence[TenantNotice]: ...
    async def put_notice(self, notice: TenantNotice) -> None:
        """Replace the notice with this id, after it was sent or accepted."""
        ...
