"""Forecast a campaign in virtual time: run `decide` as if every step took its estimated time. Pure.

The preview's dates and the benchmark's makespan both come from this forecast, which calls the same
function as a running campaign.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from provisioner.model.campaign import Campaign, CampaignNode, CampaignState, Hold, NodeProgress
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns.campaign_progress import (
    apply_decision,
    build_initial_rows,
    start_soak,
)
from provisioner.planning.campaigns.rollout import decide

TURNS_MAX = 200_000  # a node needs two turns; a forecast with more of them does not end


@dataclass(slots=True)
class Forecast:
    """The times at which nodes begin and are back in service, and the nodes that never begin."""

    began: dict[str, float] = field(default_factory=dict)
    back: dict[str, float] = field(default_factory=dict)
    stuck: dict[str, Hold] = field(default_factory=dict)  # held until an operator acts
    skipped: dict[str, str] = field(default_factory=dict)
    held: dict[str, Hold] = field(default_factory=dict)  # in the last turn before the end
    waited: dict[str, Hold] = field(default_factory=dict)  # by node: the last hold before it began
    stopped: tuple[Blocker, ...] = ()
    displaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by leaf
    waves: dict[str, int] = field(default_factory=dict)
    ends_at: float = 0.0
    turns: int = 0


def forecast_campaign(
    campaign: Campaign,
    facts: Sequence[CampaignNode],
    now: float,
    *,
    lasts_s: Callable[[CampaignNode], float] = lambda n: n.minutes * 60.0,
    grain_s: float = 1.0,
) -> Forecast:
    """Return the course of a campaign from `now` on, without failures and deferrals.

    `lasts_s` gives the duration of one node. Ends within `grain_s` seconds are handled together, as
    by a daemon that polls.
    """
    state = CampaignState.ROLLING_BACK if campaign.going_back else CampaignState.STARTED
    running = campaign.model_copy(update={"state": state, "started_at": now})
    rows: dict[str, NodeProgress] = build_initial_rows(running, facts)
    nodes = {n.name: n for n in facts}
    result = Forecast(waves={n: p.wave for n, p in rows.items()}, ends_at=now)
    ends: list[tuple[float, str]] = []
    for turn in range(TURNS_MAX):
        result.turns = turn
        while ends and ends[0][0] <= now:
            _, name = heapq.heappop(ends)
            rows[name] = start_soak(rows[name], now)
            result.back[name] = result.ends_at = now
        decision = decide(running, facts, rows, (), now)
        rows |= apply_decision(decision, rows, now)
        for admit in decision.admit:
            result.began[admit.node] = now
            if (hold := result.held.get(admit.node)) is not None:
                result.waited[admit.node] = hold
            result.displaced[admit.node] = admit.displaces
            heapq.heappush(ends, (now + lasts_s(nodes[admit.node]), admit.node))
        result.skipped |= decision.skip
        still_since = (running.still_since or now) if decision.standstill else 0.0
        if still_since != running.still_since:
            running = running.model_copy(update={"still_since": still_since})
        if decision.stop or decision.finished:
            result.stopped = decision.stop
            return result
        result.held = dict(decision.hold)
        times = [t for t in (decision.next_look_at,) if t > 0]
        if ends:
            times.append(ends[0][0])
        if not times:
            result.stuck = dict(decision.hold)
            return result
        at = min(times)
        now = at if at <= now else now + grain_s * -(-(at - now) // grain_s)
    raise AssertionError("a campaign does not end")
