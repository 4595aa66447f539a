"""What a campaign would do, before it does anything: waves, cost, blast radius, refusals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignNode
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_forecast import Forecast, forecast
from provisioner.planning.campaigns.campaign_progress import begin
from provisioner.planning.campaigns.rollout_room import displaced, host_floor, lacks, switch_floor
from provisioner.planning.campaigns.rollout_terms import Aside, Situation
from provisioner.planning.campaigns.waves import wave_name
from provisioner.planning.campaigns.windows import NEVER


class Blast(Record):
    """Who feels it."""

    hosts: int = 0
    switches: int = 0
    gpus: int = 0  # of hosts, and of tenants' hosts below leaves
    tenants: tuple[str, ...] = ()
    rails: tuple[int, ...] = ()  # of leaves that go down
    planes: tuple[int, ...] = ()  # of switches that go down, if the address plan tells them
    racks: int = 0


class WavePreview(Record):
    """One wave. `begins_s` and `ends_s` count from the start of the campaign; -1: it never does."""

    number: int
    name: str
    nodes: tuple[str, ...]
    blast: Blast
    steps: int
    resets: int
    minutes: int  # of all its nodes together
    begins_s: float
    ends_s: float


class Preview(Record):
    """The whole campaign. `at_once`: the most that is out of service at one moment by it."""

    campaign: str
    release: str
    waves: tuple[WavePreview, ...]
    blast: Blast
    at_once: Blast
    steps: int
    resets: int
    minutes: int
    lasts_s: float  # by the plans' estimates, with windows, notices and soaks
    unchanged: tuple[str, ...]  # selected, and already there
    refused: Mapping[str, Blocker]  # every node that would not be upgraded, and why
    one_way: Mapping[str, tuple[str, ...]]  # "component version" -> nodes
    to_confirm: tuple[str, ...] = ()  # of `one_way`: what has to be agreed to before it starts
    stopped: tuple[Blocker, ...] = ()  # what would stop it although nothing failed


def preview(campaign: Campaign, facts: Sequence[CampaignNode], now: float) -> Preview:
    """What would happen if the campaign began now, nothing failed and nobody put anything off.

    Steps that nothing undoes are previewed as if they were confirmed, since no campaign starts
    before they are: `to_confirm` lists them. Nodes that would be refused are left out of the
    forecast, as a person would skip them.
    """
    one_way: dict[str, list[str]] = {}
    for node in (n for n in facts if n.selected):
        for step in node.one_way:
            one_way.setdefault(step, []).append(node.name)
    to_confirm = tuple(sorted(set(one_way) - set(campaign.one_way_confirmed)))
    agreed = (*campaign.one_way_confirmed, *to_confirm)
    campaign = campaign.model_copy(update={"one_way_confirmed": agreed})
    there = tuple(sorted(n.name for n in facts if n.selected and _there(n)))
    rest = [n.model_copy(update={"selected": False}) if n.name in set(there) else n for n in facts]
    no = refusals(campaign, rest, now)
    going = [n.model_copy(update={"selected": n.selected and n.name not in no}) for n in rest]
    seen = forecast(campaign, going, now)
    for name, hold in seen.stuck.items():
        no.setdefault(name, _no(name, Reason.NO_ROOM, hold.why, hold.unblock))
    by_name = {n.name: n for n in facts}
    nodes = [n for n in going if n.selected]
    waves: dict[int, list[CampaignNode]] = {}
    for node in nodes:
        waves.setdefault(seen.waves[node.name], []).append(node)
    return Preview(
        campaign=campaign.id,
        release=campaign.target,
        waves=tuple(
            _wave(campaign, number, waves[number], seen, now, by_name) for number in sorted(waves)
        ),
        blast=_blast(nodes, seen.displaced, by_name),
        at_once=_at_once(seen, by_name),
        steps=sum(n.steps for n in nodes),
        resets=sum(n.resets for n in nodes),
        minutes=sum(n.minutes for n in nodes),
        lasts_s=seen.ends_at - now,
        unchanged=there,
        refused=dict(sorted(no.items())),
        one_way={step: tuple(sorted(names)) for step, names in sorted(one_way.items())},
        to_confirm=to_confirm,
        stopped=seen.stopped,
    )


def refusals(campaign: Campaign, facts: Sequence[CampaignNode], now: float) -> dict[str, Blocker]:
    """Every selected node that would not begin, whatever the time and whoever else is out."""
    rows = begin(campaign, facts)
    here = Situation(campaign, sorted(facts, key=lambda n: n.name), rows, now)
    hosts, switches = host_floor(here), switch_floor(here)
    found: dict[str, Blocker] = {}
    for floor in (hosts, switches):
        for number, node in enumerate(floor.nodes):
            if not node.selected:
                continue
            said = _refused(here, node)
            closed = next(
                (
                    trees.groups[g].label
                    for trees in (floor.places, floor.owners)
                    for g in trees.paths[number]
                    if trees.groups[g].limit == 0
                ),
                "",
            )
            if said is not None:
                found[node.name] = said
            elif closed:
                why = f"{closed}: no node may be out of service"
                found[node.name] = _no(node.name, Reason.NO_ROOM, why, "Raise that limit.")
            elif hold := lacks(hosts, displaced(here, node), ever=True):
                found[node.name] = _no(node.name, Reason.NO_ROOM, hold.why, hold.unblock)
    return found


def _refused(here: Situation, node: CampaignNode) -> Blocker | None:
    if node.blockers:
        return node.blockers[0]
    standing = here.standing(node.name)
    if standing.aside is Aside.UNTIL_CHANGED and standing.hold:
        if not node.in_service:
            reason = Reason.PRECONDITION
        elif node.irreversible:
            reason = Reason.NOT_CONFIRMED
        else:
            reason = Reason.CONSTRAINT
        return _no(node.name, reason, standing.hold.why, standing.hold.unblock)
    if here.begins(here.tenants(node), node.minutes) == NEVER:
        why = f"it takes {node.minutes} minutes, and no window is so long"
        return _no(node.name, Reason.NO_ROOM, why, "Make a longer window.")
    return None


def _there(node: CampaignNode) -> bool:
    return not node.steps and not node.blockers and not node.after


def _no(name: str, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=name, detail=detail, unblock=unblock)


def _wave(
    campaign: Campaign,
    number: int,
    nodes: Sequence[CampaignNode],
    seen: Forecast,
    now: float,
    by_name: Mapping[str, CampaignNode],
) -> WavePreview:
    begins = [seen.began[n.name] - now for n in nodes if n.name in seen.began]
    ends = [seen.back[n.name] - now for n in nodes if n.name in seen.back]
    return WavePreview(
        number=number,
        name=wave_name(campaign.policy, number),
        nodes=tuple(sorted(n.name for n in nodes)),
        blast=_blast(nodes, seen.displaced, by_name),
        steps=sum(n.steps for n in nodes),
        resets=sum(n.resets for n in nodes),
        minutes=sum(n.minutes for n in nodes),
        begins_s=min(begins, default=-1.0),
        ends_s=max(ends, default=-1.0),
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


def _at_once(seen: Forecast, by_name: Mapping[str, CampaignNode]) -> Blast:
    """The moment with most GPUs out of service, then most nodes."""
    events = [(at, 1, n) for n, at in seen.began.items()] + [
        (at, 0, n) for n, at in seen.back.items()
    ]
    down: set[str] = set()
    best: tuple[int, int, frozenset[str]] = (0, 0, frozenset())
    gpus = 0
    for _, begins, name in sorted(events):
        cost = sum(by_name[h].gpus for h in {name, *seen.displaced.get(name, ())})
        down = down | {name} if begins else down - {name}
        gpus += cost if begins else -cost
        if (gpus, len(down)) > best[:2]:
            best = gpus, len(down), frozenset(down)
    return _blast([by_name[n] for n in sorted(best[2])], seen.displaced, by_name)
