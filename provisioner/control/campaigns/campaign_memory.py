"""What a campaign's turn keeps for the next one, so that a turn costs what changed.

The rows of 65,536 nodes take seconds to parse, and what they mean for a decision as long again.
Whoever else writes rows of a campaign raises its generation (`CampaignRepository.save`), and an
unchanged node is the same object (`Store.nodes`): what belongs to both is still true.

The rule that a reader would otherwise break: nothing here decides. Without it (after a restart,
after any failure) a turn reads everything, and comes to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from provisioner.control.campaigns.campaign_facts import rails_of, standing
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

    def early(self, campaign: Campaign, now: float, poll_s: float) -> bool:
        """Whether a turn would come too soon: a large campaign, and nobody else has changed it."""
        pace_s = len(self.rows) / NODES_PER_S
        soon = pace_s > poll_s and now - self.turned_at < pace_s
        return soon and campaign.generation == self.generation

    def facts(
        self,
        nodes: Sequence[Node],
        campaign: Campaign,
        pins: Sequence[ReleasePin],
        now: float,
        plan: AddressPlan | None,
    ) -> tuple[CampaignNode, ...]:
        """What `campaign_facts.fleet` says, looked at anew only for nodes that changed."""
        holding = tuple(p for p in pins if p.is_in_force(now))
        if holding != self._pins:
            self._known, self._pins = {}, holding
        changed = [
            n for n in nodes if (known := self._known.get(n.id)) is None or known[0] is not n
        ]
        if len(nodes) != len(self._known) or any(self._recabled(n) for n in changed):
            rails = rails_of(nodes)
            if rails != self._rails:
                self._known, self._rails = {}, rails
        found, before, rows = {}, self._known, self.rows
        for node in nodes:
            row, known = rows.get(node.id), before.get(node.id)
            planned = None if row is None else row.facts
            if known is None or known[0] is not node or known[1] is not planned:
                fact = standing(node, campaign, holding, row, self._rails, now, plan)
                known = node, planned, fact
            found[node.id] = known
        self._known = found
        return tuple([fact for n, _, fact in found.values() if n.state is not State.RETIRED])

    def _recabled(self, node: Node) -> bool:
        known = self._known.get(node.id)
        return known is None or known[0].ports != node.ports

    def wrote(self, rows: Sequence[CampaignRow]) -> None:
        """These rows are on disk now."""
        self.rows.update((row.node, row) for row in rows)
