"""Failure domains as nested groups, with the number of nodes that may be out of service. Pure.

A share is rounded down, but is at least 1 if it is above 0; capacity to keep is rounded up. Nested
domains (a rack in its scalable unit) are applied exactly, and the largest set of nodes that fits
them is found (`rollout_room.py`). Domains that cross (a rack that stands in two units) are held in
two forms: widened to the smallest group that contains all they touch, under the same limit, so that
the limit is never exceeded and sometimes not reached; and as they are (`Forest.flat`), for which
nodes are taken one by one. The form that admits more nodes is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, floor
from operator import attrgetter
from typing import Any, NamedTuple

from provisioner.model.campaign import CampaignNode, Domain, Limit, Policy


class Spot(NamedTuple):
    """The fields of a `CampaignNode` that decide its groups."""

    name: str
    rack: str
    unit: str
    leaves: tuple[str, ...]
    rails: tuple[int, ...]
    planes: tuple[int, ...]
    groups: tuple[str, ...]
    tenant: str
    profile: str


_FIELDS = attrgetter(*Spot._fields)
UNLIMITED = 1 << 40  # more nodes than any fleet has
_ALL = "*"  # the only key of the domain of all nodes
_FLEET = "the fleet"
_EPSILON = 1e-9  # 10 percent of 30 is 3, in spite of binary fractions


def count_allowed(limit: Limit | None, members: int) -> int:
    """Return how many of `members` may be out of service; without a limit, all may."""
    if limit is None:
        return UNLIMITED
    if limit.count is not None:
        return limit.count
    assert limit.percent is not None
    share = floor(members * limit.percent / 100 + _EPSILON)
    return max(1, share) if limit.percent > 0 else 0


def count_kept(limit: Limit, members: int) -> int:
    """Return how many of `members` must stay in service; a share is rounded up."""
    if limit.count is not None:
        return limit.count
    assert limit.percent is not None
    return ceil(members * limit.percent / 100 - _EPSILON)


@dataclass(slots=True)
class Group:
    """A set of nodes under one limit. `parent` is the enclosing group, -1 if there is none."""

    label: str
    limit: int
    parent: int = -1


@dataclass(slots=True)
class Forest:
    """Groups that are nested or disjoint; `paths` lists each node's groups, innermost first."""

    groups: list[Group] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)
    flat: Forest | None = None  # the domains as they are, if some had to be widened


@dataclass(frozen=True, slots=True)
class Members:
    """A domain with its label, its limit and its nodes."""

    label: str
    limit: int
    nodes: frozenset[int]


def build_forest(domains: Iterable[Members], nodes: int) -> Forest:
    """Return the domains as nested groups, inside one group of all nodes without a limit."""
    built = Forest()
    paths: list[list[int]] = [[] for _ in range(nodes)]
    members: list[frozenset[int]] = []
    ordered = _sort_domains(domains, nodes)
    is_widened = False
    for domain in ordered:
        if not domain.nodes:
            continue
        roots = {paths[n][-1] for n in domain.nodes if paths[n]}
        nodes_in_group = domain.nodes.union(*(members[r] for r in roots))
        same = next(iter(roots)) if len(roots) == 1 else -1
        is_same = same >= 0 and len(members[same]) == len(nodes_in_group)
        if is_same and domain is not ordered[-1]:  # the same nodes: one group is enough
            if domain.limit < built.groups[same].limit:
                built.groups[same].label = domain.label
                built.groups[same].limit = domain.limit
            continue
        is_widened = is_widened or len(nodes_in_group) > len(domain.nodes)
        number = len(built.groups)
        built.groups.append(Group(domain.label, domain.limit))
        members.append(nodes_in_group)
        for root in roots:
            built.groups[root].parent = number
        for node in nodes_in_group:
            paths[node].append(number)
    built.paths = [tuple(path) for path in paths]
    built.flat = _build_flat(ordered, nodes) if is_widened else None
    return built


def _sort_domains(domains: Iterable[Members], nodes: int) -> list[Members]:
    """Return the domains from small to large; last the whole fleet, which others never replace."""
    ordered = sorted(domains, key=lambda d: (len(d.nodes), d.label))
    limit = min((d.limit for d in ordered if d.label == _FLEET), default=UNLIMITED)
    fleet = Members(_FLEET, limit, frozenset(range(nodes)))
    return [*(d for d in ordered if d.label != _FLEET), fleet]


def _build_flat(ordered: Sequence[Members], nodes: int) -> Forest:
    """Return every domain as a group of its own, the group of all nodes last."""
    paths: list[list[int]] = [[] for _ in range(nodes)]
    groups: list[Group] = []
    for domain in ordered:
        for node in domain.nodes:
            paths[node].append(len(groups))
        groups.append(Group(domain.label, domain.limit))
    return Forest(groups, [tuple(path) for path in paths])


@dataclass(frozen=True, slots=True)
class GroupedNodes:
    """Nodes of one kind in their two families of groups: by location, and by owner or rail."""

    nodes: Sequence[CampaignNode]
    places: Forest
    owners: Forest


def host_groups(hosts: Iterable[CampaignNode], policy: Policy) -> tuple[Forest, Forest]:
    """Return the hosts' groups by location and by owner.

    The result is cached, because a fleet seldom changes between two decisions.
    """
    return _host_groups(tuple(map(_FIELDS, hosts)), policy.model_dump_json())


def list_spots(nodes: Iterable[CampaignNode]) -> tuple[Spot, ...]:
    return tuple(map(Spot._make, map(_FIELDS, nodes)))


def switch_groups(switches: Iterable[CampaignNode], policy: Policy) -> tuple[Forest, Forest]:
    """Return the switches' groups by location and by rail, cached too."""
    return _switch_groups(tuple(map(_FIELDS, switches)), policy.model_dump_json())


@lru_cache(maxsize=2)  # the forests of 65,536 hosts take some 50 MB
def _host_groups(fields: tuple[Any, ...], policy: str) -> tuple[Forest, Forest]:
    rules = Policy.model_validate_json(policy)
    spots = tuple(map(Spot._make, fields))
    return host_places(spots, rules), host_owners(spots, rules)


@lru_cache(maxsize=2)
def _switch_groups(fields: tuple[Any, ...], policy: str) -> tuple[Forest, Forest]:
    rules = Policy.model_validate_json(policy)
    spots = tuple(map(Spot._make, fields))
    return switch_places(spots, rules), switch_rails(spots, rules)


def host_places(hosts: Sequence[Spot], policy: Policy) -> Forest:
    """Return the hosts' groups by location: racks, leaves, scalable units, all."""
    return _build_domains(
        hosts,
        policy.limits,
        {
            Domain.RACK: lambda n: (n.rack,),
            Domain.SCALABLE_UNIT: lambda n: (n.unit,),
            Domain.LEAF: lambda n: n.leaves,
            Domain.TOTAL: lambda _: (_ALL,),
        },
    )


def host_owners(hosts: Sequence[Spot], policy: Policy) -> Forest:
    """Return the hosts' groups by owner: tenants, and idle hosts by profile."""
    limit = policy.limits.get(Domain.TENANT)
    hosts_by_owner: dict[tuple[str, str], set[int]] = {}
    for number, host in enumerate(hosts):
        key = ("", host.profile) if not host.tenant else (host.tenant, "")
        hosts_by_owner.setdefault(key, set()).add(number)
    domains = []
    for (tenant, profile), numbers in sorted(hosts_by_owner.items()):
        if tenant:
            domains.append(
                Members(f"tenant {tenant}", count_allowed(limit, len(numbers)), frozenset(numbers))
            )
        else:
            # hosts that are out of service for other reasons are no free capacity either
            room = max(0, len(numbers) - count_kept(policy.free_kept, len(numbers)))
            domains.append(
                Members(f"idle hosts of {profile or 'no profile'}", room, frozenset(numbers))
            )
    return build_forest(domains, len(hosts))


def switch_places(switches: Sequence[Spot], policy: Policy) -> Forest:
    """Return the switches' groups by location: racks, scalable units, all."""
    return _build_domains(
        switches,
        policy.switch_limits,
        {
            Domain.RACK: lambda n: (n.rack,),
            Domain.SCALABLE_UNIT: lambda n: (n.unit,),
            Domain.TOTAL: lambda _: (_ALL,),
        },
    )


def switch_rails(switches: Sequence[Spot], policy: Policy) -> Forest:
    """Return the switches' groups by rail and plane, with at most one switch down in each, and
    those of which one has to carry on.
    """
    one = Limit(count=1)
    limits = {
        domain: one if count_allowed(policy.switch_limits.get(domain, one), 1) else Limit(count=0)
        for domain in (Domain.RAIL, Domain.PLANE)
    }
    named: dict[str, set[int]] = {}
    for number, switch in enumerate(switches):
        for group in switch.groups:
            named.setdefault(group, set()).add(number)
    carrying = [Members(g, max(1, len(of) - 1), frozenset(of)) for g, of in named.items()]
    keys = {Domain.RAIL: lambda n: n.rails, Domain.PLANE: lambda n: n.planes}
    return _build_domains(switches, limits, keys, carrying)


def count_used(places: Forest, out: Iterable[int]) -> list[int]:
    """Return how many nodes of each group are out of service."""
    counts = [0] * len(places.groups)
    for node in out:
        for group in places.paths[node]:
            counts[group] += 1
    return counts


def _build_domains(
    nodes: Sequence[Spot],
    limits: Mapping[Domain, Limit],
    keys: Mapping[Domain, Callable[[Spot], Iterable[object]]],
    more: Iterable[Members] = (),
) -> Forest:
    domains = list(more)
    for domain, limit in limits.items():
        if domain not in keys:
            continue  # a domain of owners
        nodes_by_key: dict[object, set[int]] = {}
        for number, node in enumerate(nodes):
            for key in keys[domain](node):
                nodes_by_key.setdefault(key, set()).add(number)
        for key, numbers in nodes_by_key.items():
            if key != "":
                name = _FLEET if key == _ALL else f"{domain.replace('_', ' ')} {key}"
                domains.append(
                    Members(name, count_allowed(limit, len(numbers)), frozenset(numbers))
                )
    return build_forest(domains, len(nodes))
