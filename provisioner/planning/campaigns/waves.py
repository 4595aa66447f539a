"""Which wave each node of a campaign is in: canaries, then ever larger shares. Pure.

Written down at the start and kept. Nodes that must wait for others by a rule between versions, and
hosts where switches are upgraded too, come in a later layer; each layer has canaries and waves of
its own, so that nothing waits for a node of a later wave. A wave's number is
`layer * waves_per_layer(policy) + place in the layer`; place 0 are the canaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from provisioner.model.campaign import Campaign, CampaignNode
from provisioner.model.campaign_policy import Policy
from provisioner.model.node import NodeKind
from provisioner.planning.campaigns.limits import allowed


def waves_per_layer(policy: Policy) -> int:
    """Canaries and waves."""
    return 1 + len(policy.waves)


def is_canary(policy: Policy, wave: int) -> bool:
    return wave % waves_per_layer(policy) == 0


def soak_s(campaign: Campaign, wave: int) -> int:
    """How long nodes of a wave are watched; a way back is not soaked."""
    if campaign.going_back:
        return 0
    place = wave % waves_per_layer(campaign.policy)
    return campaign.policy.canary.soak_s if place == 0 else campaign.policy.waves[place - 1].soak_s


def wave_name(policy: Policy, wave: int) -> str:
    """Words for a wave: "canaries", "wave 2 of 3", with the layer if it is not the first."""
    layer, place = divmod(wave, waves_per_layer(policy))
    name = f"wave {place} of {len(policy.waves)}" if place else "canaries"
    return f"{name}, layer {layer + 1}" if layer else name


def assign(campaign: Campaign, facts: Sequence[CampaignNode]) -> dict[str, int]:
    """Node -> wave, of the selected nodes. A way back has no canaries: all are in the last wave."""
    policy = campaign.policy
    found: dict[str, int] = {}
    for layer, nodes in enumerate(_layers(facts)):
        base = layer * waves_per_layer(policy)
        if campaign.going_back:
            found.update(dict.fromkeys((n.name for n in nodes), base + len(policy.waves)))
            continue
        canaries = canary_set(nodes, policy.canary.size, _clear(campaign))
        found.update(dict.fromkeys(canaries, base))
        rest = [n for n in _spread(nodes) if n.name not in found]
        ends = [allowed(w.upto, len(nodes)) for w in policy.waves]
        for number, node in enumerate(rest, start=len(canaries)):
            place = next(i for i, end in enumerate(ends, start=1) if number < end or i == len(ends))
            found[node.name] = base + place
    return found


def canary_set(
    nodes: Sequence[CampaignNode], size: int, clear: Callable[[CampaignNode], bool]
) -> list[str]:
    """The canaries: each profile and hardware revision, idle ones first, then racks and rails.

    Nodes that could not be admitted anyway are taken last: a canary that cannot fly tells nothing.
    """
    left = sorted(nodes, key=lambda n: n.name)
    sure = {n.name: clear(n) for n in left}
    seen: list[set[object]] = [set(), set(), set(), set(), set()]
    chosen: list[str] = []
    while left and len(chosen) < size:
        best = max(left, key=lambda n: (sure[n.name], *_news(n, seen)))  # the first of equals
        left.remove(best)
        chosen.append(best.name)
        for known, values in zip(seen, _traits(best), strict=True):
            known.update(values)
    return chosen


def _clear(campaign: Campaign) -> Callable[[CampaignNode], bool]:
    policy, confirmed = campaign.policy, set(campaign.one_way_confirmed)
    return lambda n: (
        n.in_service
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


def _news(node: CampaignNode, seen: Sequence[set[object]]) -> tuple[int, ...]:
    """What it would add to those chosen: kinds of hardware, then being idle, then places."""
    new = [len(set(values) - known) for known, values in zip(seen, _traits(node), strict=True)]
    return (new[1], new[0], int(node.idle), *new[2:])


def _layers(facts: Sequence[CampaignNode]) -> list[list[CampaignNode]]:
    """Selected nodes by how many others they have to wait for in a row.

    Between switches and hosts, where no rule says otherwise, switches go first: never is a host
    upgraded while its leaf may go down.
    """
    chosen = {n.name: n for n in facts if n.selected}
    depth: dict[str, int] = {}
    for name in chosen:
        _deepen(name, chosen, depth)
    switches = [n for n in chosen.values() if n.kind is NodeKind.SWITCH]
    wait_for_hosts = any(
        (other := chosen.get(a)) and other.kind is NodeKind.HOST for n in switches for a in n.after
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
    """The length of the longest chain before a node; a circle ends where it closes."""
    stack, open_ = [name], set()
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
    """Idle nodes first; among them one of each place in turn, so that a wave is in many places."""
    racks: Counter[object] = Counter()
    units: Counter[object] = Counter()
    keyed = []
    for node in sorted(nodes, key=lambda n: n.name):
        rack, unit = (node.idle, node.rack), (node.idle, node.unit)
        keyed.append(((not node.idle, racks[rack], units[unit], node.name), node))
        racks[rack] += 1
        units[unit] += 1
    return [node for _, node in sorted(keyed, key=lambda k: k[0])]
