"""Compare what a campaign takes at once with the most that any choice could, where domains cross.

Nested domains are exact (`packing.py`). Where domains cross, say racks that stand in two units,
hosts are chosen one by one, which may be fewer than the largest possible choice. The preview shows
both figures: the hosts that one decision takes, and a bound that no choice exceeds. For the bound
some kinds of domains are left out until the rest are nested, which admits at least as many; of all
such ways the one that admits the fewest counts. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignNode
from provisioner.model.campaign_policy import Domain, Policy
from provisioner.planning.campaigns.campaign_progress import build_initial_rows
from provisioner.planning.campaigns.limits import host_places, list_spots
from provisioner.planning.campaigns.rollout_room import (
    Floor,
    build_floor,
    choose_hosts,
    host_floor,
)
from provisioner.planning.campaigns.rollout_terms import READY, Situation

_PLACES = (Domain.RACK, Domain.SCALABLE_UNIT, Domain.LEAF)


class Crossing(Record):
    """The hosts that begin at once if only limits decide, and the most that could."""

    taken: int
    at_most: int  # no choice of hosts exceeds it; the largest choice may be smaller
    domains: tuple[str, ...]  # with limits, of which some cross


def measure_crossing(
    campaign: Campaign, facts: Sequence[CampaignNode], now: float
) -> Crossing | None:
    """Return both figures of the selected hosts; None if no domains cross."""
    ordered = sorted(facts, key=lambda n: n.name)
    here = Situation(campaign, ordered, build_initial_rows(campaign, ordered), now)
    floor = host_floor(here)
    if floor.flat is None or not floor.places.flat:
        return None
    work = {n.name: n.minutes for n in floor.nodes if n.selected and n.in_service}
    limits = campaign.policy.limits
    return Crossing(
        taken=_count_chosen(floor, work),
        at_most=min(
            _count_chosen(relaxed, work) for relaxed in _list_nested_floors(campaign.policy, floor)
        ),
        domains=tuple(domain.value for domain in _PLACES if domain in limits),
    )


def _count_chosen(floor: Floor, work: dict[str, int]) -> int:
    return len(choose_hosts(floor, dict.fromkeys(work, READY), work, None).admit)


def _list_nested_floors(policy: Policy, floor: Floor) -> Iterator[Floor]:
    """Yield the floor under each largest part of the limits whose domains are nested."""
    limited = [domain for domain in _PLACES if domain in policy.limits]
    spots = list_spots(floor.nodes)
    out = [i for i, n in enumerate(floor.nodes) if not n.in_service]
    nested: list[frozenset[Domain]] = []
    for count in range(len(limited), -1, -1):
        for kept in map(frozenset, combinations(limited, count)):
            if any(kept < larger for larger in nested):
                continue
            places = host_places(spots, _leave_out(policy, set(limited) - kept))
            if not places.flat:
                nested.append(kept)
                yield build_floor(floor.nodes, places, floor.owners, out)


def _leave_out(policy: Policy, domains: Collection[Domain]) -> Policy:
    limits = {domain: limit for domain, limit in policy.limits.items() if domain not in domains}
    return policy.model_copy(update={"limits": limits})
