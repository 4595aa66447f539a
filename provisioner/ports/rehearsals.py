"""Where a campaign is rehearsed: somewhere that does not keep the daemon from its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.campaign import Campaign
from provisioner.model.campaign_row import CampaignRow
from provisioner.ports.storage import Store


class Rehearsals(Protocol):
    """One at a time; whoever comes second waits."""

    async def rehearse(
        self, store: Store, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        """What came of it, as `provisioner campaign rehearse --json` tells it.

        `rows`: what the campaign would mean now; at most `hosts` of its hosts are simulated.
        Raises RehearsalFailed if it came to no end.
        """
        ...


class RehearsalFailed(Exception):
    """It came to no end; the text says why, for people."""
