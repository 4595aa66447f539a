"""Where campaigns, their nodes, pins and notices to tenants are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.campaign import Campaign
from provisioner.model.campaign_row import CampaignRow, ReleasePin
from provisioner.model.case import Notice
from provisioner.model.node import Node


class CampaignBook(Protocol):
    """Every method is one short transaction, on disk when it returns."""

    async def add_campaign(self, campaign: Campaign, by: str, now: float) -> Campaign: ...
    async def campaign(self, campaign_id: str) -> Campaign | None: ...
    async def campaigns(self) -> Sequence[Campaign]:
        """All of them, the oldest first."""
        ...

    async def save_campaign(
        self,
        campaign: Campaign,
        detail: Mapping[str, Any],
        now: float,
        rows: Sequence[CampaignRow] | None = None,
    ) -> Campaign:
        """The campaign with its generation raised, and a row of the journal.

        `rows`: its nodes, from the start on; None leaves them. `StaleWrite` if it changed since.
        """
        ...

    async def campaign_rows(self, campaign_id: str) -> Sequence[CampaignRow]: ...
    async def active_rows(self) -> Sequence[CampaignRow]:
        """Nodes of all campaigns that were started and are not over."""
        ...

    async def put_rows(
        self,
        campaign: Campaign,
        rows: Sequence[CampaignRow],
        now: float,
        notices: Sequence[Notice] = (),
    ) -> None:
        """What became of nodes, and what their tenants are told; `StaleWrite` if the campaign
        changed since it was read. A notice that was written before stays as it is."""
        ...

    async def admit(
        self, campaign: Campaign, row: CampaignRow | None, node: Node, why: str, now: float
    ) -> Node:
        """A node begins: its row, the campaign's row of it, the revocation of its certificate and
        the journal, all of it or nothing. `row` None: a host that only makes room for a leaf.

        `StaleWrite` if the node or the campaign changed since they were read.
        """
        ...

    async def pins(self) -> Sequence[ReleasePin]:
        """All, expired ones too."""
        ...

    async def put_pin(self, pin: ReleasePin, now: float) -> None: ...
    async def drop_pin(self, pin: ReleasePin, now: float) -> None: ...
    async def notices(self, tenant: str = "") -> Sequence[Notice]: ...
    async def put_notice(self, notice: Notice) -> None:
        """Replaces the one with this id: it was sent, or accepted."""
        ...
