"""The effects of a pause, a resumption or an abort on a campaign's nodes, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.campaign import SETTLED, UNDER_WAY, Campaign, Progress
from provisioner.model.campaign import CampaignState as S
from provisioner.model.campaign_row import CampaignRow

# the states in which each request is possible
POSSIBLE_IN: Mapping[str, tuple[S, ...]] = {
    "pause": (S.STARTED, S.ROLLING_BACK),
    "resume": (S.PAUSED, S.STOPPED),
    "abort": (S.DRAFT, S.STARTED, S.PAUSED, S.STOPPED, S.ROLLING_BACK),
    "accept": (S.STARTED, S.PAUSED, S.STOPPED),  # a metric that got worse
}


def describe_effects(word: str, campaign: Campaign, rows: Sequence[CampaignRow]) -> tuple[str, ...]:
    """Return what the request would do to the campaign's nodes; `word`: pause, resume
    or abort.
    """
    states = [row.progress.state for row in rows]
    under_way = sum(s in UNDER_WAY for s in states)
    begun = {*SETTLED, *UNDER_WAY, Progress.SOAKING}
    waiting = sum(s not in begun for s in states)
    if word == "abort" and campaign.state is S.DRAFT:
        return ("It has touched no node. It cannot be started any more.",)
    ends = f"{_count(under_way)} under way: each is finished."
    match word:
        case "pause":
            return (ends, f"{_count(waiting)} not begun: none begins until it is resumed.")
        case "abort":
            return (ends, f"{_count(waiting)} not begun: they stay as they are, for good.")
    lines = (f"{_count(waiting)} may begin, within its limits and windows.",)
    failed = states.count(Progress.FAILED)
    if campaign.state is S.STOPPED and failed:
        return (*lines, f"{_count(failed)} failed so far: no reason to stop it again.")
    return lines


def _count(nodes: int) -> str:
    return f"{nodes} node" if nodes == 1 else f"{nodes} nodes"
