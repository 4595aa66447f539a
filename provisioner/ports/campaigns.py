"""The store of campaigns, their nodes, release pins, and notices to tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from provisioner.model.campaign import Campaign
from provisioner.model.campaign_row import CampaignRow, ReleasePin
from provisioner.model.case import TenantNotice
from provisioner.model.events.fleet_events import CampaignChanged
from provisioner.model.node import Node


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

    async def list_pins(self) -> Sequence[ReleasePin]:
        """Return all pins, including expired ones."""
        ...

    async def put_pin(self, pin: ReleasePin, now: float) -> None: ...
    async def drop_pin(self, pin: ReleasePin, now: float) -> None: ...
    async def list_notices(self, tenant: str = "") -> Sequence[TenantNotice]: ...
    async def put_notice(self, notice: TenantNotice) -> None:
        """Replace the notice with this id, after it was sent or accepted."""
        ...
