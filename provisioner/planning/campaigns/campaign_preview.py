"""Preview a campaign before it starts: waves, cost, blast radius and refusals. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from provisioner.model.base import Record
from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignState,
    Domain,
    Hold,
    NodeProgress,
    Policy,
)
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_moves import (
    apply_decision,
    build_initial_rows,
    start_soak,
)
from provisioner.planning.campaigns.campaign_policy_text import NEVER
from provisioner.planning.campaigns.limits import host_places, list_spots
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.campaigns.rollout_room import (
    Floor,
    build_floor,
    choose_hosts,
    find_displaced,
    find_missing_room,
    host_floor,
    switch_floor,
)
from provisioner.planning.campaigns.rollout_terms import READY, Aside, Situation
from provisioner.planning.campaigns.waves import wave_name

# ------------------------------------------------------------------------------
# Forecast a campaign in virtual time: run `decide` as if every step took its estimated time. Pure.
#
# The preview's dates and the benchmark's makespan both come from this forecast, which calls the
# same function as a running campaign.


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


# ------------------------------------------------------------------------------
# Compare what a campaign takes at once with the most that any choice could, where domains cross.
#
# Nested domains are exact (`rollout_room.py`). Where domains cross, say racks that stand in two
# units, hosts are chosen one by one, which may be fewer than the largest possible choice. The
# preview shows both figures: the hosts that one decision takes, and a bound that no choice
# exceeds. For the bound some kinds of domains are left out until the rest are nested, which admits
# at least as many; of all such ways the one that admits the fewest counts. Pure.


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


class Blast(Record):
    """The hardware and the tenants that are affected."""

    hosts: int = 0
    switches: int = 0
    gpus: int = 0  # of hosts, and of tenants' hosts below leaves
    tenants: tuple[str, ...] = ()
    rails: tuple[int, ...] = ()  # of leaves that go down
    planes: tuple[int, ...] = ()  # of switches that go down, if the address plan has planes
    racks: int = 0


class WavePreview(Record):
    """One wave.

    `begins_s` and `ends_s` count from the start of the campaign; None means never.
    """

    number: int
    name: str
    nodes: tuple[str, ...]
    blast: Blast
    steps: int
    resets: int
    minutes: int  # of all its nodes together
    begins_s: float | None
    ends_s: float | None


class Preview(Record):
    """The whole campaign. `at_once` is the most that it takes out of service at one moment."""

    campaign: str
    release: str
    waves: tuple[WavePreview, ...]
    blast: Blast
    at_once: Blast
    steps: int
    resets: int
    minutes: int
    lasts_s: float  # by the plans' estimates, with windows, notices and soaks
    unchanged: tuple[str, ...]  # selected nodes that run the release already
    refused: Mapping[str, Blocker]  # every node that would not be upgraded, and why
    one_way: Mapping[str, tuple[str, ...]]  # "component version" -> nodes
    to_confirm: tuple[str, ...] = ()  # steps of `one_way` that are not confirmed yet
    bound_by: str = ""  # why it does not end earlier: the course of the node that is back last
    stopped: tuple[Blocker, ...] = ()  # causes that would stop it without any failure
    crossing: Crossing | None = None  # where limits' domains cross: what it takes, what could be


def preview_campaign(campaign: Campaign, facts: Sequence[CampaignNode], now: float) -> Preview:
    """Return the course of a campaign that begins now, without failures and deferrals.

    Irreversible steps are previewed as if they were confirmed, since no campaign starts before they
    are; `to_confirm` lists them. Refused nodes are left out of the forecast.
    """
    one_way: dict[str, list[str]] = {}
    for node in (n for n in facts if n.selected):
        for step in node.one_way:
            one_way.setdefault(step, []).append(node.name)
    to_confirm = tuple(sorted(set(one_way) - set(campaign.one_way_confirmed)))
    agreed = (*campaign.one_way_confirmed, *to_confirm)
    campaign = campaign.model_copy(update={"one_way_confirmed": agreed})
    unchanged = tuple(sorted(n.name for n in facts if n.selected and _is_unchanged(n)))
    candidates = [
        n.model_copy(update={"selected": False}) if n.name in set(unchanged) else n for n in facts
    ]
    refusals = find_refusals(campaign, candidates, now)
    going = [
        n.model_copy(update={"selected": n.selected and n.name not in refusals}) for n in candidates
    ]
    course = forecast_campaign(campaign, going, now)
    for name, hold in course.stuck.items():
        refusals.setdefault(name, _no(name, Reason.NO_ROOM, hold.why, hold.unblock))
    for name, why in course.skipped.items():
        hold = course.held.get(name, Hold(why=why, unblock="Try it again once that is over."))
        refusals.setdefault(name, _no(name, Reason.NO_ROOM, hold.why, hold.unblock))
    by_name = {n.name: n for n in facts}
    nodes = [n for n in going if n.selected]
    waves: dict[int, list[CampaignNode]] = {}
    for node in nodes:
        waves.setdefault(course.waves[node.name], []).append(node)
    return Preview(
        campaign=campaign.id,
        release=campaign.target,
        waves=tuple(
            _wave(campaign, number, waves[number], course, now, by_name) for number in sorted(waves)
        ),
        blast=_blast(nodes, course.displaced, by_name),
        at_once=_at_once(course, by_name),
        steps=sum(n.steps for n in nodes),
        resets=sum(n.resets for n in nodes),
        minutes=sum(n.minutes for n in nodes),
        lasts_s=course.ends_at - now,
        unchanged=unchanged,
        refused=dict(sorted(refusals.items())),
        one_way={step: tuple(sorted(names)) for step, names in sorted(one_way.items())},
        to_confirm=to_confirm,
        bound_by=_describe_bound(course, by_name),
        stopped=course.stopped,
        crossing=measure_crossing(campaign, going, now),
    )


def _describe_bound(course: Forecast, by_name: Mapping[str, CampaignNode]) -> str:
    """Return in one sentence why the node that is back last is not back earlier."""
    if not course.back:
        never = course.stuck or course.held
        if not never:
            return "No node begins."
        name = min(never)
        return f"{name} never begins: {never[name].why.rstrip('.')}."
    last = max(course.back, key=lambda name: (course.back[name], name))
    minutes = by_name[last].minutes
    hold = course.waited.get(last)
    if hold is None:
        return f"{last} begins at once, and its own steps take {minutes} minutes."
    why = hold.why.rstrip(".")
    return f"{last} is back last: it waits ({why}), then its steps take {minutes} minutes."


def find_refusals(
    campaign: Campaign, facts: Sequence[CampaignNode], now: float
) -> dict[str, Blocker]:
    """Return every selected node that could never begin, independent of time and of other nodes."""
    rows = build_initial_rows(campaign, facts)
    here = Situation(campaign, sorted(facts, key=lambda n: n.name), rows, now)
    hosts = host_floor(here)
    switches = switch_floor(here)
    blockers: dict[str, Blocker] = {}
    for floor in (hosts.flat or hosts, switches.flat or switches):
        for number, node in enumerate(floor.nodes):
            if not node.selected:
                continue
            blocker = _refused(here, node)
            closed = next(
                (
                    trees.groups[g].label
                    for trees in (floor.places, floor.owners)
                    for g in trees.paths[number]
                    if trees.groups[g].limit == 0
                ),
                "",
            )
            if blocker is not None:
                blockers[node.name] = blocker
            elif closed:
                why = f"{closed}: no node may be out of service"
                blockers[node.name] = _no(node.name, Reason.NO_ROOM, why, "Raise that limit.")
            elif hold := find_missing_room(hosts, find_displaced(here, node), ever=True):
                blockers[node.name] = _no(node.name, Reason.NO_ROOM, hold.why, hold.unblock)
    return blockers


def _refused(here: Situation, node: CampaignNode) -> Blocker | None:
    if node.blockers:
        return node.blockers[0]
    standing = here.judge_node(node.name)
    if standing.aside is Aside.UNTIL_CHANGED and standing.hold:
        if not node.in_service:
            reason = Reason.PRECONDITION
        elif node.irreversible:
            reason = Reason.NOT_CONFIRMED
        else:
            reason = Reason.CONSTRAINT
        return _no(node.name, reason, standing.hold.why, standing.hold.unblock)
    if here.find_begin(here.find_tenants(node), node.minutes) == NEVER:
        why = f"it takes {node.minutes} minutes, and no window is so long"
        return _no(node.name, Reason.NO_ROOM, why, "Make a longer window.")
    return None


def _is_unchanged(node: CampaignNode) -> bool:
    return not node.steps and not node.blockers and not node.after


def _no(name: str, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=name, detail=detail, unblock=unblock)


def _wave(
    campaign: Campaign,
    number: int,
    nodes: Sequence[CampaignNode],
    course: Forecast,
    now: float,
    by_name: Mapping[str, CampaignNode],
) -> WavePreview:
    begins = [course.began[n.name] - now for n in nodes if n.name in course.began]
    ends = [course.back[n.name] - now for n in nodes if n.name in course.back]
    return WavePreview(
        number=number,
        name=wave_name(campaign.policy, number),
        nodes=tuple(sorted(n.name for n in nodes)),
        blast=_blast(nodes, course.displaced, by_name),
        steps=sum(n.steps for n in nodes),
        resets=sum(n.resets for n in nodes),
        minutes=sum(n.minutes for n in nodes),
        begins_s=min(begins, default=None),
        ends_s=max(ends, default=None),
    )


def _blast(
    nodes: Iterable[CampaignNode],
    takes: Mapping[str, tuple[str, ...]],
    by_name: Mapping[str, CampaignNode],
) -> Blast:
    down = {n.name: n for n in nodes}
    below = {h: by_name[h] for name in down for h in takes.get(name, ())}
    hosts = [n for n in down.values() if n.kind is NodeKind.HOST]
    felt = {n.name: n for n in hosts} | below
    switches = [n for n in down.values() if n.kind is NodeKind.SWITCH]
    tenants = {n.tenant for n in felt.values() if n.tenant}
    tenants |= {
        n.tenant for n in by_name.values() if n.tenant and any(s.name in n.leaves for s in switches)
    }
    return Blast(
        hosts=len(hosts),
        switches=len(switches),
        gpus=sum(n.gpus for n in felt.values()),
        tenants=tuple(sorted(tenants)),
        rails=tuple(sorted({r for n in switches for r in n.rails})),
        planes=tuple(sorted({p for n in switches for p in n.planes})),
        racks=len({n.rack for n in down.values() if n.rack}),
    )


def _at_once(course: Forecast, by_name: Mapping[str, CampaignNode]) -> Blast:
    """Return the moment with the most GPUs out of service, then the most nodes."""
    events = [(at, 1, n) for n, at in course.began.items()] + [
        (at, 0, n) for n, at in course.back.items()
    ]
    down: set[str] = set()
    best: tuple[int, int, frozenset[str]] = (0, 0, frozenset())
    gpus = 0
    for _, begins, name in sorted(events):
        cost = sum(by_name[h].gpus for h in {name, *course.displaced.get(name, ())})
        down = down | {name} if begins else down - {name}
        gpus += cost if begins else -cost
        if (gpus, len(down)) > best[:2]:
            best = gpus, len(down), frozenset(down)
    return _blast([by_name[n] for n in sorted(best[2])], course.displaced, by_name)
