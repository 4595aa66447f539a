"""Decide which nodes of a campaign may begin now, and why the others may not. Pure.

`decide` is called after every change, and at `next_look_at`. It keeps no state: earlier decisions
are in `progress`, observations in `facts`. Its result does not depend on their order, a larger
limit never admits fewer nodes, and if any node may begin, at least one does. If none may and none
is under way, the decision says why (`standstill`); after `Policy.standstill_max_s` the campaign
ends without the nodes that wait, or stops if they are canaries.

One decision admits either hosts or switches, the kind with more candidates. Otherwise a host and
its leaf could be chosen together, and any choice between them would break one of these properties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from operator import attrgetter, itemgetter

from provisioner.model.campaign import (
    SETTLED,
    Campaign,
    CampaignNode,
    CampaignNotice,
    CampaignState,
    Decision,
    Hold,
    NodeProgress,
    Progress,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.limits import count_allowed
from provisioner.planning.campaigns.rollout_room import (
    Choice,
    choose_hosts,
    choose_switches,
    host_floor,
    switch_floor,
)
from provisioner.planning.campaigns.rollout_terms import Aside, Situation, Standing
from provisioner.planning.campaigns.waves import find_outside_holds, is_canary, soak_s, wave_name

# ------------------------------------------------------------------------------
# Conditions that stop a campaign: canaries, failure budget, circuit breaker, regressions. Pure.
#
# Causes that an operator has reviewed do not stop it again: failures before `judged_from`, and
# metrics accepted by name.


_UNBLOCK = "Look at the nodes that failed; then resume, roll back or abort the campaign."


def find_failures(campaign: Campaign, progress: Mapping[str, NodeProgress]) -> list[NodeProgress]:
    """Return the failures that count, oldest first."""
    rows = [
        p
        for p in progress.values()
        if p.state is Progress.FAILED and p.finished_at >= campaign.judged_from
    ]
    return sorted(rows, key=lambda p: (p.finished_at, p.node))


def compute_budget(campaign: Campaign, progress: Mapping[str, NodeProgress]) -> int:
    """Return how many nodes of the campaign may fail."""
    return count_allowed(campaign.policy.failure_budget, len(progress))


def find_stops(
    campaign: Campaign, progress: Mapping[str, NodeProgress], verdicts: Sequence[Blocker]
) -> tuple[Blocker, ...]:
    """Return every reason to stop the campaign; () if there is none."""
    policy = campaign.policy
    failed = find_failures(campaign, progress)
    reasons = [v for v in verdicts if v.subject not in campaign.accepted]
    canaries = [p for p in failed if is_canary(policy, p.wave)]
    if len(canaries) > policy.canary.failures:
        summary = f"{len(canaries)} canaries failed, {policy.canary.failures} may"
        reasons.append(_stop(campaign, f"{summary}: {_last(canaries)}"))
    most = compute_budget(campaign, progress)
    if len(failed) > most:
        summary = f"{len(failed)} of {len(progress)} nodes failed, the budget is {most}"
        reasons.append(_stop(campaign, f"{summary}: {_last(failed)}"))
    ended = nlargest(
        policy.breaker.of_last,
        (
            p
            for p in progress.values()
            if p.state in (Progress.SOAKING, Progress.DONE, Progress.FAILED)
            and p.finished_at >= campaign.judged_from
        ),
        key=lambda p: (p.finished_at, p.node),
    )[::-1]
    recent = [p for p in ended if p.state is Progress.FAILED]
    if len(recent) >= policy.breaker.failures:
        summary = f"{len(recent)} of the last {len(ended)} nodes failed"
        reasons.append(_stop(campaign, f"{summary}: {_last(recent)}"))
    for reason, times in sorted(Counter(p.reason for p in recent).items()):
        if times >= policy.breaker.same_reason:
            summary = f"{times} of the last {len(ended)} nodes failed in one way"
            reasons.append(_stop(campaign, f"{summary}: {reason}"))
    return tuple(reasons)


def _stop(campaign: Campaign, detail: str) -> Blocker:
    return Blocker(reason=Reason.BUDGET, subject=campaign.id, detail=detail, unblock=_UNBLOCK)


def _last(failed: Sequence[NodeProgress]) -> str:
    return f"last {failed[-1].node} ({failed[-1].reason or 'no reason given'})"


_BUDGET_SPENT = Hold(
    why="every node under way may still fail, and the strict budget has no more",
    unblock="It follows when they are done; if none is, look at those that failed.",
)
RUNNING = frozenset({CampaignState.STARTED, CampaignState.ROLLING_BACK})


def decide(
    campaign: Campaign,
    facts: Sequence[CampaignNode],
    progress: Mapping[str, NodeProgress],
    verdicts: Sequence[Blocker],
    now: float,
) -> Decision:
    """Return the campaign's next decision.

    `facts` covers the fleet, `progress` the campaign's nodes.

    `verdicts` are those of `regression.wave_verdict` for the upgraded nodes. A node of `progress`
    that is missing in `facts` is skipped.
    """
    here = Situation(campaign, sorted(facts, key=attrgetter("name")), progress, now)
    here.outside = find_outside_holds(here)
    mine = {n: p for n, p in progress.items() if n in here.by_name}
    missing = {
        n: "it is not in the fleet any more"
        for n, p in sorted((n, p) for n, p in progress.items() if n not in mine)
        if p.state not in SETTLED
    }
    done, fail, ends = _soaked(here, mine)
    ended = Decision(done=done, fail=fail, skip=missing)
    if campaign.state not in RUNNING:
        return _resting(campaign, mine, ended, ends)
    against = find_stops(campaign, progress, verdicts)
    if against:
        return ended.model_copy(update={"done": (), "stop": against})
    unsettled = {n: p for n, p in mine.items() if p.state not in SETTLED and n not in fail}
    waiting = {
        name: here.judge_node(name)
        for name, p in sorted(unsettled.items())
        if p.state not in (Progress.ADMITTED, Progress.SOAKING)
    }
    skip = missing | {n: s.skip for n, s in waiting.items() if s.skip}
    waiting = {n: s for n, s in waiting.items() if not s.skip}
    wave, barred = _open_wave(here, mine, waiting, set(done), set(skip))
    if barred is not None:
        return ended.model_copy(update={"stop": (barred,), "skip": skip})
    busy = [p for n, p in unsettled.items() if n not in waiting and n not in skip and n not in done]
    if not busy and all(s.aside is Aside.UNTIL_CHANGED for s in waiting.values()):
        skip |= _reasons(waiting)
        return ended.model_copy(update={"skip": skip, "finished": True, "wave": wave})
    choice = _choose(here, waiting, wave)
    hold = _holds(here, waiting, choice, wave)
    notices = _notices(here, waiting, wave)
    times = [*ends, *(h.until for h in hold.values() if h.until > now)]
    times += [n.earliest_at for n in notices]
    if choice.again or done or fail or skip:
        times.append(now)  # nodes that they held back follow in the next turn
    standstill = ""
    if waiting and not busy and not choice.admit and not times:
        standstill = _summarize(hold)
        end = (campaign.still_since or now) + campaign.policy.standstill_max_s
        if campaign.still_since and end <= now:
            return _give_up(here, mine, waiting, ended, hold, wave)
        times.append(end)
    return Decision(
        admit=choice.admit,
        hold=hold,
        notices=notices,
        done=done,
        fail=fail,
        skip=skip,
        wave=wave,
        standstill=standstill,
        next_look_at=min(times, default=0.0),
    )


def _give_up(
    here: Situation,
    mine: Mapping[str, NodeProgress],
    waiting: Mapping[str, Standing],
    ended: Decision,
    hold: Mapping[str, Hold],
    wave: int,
) -> Decision:
    """Return the end of a campaign that stood still for as long as its policy allows.

    It ends without the nodes that wait for nodes outside of it. It stops where a person has to
    decide: if canaries wait while other waves follow, or if anything else holds the nodes.
    """
    untried = is_canary(here.campaign.policy, wave) and wave < max(p.wave for p in mine.values())
    if not untried and all(s.aside is not Aside.NO for s in waiting.values()):
        return ended.model_copy(
            update={"skip": {**ended.skip, **_reasons(waiting)}, "finished": True, "wave": wave}
        )
    first = min(n for n in hold if mine[n].wave == wave)
    blocker = Blocker(
        reason=Reason.NO_ROOM,
        subject=here.campaign.id,
        detail=f"nothing may begin ({first}: {hold[first].why})",
        unblock=f"{hold[first].unblock} Then resume, or abort the campaign.",
    )
    return ended.model_copy(update={"stop": (blocker,)})


def _reasons(waiting: Mapping[str, Standing]) -> dict[str, str]:
    return {n: s.hold.why for n, s in waiting.items() if s.hold}


def _summarize(hold: Mapping[str, Hold]) -> str:
    """Return in one sentence why nothing may begin: the most frequent hold, and its remedy."""
    (why, unblock), count = Counter((h.why, h.unblock) for h in hold.values()).most_common(1)[0]
    return f"{count} of {len(hold)} nodes that wait: {why}. {unblock}"


def _resting(
    campaign: Campaign, mine: Mapping[str, NodeProgress], ended: Decision, ends: Sequence[float]
) -> Decision:
    """Return a decision that admits no node; in a paused campaign, soaks continue."""
    why = f"the campaign is {campaign.state.replace('_', ' ')}"
    if campaign.reason:
        why += f": {campaign.reason}"
    verb = "Start" if campaign.state is CampaignState.DRAFT else "Resume"
    held = Hold(why=why, unblock=f"{verb} the campaign.")
    hold = {
        n: held
        for n, p in sorted(mine.items())
        if p.state in (Progress.PENDING, Progress.NOTIFIED, Progress.DEFERRED)
    }
    if campaign.state is not CampaignState.PAUSED:
        return Decision(hold=hold)
    return ended.model_copy(update={"hold": hold, "next_look_at": min(ends, default=0.0)})


def _soaked(
    here: Situation, mine: Mapping[str, NodeProgress]
) -> tuple[tuple[str, ...], dict[str, str], list[float]]:
    """Return the nodes whose soak succeeded, those that failed, and the ends of other soaks."""
    done = []
    fail = {}
    ends = []
    soaking = [(n, p) for n, p in mine.items() if p.state is Progress.SOAKING]
    for name, p in sorted(soaking, key=itemgetter(0)):
        end = p.finished_at + soak_s(here.campaign, p.wave)
        if not here.by_name[name].in_service:
            fail[name] = "it fell out of service while it was watched"
        elif end <= here.now:
            done.append(name)
        else:
            ends.append(end)
    return tuple(done), fail, ends


def _open_wave(
    here: Situation,
    mine: Mapping[str, NodeProgress],
    waiting: Mapping[str, Standing],
    done: set[str],
    skipped: set[str],
) -> tuple[int, Blocker | None]:
    """Return the wave in progress, and the blocker against any later one.

    An opened wave stays open: a straggler of an earlier wave delays no other node.
    """
    waves: dict[int, list[NodeProgress]] = {}
    for p in mine.values():
        waves.setdefault(p.wave, []).append(p)
    begun = (Progress.ADMITTED, Progress.SOAKING, Progress.DONE, Progress.FAILED)
    opened = max((p.wave for p in mine.values() if p.state in begun), default=-1)
    for wave in sorted(waves):
        nodes = waves[wave]
        open_nodes = [
            p
            for p in nodes
            if p.node not in done
            and p.node not in skipped
            and p.state not in SETTLED
            and (p.node not in waiting or waiting[p.node].aside is Aside.NO)
        ]
        if open_nodes and wave >= opened:
            return wave, None
        if wave < opened or not is_canary(here.campaign.policy, wave):
            continue
        if any(p.state is Progress.DONE or p.node in done for p in nodes):
            continue
        if all(p.state is Progress.SKIPPED or p.node in skipped for p in nodes):
            continue
        if any(p.node in waiting and waiting[p.node].aside is Aside.FOR_A_TIME for p in nodes):
            return wave, None
        if wave == max(waves):
            return wave, None  # no wave follows
        return wave, _no_canary(here, nodes, waiting)
    return max(opened, max(waves, default=0)), None


def _no_canary(
    here: Situation, nodes: Sequence[NodeProgress], waiting: Mapping[str, Standing]
) -> Blocker:
    name = wave_name(here.campaign.policy, nodes[0].wave)
    first = min(p.node for p in nodes)
    held = waiting[first].hold if first in waiting else None
    why = f"{first}: {held.why if held else here.progress[first].reason}"
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=here.campaign.id,
        detail=f"none of the {name} came through ({why})",
        unblock="Remove what holds them and resume, or abort the campaign.",
    )


def _choose(here: Situation, waiting: Mapping[str, Standing], wave: int) -> Choice:
    ready = {n: s for n, s in waiting.items() if s.hold is None and here.progress[n].wave <= wave}
    most = None
    if here.campaign.policy.budget_strict:
        failed = len(find_failures(here.campaign, here.progress))
        most = max(0, compute_budget(here.campaign, here.progress) - failed - len(here.under_way))
    work = {
        n: here.by_name[n].minutes
        for n, s in waiting.items()
        if s.aside is Aside.NO and here.progress[n].wave <= wave
    }
    floor = host_floor(here)
    hosts = choose_hosts(floor, ready, work, most)
    switches = choose_switches(here, switch_floor(here), floor, ready, most, alone=not hosts.admit)
    if len(switches.admit) >= len(hosts.admit) and switches.admit:
        return switches.with_other(hosts)
    if most == 0:
        held = dict.fromkeys((*hosts.held, *switches.held), _BUDGET_SPENT)
        return Choice(held=held)
    return hosts.with_other(switches)


def _holds(
    here: Situation, waiting: Mapping[str, Standing], choice: Choice, wave: int
) -> dict[str, Hold]:
    admitted = {a.node for a in choice.admit}
    later: dict[int, Hold] = {}
    holds: dict[str, Hold] = {}
    for name, standing in waiting.items():
        if name in admitted:
            continue
        mine = here.progress[name].wave
        if mine > wave and standing.aside is Aside.NO:
            if mine not in later:
                name_of = wave_name(here.campaign.policy, wave)
                why = f"{wave_name(here.campaign.policy, mine)} waits for {name_of}"
                later[mine] = Hold(why=why, unblock="It begins when they are done and soaked.")
            holds[name] = later[mine]
        else:
            holds[name] = standing.hold or choice.held[name]
    return holds


def _notices(
    here: Situation, waiting: Mapping[str, Standing], wave: int
) -> tuple[CampaignNotice, ...]:
    upto = wave + here.campaign.policy.tenants.waves_ahead
    return tuple(
        notice
        for name, standing in waiting.items()
        if standing.aside is Aside.NO and here.progress[name].wave <= upto
        for notice in here.build_notices(here.by_name[name], here.progress[name])
    )
