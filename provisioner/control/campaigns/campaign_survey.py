"""The fleet as a campaign finds it before its start: plans, measurements, what needs nothing."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from provisioner.control.campaigns.campaign_facts import Survey, read_fleet
from provisioner.model.campaign import Campaign, CampaignNode, NodeProgress
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, State
from provisioner.planning.campaigns.campaign_moves import IN_SERVICE
from provisioner.planning.campaigns.select_expression import select
from provisioner.planning.campaigns.ungranted_nodes import refuse_ungranted
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Store
from provisioner.ports.campaigns import CampaignRepository
from provisioner.settings import Settings

_SAMPLES_MAX = 4096  # newest of a profile


@dataclass(frozen=True)
class Surveyed:
    """The fleet as a campaign finds it. `rows`: its nodes; `already`: those that need nothing."""

    facts: tuple[CampaignNode, ...]
    rows: tuple[CampaignRow, ...]
    already: tuple[str, ...]


def find_selected(expression: str, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of a campaign; retired ones belong to none. Raises InputError."""
    return select(expression, [n for n in nodes if n.state is not State.RETIRED])


class FleetSurvey:
    """Reads the store; touches nothing."""

    def __init__(
        self,
        store: Store,
        book: CampaignRepository,
        settings: Settings,
        matrix: Matrix,
        held: Set[str] | None = None,
        plan: AddressPlan | None = None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._book = book
        self._survey = Survey(store, matrix, settings, held)

    async def read_fleet(self, campaign: Campaign, now: float) -> Surveyed:
        """Read everything that preview and start need."""
        nodes = await self._store.nodes.list()
        chosen = {n.id: n for n in find_selected(campaign.select, nodes)}
        planned = await self._survey.read_plans(nodes, frozenset(chosen), campaign.release)
        already = {
            name
            for name, (_, plan) in planned.items()
            if plan is not None
            and plan.done
            and chosen[name].release == campaign.release
            and chosen[name].state in IN_SERVICE
        }
        mine = {name: facts for name, (facts, _) in planned.items() if name not in already}
        before = await self._measured({f.profile for f in mine.values() if f.gpus})
        rows = tuple(
            CampaignRow(
                campaign=campaign.id,
                progress=NodeProgress(node=name),
                facts=facts,
                kind=chosen[name].kind,
                release_before=chosen[name].release,
                profile_before=chosen[name].profile,
                before=before.get(name, {}),
            )
            for name, facts in mine.items()
        )
        standing = read_fleet(nodes, campaign, rows, await self._book.list_pins(), now, self._plan)
        facts = refuse_ungranted(
            standing, {n.id: n for n in nodes}, await self._store.grants.list()
        )
        return Surveyed(facts, rows, tuple(sorted(already)))

    async def _measured(self, profiles: set[str]) -> dict[str, dict[str, float]]:
        measured: dict[str, dict[str, float]] = {}
        for profile in sorted(profiles):
            for sample in await self._store.cohorts.list_samples(profile, None, _SAMPLES_MAX):
                measured.setdefault(sample.node, dict(sample.measured))  # the newest come first
        return measured
