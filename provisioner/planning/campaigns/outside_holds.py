"""Find the nodes that wait for nodes which their campaign does not move. Pure.

A host in repair takes a place in its rack, its unit and the fleet, and so does one that failed in
the campaign. While such nodes fill a group, no other node of the group may begin, and the campaign
can do nothing about it. Therefore the nodes that wait are set aside: later waves continue without
them, canaries are chosen elsewhere, and a campaign that waits for nothing else ends after
`Policy.standstill_max_s`. A group with the limit 0 stays closed until a person raises the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provisioner.model.campaign import CampaignNode, Hold
from provisioner.model.node import NodeKind
from provisioner.planning.campaigns.limits import Forest
from provisioner.planning.campaigns.rollout_room import (
    Floor,
    build_floor,
    find_displaced,
    find_missing_room,
    group_nodes,
)
from provisioner.planning.campaigns.rollout_terms import Aside, Situation, Standing

_NAMED_MAX = 3  # nodes out of service that a hold names


def find_outside_holds(here: Situation) -> dict[str, Standing]:
    """Return the standing of every node that has no room even while the campaign moves no node."""
    hosts = _build_empty_floor(here, NodeKind.HOST)
    switches = _build_empty_floor(here, NodeKind.SWITCH)
    result = _find_full(here, hosts) | _find_full(here, switches)
    for node in switches.nodes:
        names = find_displaced(here, node) if node.selected and node.name not in result else ()
        if not names:
            continue
        if hold := find_missing_room(hosts, names, ever=True):
            result[node.name] = Standing(hold, Aside.UNTIL_CHANGED)
        elif hold := find_missing_room(hosts, names):
            result[node.name] = Standing(hold, Aside.FOR_A_TIME)
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
    why = f"{label}: {len(names)} of {limit} that may be are out ({named})"
    kind = "switch" if floor.nodes[0].kind is NodeKind.SWITCH else "host"
    unblock = f"Bring a {kind} of them back into service, or raise that limit in the policy."
    return Standing(Hold(why=why, unblock=unblock), Aside.FOR_A_TIME)
