"""Assign each node of a campaign to a wave: canaries, then increasing shares. Pure.

The waves are computed at the start and stored. Nodes that must wait for others by a rule between
versions, and hosts where switches are upgraded too, are in a later layer. Each layer has its own
canaries and waves, so that no node waits for one of a later wave. A wave's number is `layer *
waves_per_layer(policy) + place in the layer`; place 0 holds the canaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from provisioner.model.campaign import Campaign, CampaignNode, Policy
from provisioner.model.node import NodeKind
from provisioner.planning.campaigns.limits import count_allowed
from provisioner.planning.campaigns.outside_holds import find_outside_holds
from provisioner.planning.campaigns.rollout_terms import Situation


def waves_per_layer(policy: Policy) -> int:
    """Return the number of waves in a layer, canaries included."""
    return 1 + len(policy.waves)


def is_canary(policy: Policy, wave: int) -> bool:
    """Return whether a wave consists of canaries."""
    return wave % waves_per_layer(policy) == 0


def soak_s(campaign: Campaign, wave: int) -> int:
    """Return how long nodes of a wave are watched, in seconds; a rollback has no soak."""
    if campaign.going_back:
        return 0
    place = wave % waves_per_layer(campaign.policy)
    return campaign.policy.canary.soak_s if place == 0 else campaign.policy.waves[place - 1].soak_s


def wave_name(policy: Policy, wave: int) -> str:
    """Return the name of a wave: "canaries", "wave 2 of 3", with any layer after the first."""
    layer, place = divmod(wave, waves_per_layer(policy))
    name = f"wave {place} of {len(policy.waves)}" if place else "canaries"
    return f"{name}, layer {layer + 1}" if layer else name


def assign_waves(campaign: Campaign, facts: Sequence[CampaignNode]) -> dict[str, int]:
    """Return the wave of each selected node. A rollback has only the last wave, no canaries."""
    policy = campaign.policy
    by_name = sorted(facts, key=lambda n: n.name)
    crowded = find_outside_holds(Situation(campaign, by_name, {}, 0.0)).keys()
    wave_of: dict[str, int] = {}
    for layer, nodes in enumerate(_layers(facts)):
        base = layer * waves_per_layer(policy)
        if campaign.going_back:
            wave_of.update(dict.fromkeys((n.name for n in nodes), base + len(policy.waves)))
            continue
        canaries = choose_canaries(nodes, policy.canary.size, _clear(campaign, crowded))
        wave_of.update(dict.fromkeys(canaries, base))
        followers = [n for n in _spread(nodes) if n.name not in wave_of]
        ends = [count_allowed(w.upto, len(nodes)) for w in policy.waves]
        for number, node in enumerate(followers, start=len(canaries)):
            place = next(i for i, end in enumerate(ends, start=1) if number < end or i == len(ends))
            wave_of[node.name] = base + place
    return wave_of


def choose_canaries(
    nodes: Sequence[CampaignNode], size: int, clear: Callable[[CampaignNode], bool]
) -> list[str]:
    """Return the canaries: one of each profile and hardware revision, then varied racks and rails.

    Idle nodes are preferred. Nodes that cannot be admitted, or whose places other nodes fill, come
    last, because a canary that never begins proves nothing.
    """
    candidates = sorted(nodes, key=lambda n: n.name)
    sure = {n.name: clear(n) for n in candidates}
    covered: list[set[object]] = [set(), set(), set(), set(), set()]
    chosen: list[str] = []
    while candidates and len(chosen) < size:
        best = max(
            candidates, key=lambda n: (sure[n.name], *_count_new_traits(n, covered))
        )  # the first of equals
        candidates.remove(best)
        chosen.append(best.name)
        for trait, values in zip(covered, _traits(best), strict=True):
            trait.update(values)
    return chosen


def _clear(campaign: Campaign, crowded: Set[str]) -> Callable[[CampaignNode], bool]:
    policy = campaign.policy
    confirmed = set(campaign.one_way_confirmed)
    return lambda n: (
        n.in_service
        and n.name not in crowded
        and not n.blockers
        and set(n.one_way) <= confirmed
        and (policy.allow_irreversible or not n.irreversible)
    )


def _traits(node: CampaignNode) -> tuple[tuple[object, ...], ...]:
    return (
        ((node.profile, node.revision),),
        (node.profile,),
        (node.rack,),
        (*node.rails, *(("plane", p) for p in node.planes)),
        (node.unit,),
    )


def _count_new_traits(node: CampaignNode, covered: Sequence[set[object]]) -> tuple[int, ...]:
    """Return the number of new hardware kinds, idleness and new places that a node would add."""
    new = [len(set(values) - trait) for trait, values in zip(covered, _traits(node), strict=True)]
    return (new[1], new[0], int(node.idle), *new[2:])


def _layers(facts: Sequence[CampaignNode]) -> list[list[CampaignNode]]:
    """Return the selected nodes in layers, by the length of the chain of nodes before them.

    Where no rule says otherwise, switches go before hosts, so that no host is upgraded while its
    leaf may go down.
    """
    chosen = {n.name: n for n in facts if n.selected}
    depth: dict[str, int] = {}
    for name in chosen:
        _deepen(name, chosen, depth)
    switches = [n for n in chosen.values() if n.kind is NodeKind.SWITCH]
    wait_for_hosts = any(
        (earlier := chosen.get(a)) and earlier.kind is NodeKind.HOST
        for n in switches
        for a in n.after
    )
    if switches and not wait_for_hosts:
        deepest = max(depth[n.name] for n in switches)
        hosts = [n.name for n in chosen.values() if n.kind is NodeKind.HOST]
        if any(depth[h] <= deepest for h in hosts):
            depth |= {h: depth[h] + deepest + 1 for h in hosts}
    by_depth: dict[int, list[CampaignNode]] = {}
    for name in sorted(chosen):
        by_depth.setdefault(depth[name], []).append(chosen[name])
    return [by_depth[d] for d in sorted(by_depth)]


def _deepen(name: str, chosen: Mapping[str, CampaignNode], depth: dict[str, int]) -> None:
    """Compute the length of the longest chain before a node; a cycle is cut where it closes."""
    stack = [name]
    open_ = set()
    while stack:
        here = stack[-1]
        waits_for = [a for a in chosen[here].after if a in chosen]
        if here not in depth and here not in open_:
            open_.add(here)
            todo = [a for a in waits_for if a not in depth and a not in open_]
            if todo:
                stack += todo
                continue
        if here not in depth:
            depth[here] = 1 + max((depth[a] for a in waits_for if a in depth), default=-1)
        stack.pop()


def _spread(nodes: Sequence[CampaignNode]) -> list[CampaignNode]:
    """Order idle nodes first, and vary the places, so that a wave covers many of them."""
    racks: Counter[object] = Counter()
    units: Counter[object] = Counter()
    keyed = []
    for node in sorted(nodes, key=lambda n: n.name):
        rack = (node.idle, node.rack)
        unit = (node.idle, node.unit)
        keyed.append(((not node.idle, racks[rack], units[unit], node.name), node))
        racks[rack] += 1
        units[unit] += 1
    return [node for _, node in sorted(keyed, key=lambda k: k[0])]
