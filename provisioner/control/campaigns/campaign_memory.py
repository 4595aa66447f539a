"""The memory that a campaign's turn leaves for the next one, so that a turn costs only the changes.

The rows of 65,536 nodes take seconds to parse, and to interpret for a decision as long again.
Every other writer of a campaign's rows raises its generation (`CampaignRepository.save`), and an
unchanged node is the same object (`Store.nodes`): results that belong to both are still valid.

The memory decides nothing. Without it (after a restart, after any failure) a turn reads everything,
and reaches the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from provisioner.control.campaigns.campaign_facts import rails_of, read_standing
from provisioner.model.campaign import Campaign, CampaignNode
from provisioner.model.campaign_row import CampaignRow, ReleasePin
from provisioner.model.node import Node, State
from provisioner.planning.places.address_plan import AddressPlan

# A turn over n nodes takes some n / 40,000 s of CPU: so much apart it is 1 % of a core, and a place
# that becomes free waits two minutes on average where 65,536 nodes take an hour each.
NODES_PER_S = 250


@dataclass(slots=True)
class Memory:
    """Of one campaign at one generation. `rows` are as they are on disk."""

    generation: int
    rows: dict[str, CampaignRow]
    turned_at: float = 0.0
    _known: dict[str, tuple[Node, CampaignNode | None, CampaignNode]] = field(default_factory=dict)
    _pins: tuple[ReleasePin, ...] = ()
    _rails: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def is_early(self, campaign: Campaign, now: float, poll_s: float) -> bool:
        """Return whether a turn would come too soon: a large campaign that no other writer has
        changed.
        """
        pace_s = len(self.rows) / NODES_PER_S
        soon = pace_s > poll_s and now - self.turned_at < pace_s
        return soon and campaign.generation == self.generation

    def read_facts(
        self,
        nodes: Sequence[Node],
        campaign: Campaign,
        pins: Sequence[ReleasePin],
        now: float,
        plan: AddressPlan | None,
    ) -> tuple[CampaignNode, ...]:
        """Return the result of `campaign_facts.fleet`, computed anew only for nodes that
        changed.
        """
        holding = tuple(p for p in pins if p.is_in_force(now))
        if holding != self._pins:
            self._known = {}
            self._pins = holding
        changed = [
            n for n in nodes if (entry := self._known.get(n.id)) is None or entry[0] is not n
        ]
        if len(nodes) != len(self._known) or any(self._recabled(n) for n in changed):
            rails = rails_of(nodes)
            if rails != self._rails:
                self._known = {}
                self._rails = rails
        cached = {}
        before = self._known
        rows = self.rows
        for node in nodes:
            row = rows.get(node.id)
            entry = before.get(node.id)
            planned = None if row is None else row.facts
            if entry is None or entry[0] is not node or entry[1] is not planned:
                fact = read_standing(node, campaign, holding, row, self._rails, now, plan)
                entry = node, planned, fact
            cached[node.id] = entry
        self._known = cached
        return tuple([fact for n, _, fact in cached.values() if n.state is not State.RETIRED])

    def _recabled(self, node: Node) -> bool:
        entry = self._known.get(node.id)
        return entry is None or entry[0].ports != node.ports

    def note_written(self, rows: Sequence[CampaignRow]) -> None:
        """Record that these rows are stored now."""
        self.rows.update((row.node, row) for row in rows)
