"""Assign each node of a campaign to a wave: canaries, then increasing shares. Pure.

The waves are computed at the start and stored. Nodes that must wait for others by a rule between
versions, and hosts where switches are upgraded too, are in a later layer. Each layer has its own
canaries and waves, so that no node waits for one of a later wave. A wave's number is `layer *
waves_per_layer(policy) + place in the layer`; place 0 holds the canaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from provisioner.model.campaign import Campaign, CampaignNode, Hold, Policy
from provisioner.model.node import NodeKind
from provisioner.planning.campaigns.limits import Forest, count_allowed
from provisioner.planning.campaigns.rollout_room import (
    Floor,
    build_floor,
    find_displaced,
    find_missing_room,
    group_nodes,
)
from provisioner.planning.campaigns.rollout_terms import Aside, Situation, Standing

# ------------------------------------------------------------------------------
# Find the nodes that wait for nodes which their campaign does not move. Pure.
#
# A host in repair takes a place in its rack, its unit and the fleet, and so does one that failed in
# the campaign. While such nodes fill a group, no other node of the group may begin, and the
# campaign can do nothing about it. Therefore the nodes that wait are set aside: later waves
# continue without them, canaries are chosen elsewhere, and a campaign that waits for nothing else
# ends after
# `Policy.standstill_max_s`. A group with the limit 0 stays closed until a person raises the limit.


_NAMED_MAX = 3  # nodes out of service that a hold names


def find_outside_holds(here: Situation) -> dict[str, Standing]:
    """Return the standing of every node that has no room even while the campaign moves no node."""
    hosts = _build_empty_floor(here, NodeKind.HOST)
    switches = _build_empty_floor(here, NodeKind.SWITCH)
    result = _find_full(here, hosts) | _find_full(here, switches)
    below: dict[tuple[str, ...], list[str]] = {}  # leaves of one unit have the same hosts
    for node in switches.nodes:
        if node.selected and node.name not in result:
            below.setdefault(find_displaced(here, node), []).append(node.name)
    for names, leaves in below.items():
        if hold := find_missing_room(hosts, names, ever=True):
            result |= dict.fromkeys(leaves, Standing(hold, Aside.UNTIL_CHANGED))
        elif hold := find_missing_room(hosts, names):
            result |= dict.fromkeys(leaves, Standing(hold, Aside.FOR_A_TIME))
    return result


def _list_outsiders(here: Situation, nodes: Sequence[CampaignNode]) -> list[int]:
    """Return the nodes out of service that the campaign does not move."""
    return [
        number
        for number, node in enumerate(nodes)
        if not node.in_service and node.name not in here.under_way
    ]


def _build_empty_floor(here: Situation, kind: NodeKind) -> Floor:
    """Return the floor as if nothing were under way, with crossing domains as they are."""
    grouped = group_nodes(here, kind)
    places = grouped.places.flat or grouped.places
    owners = grouped.owners.flat or grouped.owners
    return build_floor(grouped.nodes, places, owners, _list_outsiders(here, grouped.nodes))


def _find_full(here: Situation, floor: Floor) -> dict[str, Standing]:
    full = {
        (owned, group): trees.groups[group].limit
        for owned, trees, used in (
            (False, floor.places, floor.in_places),
            (True, floor.owners, floor.in_owners),
        )
        for group in range(len(trees.groups))
        if used[group] >= trees.groups[group].limit
    }
    if not full:
        return {}
    standings: dict[tuple[bool, int], Standing] = {}
    result: dict[str, Standing] = {}
    for number, node in enumerate(floor.nodes):
        if not node.selected or not node.in_service:
            continue
        key = next(_full_groups(floor, full, number), None)
        if key is not None:
            if key not in standings:
                standings[key] = _describe(here, floor, key)
            result[node.name] = standings[key]
    return result


def _full_groups(
    floor: Floor, full: Mapping[tuple[bool, int], int], number: int
) -> Iterator[tuple[bool, int]]:
    """Yield the full groups of a node, closed ones first: these stay so without a person."""
    keys = [
        *((False, g) for g in floor.places.paths[number]),
        *((True, g) for g in floor.owners.paths[number]),
    ]
    yield from sorted((k for k in keys if k in full), key=lambda k: full[k] > 0)


def _describe(here: Situation, floor: Floor, key: tuple[bool, int]) -> Standing:
    owned, group = key
    trees: Forest = floor.owners if owned else floor.places
    label = trees.groups[group].label
    limit = trees.groups[group].limit
    if limit == 0:
        why = f"{label}: no node may be out of service"
        hold = Hold(why=why, unblock="Raise that limit in the policy.")
        return Standing(hold, Aside.UNTIL_CHANGED)
    names = [
        floor.nodes[n].name for n in _list_outsiders(here, floor.nodes) if group in trees.paths[n]
    ]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    named = ", ".join(names[:_NAMED_MAX]) + more
    why = f"{label}: {len(names)} out of service, and at most {limit} may be ({named})"
    kind = "switch" if floor.nodes[0].kind is NodeKind.SWITCH else "host"
    unblock = f"Bring a {kind} of them back into service, or raise that limit in the policy."
    return Standing(Hold(why=why, unblock=unblock), Aside.FOR_A_TIME)


def waves_per_layer(policy: Policy) -> int:
    return 1 + len(policy.waves)


def is_canary(policy: Policy, wave: int) -> bool:
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


def _layers(nodes: Sequence[CampaignNode]) -> list[list[CampaignNode]]:
    """Return the selected nodes in layers, by the length of the chain of nodes before them.

    Where no rule says otherwise, switches go before hosts, so that no host is upgraded while its
    leaf may go down.
    """
    chosen = {n.name: n for n in nodes if n.selected}
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
