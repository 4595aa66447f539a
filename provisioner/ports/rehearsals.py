"""The rehearsal of a campaign, outside of the daemon's process so that it does not delay its
work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.campaign import Campaign, CampaignRow
from provisioner.ports.storage import Store


class Rehearsals(Protocol):
    """Runs one rehearsal at a time; later callers wait."""

    async def rehearse(
        self, store: Store, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        """Return the result, in the form that `provisioner campaign rehearse --json` prints.

        `rows`: the campaign's nodes as of now; at most `hosts` of its hosts are simulated. Raises
        RehearsalFailed if the rehearsal does not finish.
        """
        ...


class RehearsalFailed(Exception):
    """The rehearsal did not finish; the text gives the reason, for people."""
