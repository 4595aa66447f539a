"""Compares every node's row with its leaves while nothing may be written, until all is settled.

Rule: this only reads leaves. What a person must decide waits in the store; a node outside of any
customer's network is settled by the rule that it is erased before anybody gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.campaign import CampaignState
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import Difference, DifferenceKind, Word
from provisioner.model.tenant import PortPlacement
from provisioner.planning.watch.recovery import compare, settle_by_rule
from provisioner.ports import Clock, StaleWrite, Store
from provisioner.ports.campaigns import CampaignBook
from provisioner.ports.recovery import RecoveryBook

log = logging.getLogger(__name__)

ROUND_S = 60.0  # a leaf that was silent is asked again; a person takes longer to decide
LOOKS_MAX = 64  # nodes at once; nodes on the same leaves share a look
PROGRESS_S = 2.0  # how often it is looked whether the restore is settled
SURVEYOR = "the daemon"


class Recovery:
    """`run` returns once a person says that everything is settled."""

    def __init__(
        self,
        store: Store,
        book: RecoveryBook,
        clock: Clock,
        tenancy: Tenancy,
        campaigns: CampaignBook | None = None,
    ) -> None:
        self._store = store
        self._book = book
        self._clock = clock
        self._tenancy = tenancy
        self._campaigns = campaigns

    async def run(self) -> None:
        """Survey again and again, until nothing keeps the daemon from acting."""
        await self._pause_campaigns()
        due = 0.0
        while await self._book.look_only():
            if self._clock.now() >= due:
                waiting = await self.survey()
                log.warning("nothing is written to any device: %d differences wait", waiting)
                due = self._clock.now() + ROUND_S
            await self._clock.sleep(PROGRESS_S)

    async def survey(self) -> int:
        """Compare every host once, and apply the rule; how many differences wait for a word."""
        tenants = {t.vrf: t.name for t in await self._store.tenants()}
        settled = {d.subject for d in await self._book.differences() if d.settled is not None}
        hosts = [
            n for n in await self._store.nodes() if n.kind is NodeKind.HOST and n.id not in settled
        ]
        found: list[Difference] = []
        for start in range(0, len(hosts), LOOKS_MAX):
            batch = hosts[start : start + LOOKS_MAX]
            read = await asyncio.gather(*(self._tenancy.read(n.ports) for n in batch))
            for node, seen in zip(batch, read, strict=True):
                difference = await self._compared(node, seen, tenants)
                if difference is not None:
                    found.append(difference)
        await self._book.put_survey(found, self._clock.now())
        return len(found)

    async def _pause_campaigns(self) -> None:
        """Let no campaign go on by itself: whom it gave notice since is not known."""
        if self._campaigns is None:
            return
        for campaign in await self._campaigns.campaigns():
            if campaign.state in (CampaignState.STARTED, CampaignState.ROLLING_BACK):
                paused = {"state": CampaignState.PAUSED, "reason": "writes were lost"}
                changed = campaign.model_copy(update=paused)
                await self._campaigns.save_campaign(changed, {"by": SURVEYOR}, self._clock.now())

    async def _compared(
        self, node: Node, seen: Sequence[PortPlacement] | Blocker, tenants: dict[str, str]
    ) -> Difference | None:
        """What waits for a word; None where rows and world agree, or where the rule settles it."""
        now = self._clock.now()
        difference = compare(node, seen, tenants, now)
        if difference is None or difference.kind is not DifferenceKind.OUTSIDE:
            return difference
        word = {"settled": Word.RULE, "settled_by": SURVEYOR, "settled_at": now}
        try:
            await self._book.settle(
                difference.model_copy(update=word), settle_by_rule(node, difference, now)
            )
        except StaleWrite:
            return difference  # somebody changed it just now: the next survey sees it
        return None
