"""How a campaign would go if every step took its time: `decide` in virtual time. Pure.

The preview's dates come from here, and so does the benchmark's makespan: what is measured is the
very function that a running campaign asks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from provisioner.model.campaign import Campaign, CampaignNode, CampaignState, Hold, NodeProgress
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns.campaign_progress import after, begin, came_back
from provisioner.planning.campaigns.rollout import decide

TURNS_MAX = 200_000  # a node has two turns of its own; more is a circle


@dataclass(slots=True)
class Forecast:
    """When each node begins and is back, and what never begins."""

    began: dict[str, float] = field(default_factory=dict)
    back: dict[str, float] = field(default_factory=dict)
    stuck: dict[str, Hold] = field(default_factory=dict)  # held, and nothing will change by itself
    skipped: dict[str, str] = field(default_factory=dict)
    stopped: tuple[Blocker, ...] = ()
    displaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by leaf
    waves: dict[str, int] = field(default_factory=dict)
    ends_at: float = 0.0
    turns: int = 0


def forecast(
    campaign: Campaign,
    facts: Sequence[CampaignNode],
    now: float,
    *,
    lasts_s: Callable[[CampaignNode], float] = lambda n: n.minutes * 60.0,
    grain_s: float = 1.0,
) -> Forecast:
    """The whole campaign from `now` on, if nothing fails and nobody puts anything off.

    `grain_s`: ends within so many seconds are looked at together, as a daemon does that looks
    from time to time.
    """
    state = CampaignState.ROLLING_BACK if campaign.going_back else CampaignState.STARTED
    running = campaign.model_copy(update={"state": state, "started_at": now})
    rows: dict[str, NodeProgress] = begin(running, facts)
    nodes = {n.name: n for n in facts}
    found = Forecast(waves={n: p.wave for n, p in rows.items()}, ends_at=now)
    ends: list[tuple[float, str]] = []
    for turn in range(TURNS_MAX):
        found.turns = turn
        while ends and ends[0][0] <= now:
            _, name = heapq.heappop(ends)
            rows[name] = came_back(rows[name], now)
            found.back[name] = found.ends_at = now
        decision = decide(running, facts, rows, (), now)
        rows |= after(decision, rows, now)
        for admit in decision.admit:
            found.began[admit.node] = now
            found.displaced[admit.node] = admit.displaces
            heapq.heappush(ends, (now + lasts_s(nodes[admit.node]), admit.node))
        found.skipped |= decision.skip
        if decision.stop or decision.finished:
            found.stopped = decision.stop
            return found
        times = [t for t in (decision.next_look_at,) if t > 0]
        if ends:
            times.append(ends[0][0])
        if not times:
            found.stuck = dict(decision.hold)
            return found
        at = min(times)
        now = at if at <= now else now + grain_s * -(-(at - now) // grain_s)
    raise AssertionError("a campaign does not end")
