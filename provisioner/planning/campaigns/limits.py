"""Failure domains as nested groups, with how many of each may be out of service. Pure.

Rules: a share is rounded down, but is at least 1 if it is above 0; capacity that is kept is rounded
up. Domains that nest (a rack in its scalable unit) are held exactly. Domains that cross (a leaf
with half of two racks) are widened to the smallest group that holds all they touch, under the same
limit: never more than the limit, sometimes less. Only so does a larger limit never admit fewer
nodes, and only so can the largest set be found at all (`most.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, floor
from operator import attrgetter
from typing import Any, NamedTuple

from provisioner.model.campaign import CampaignNode
from provisioner.model.campaign_policy import Domain, Limit, Policy


class Spot(NamedTuple):
    """What of a node decides its groups; the fields of `CampaignNode` of the same names."""

    name: str
    rack: str
    unit: str
    leaves: tuple[str, ...]
    rails: tuple[int, ...]
    planes: tuple[int, ...]
    tenant: str
    profile: str


_FIELDS = attrgetter(*Spot._fields)
UNLIMITED = 1 << 40  # more nodes than any fleet has
_EPSILON = 1e-9  # 10 percent of 30 is 3, whatever binary fractions say


def allowed(limit: Limit | None, members: int) -> int:
    """How many of `members` may be out of service. None: nothing was said, all may."""
    if limit is None:
        return UNLIMITED
    if limit.count is not None:
        return limit.count
    assert limit.percent is not None
    share = floor(members * limit.percent / 100 + _EPSILON)
    return max(1, share) if limit.percent > 0 else 0


def kept(limit: Limit, members: int) -> int:
    """How many of `members` must stay: a share is rounded up."""
    if limit.count is not None:
        return limit.count
    assert limit.percent is not None
    return ceil(members * limit.percent / 100 - _EPSILON)


@dataclass(slots=True)
class Group:
    """A set of nodes under one limit. `parent` is the group around it, -1 if there is none."""

    label: str
    limit: int
    parent: int = -1


@dataclass(slots=True)
class Forest:
    """Groups of which each two nest or are apart; `paths`: each node's groups, inside first."""

    groups: list[Group] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def inner(self) -> list[int]:
        """Each node's innermost group."""
        return [path[0] for path in self.paths]


@dataclass(frozen=True, slots=True)
class Members:
    """A domain: its name, what it allows, and who is in it."""

    label: str
    limit: int
    who: frozenset[int]


def forest(domains: Iterable[Members], nodes: int) -> Forest:
    """The domains as nested groups, under one group of everything that has no limit of its own."""
    built = Forest()
    paths: list[list[int]] = [[] for _ in range(nodes)]
    members: list[frozenset[int]] = []
    everything = Members("the fleet", UNLIMITED, frozenset(range(nodes)))
    for domain in (*sorted(domains, key=lambda d: (len(d.who), d.label)), everything):
        if not domain.who:
            continue
        roots = {paths[n][-1] for n in domain.who if paths[n]}
        who = domain.who.union(*(members[r] for r in roots))
        same = next(iter(roots)) if len(roots) == 1 else -1
        if same >= 0 and len(members[same]) == len(who):  # the same nodes: one group is enough
            if domain.limit < built.groups[same].limit:
                built.groups[same].label, built.groups[same].limit = domain.label, domain.limit
            continue
        number = len(built.groups)
        built.groups.append(Group(domain.label, domain.limit))
        members.append(who)
        for root in roots:
            built.groups[root].parent = number
        for node in who:
            paths[node].append(number)
    built.paths = [tuple(path) for path in paths]
    return built


def host_groups(hosts: Iterable[CampaignNode], policy: Policy) -> tuple[Forest, Forest]:
    """(where hosts stand, whose they are). Remembered: a fleet seldom changes between two looks."""
    return _host_groups(tuple(map(_FIELDS, hosts)), policy.model_dump_json())


def switch_groups(switches: Iterable[CampaignNode], policy: Policy) -> tuple[Forest, Forest]:
    """(where switches stand, what they carry). Remembered too."""
    return _switch_groups(tuple(map(_FIELDS, switches)), policy.model_dump_json())


@lru_cache(maxsize=2)  # the forests of 65,536 hosts take some 50 MB
def _host_groups(fields: tuple[Any, ...], policy: str) -> tuple[Forest, Forest]:
    rules, spots = Policy.model_validate_json(policy), tuple(map(Spot._make, fields))
    return host_places(spots, rules), host_owners(spots, rules)


@lru_cache(maxsize=2)
def _switch_groups(fields: tuple[Any, ...], policy: str) -> tuple[Forest, Forest]:
    rules, spots = Policy.model_validate_json(policy), tuple(map(Spot._make, fields))
    return switch_places(spots, rules), switch_rails(spots, rules)


def host_places(hosts: Sequence[Spot], policy: Policy) -> Forest:
    """Where hosts stand: racks, leaves, scalable units, everything."""
    return _forest(
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
    """Whose hosts they are: tenants, and nobody's (by profile, for the free capacity kept)."""
    limit = policy.limits.get(Domain.TENANT)
    found: dict[tuple[str, str], set[int]] = {}
    for number, host in enumerate(hosts):
        key = ("", host.profile) if not host.tenant else (host.tenant, "")
        found.setdefault(key, set()).add(number)
    domains = []
    for (tenant, profile), who in sorted(found.items()):
        if tenant:
            domains.append(Members(f"tenant {tenant}", allowed(limit, len(who)), frozenset(who)))
        else:
            # those that are out of service for other reasons are no free capacity either
            room = max(0, len(who) - kept(policy.free_kept, len(who)))
            domains.append(
                Members(f"idle hosts of {profile or 'no profile'}", room, frozenset(who))
            )
    return forest(domains, len(hosts))


def switch_places(switches: Sequence[Spot], policy: Policy) -> Forest:
    """Where switches stand: racks, scalable units, everything."""
    return _forest(
        switches,
        policy.switch_limits,
        {
            Domain.RACK: lambda n: (n.rack,),
            Domain.SCALABLE_UNIT: lambda n: (n.unit,),
            Domain.TOTAL: lambda _: (_ALL,),
        },
    )


def switch_rails(switches: Sequence[Spot], policy: Policy) -> Forest:
    """What switches carry: rails and planes, of each never two switches at a time."""
    one = Limit(count=1)
    limits = {
        domain: one if allowed(policy.switch_limits.get(domain, one), 1) else Limit(count=0)
        for domain in (Domain.RAIL, Domain.PLANE)
    }
    return _forest(
        switches, limits, {Domain.RAIL: lambda n: n.rails, Domain.PLANE: lambda n: n.planes}
    )


def used(places: Forest, out: Iterable[int]) -> list[int]:
    """How many of each group are out of service."""
    counts = [0] * len(places.groups)
    for node in out:
        for group in places.paths[node]:
            counts[group] += 1
    return counts


_ALL = "*"  # the one key of the domain that everybody is in


def _forest(
    nodes: Sequence[Spot],
    limits: Mapping[Domain, Limit],
    keys: Mapping[Domain, Callable[[Spot], Iterable[object]]],
) -> Forest:
    domains = []
    for domain, limit in limits.items():
        if domain not in keys:
            continue  # an owner's
        found: dict[object, set[int]] = {}
        for number, node in enumerate(nodes):
            for key in keys[domain](node):
                found.setdefault(key, set()).add(number)
        for key, who in found.items():
            if key != "":
                name = "the fleet" if key == _ALL else f"{domain.replace('_', ' ')} {key}"
                domains.append(Members(name, allowed(limit, len(who)), frozenset(who)))
    return forest(domains, len(nodes))
