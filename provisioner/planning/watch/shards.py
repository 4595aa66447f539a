"""Which daemon looks after which shard of a site. Pure; every daemon computes the same.

A shard is a unit of the fabric with all that stands in it, or the notices of some names. Nothing
moves without need: a daemon keeps its shards as long as it has no more than its part, a free shard
goes by rendezvous hashing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from zlib import crc32

from provisioner.model.location import Location
from provisioner.model.node import Node

# Of advisory locks, of which PostgreSQL holds 6,400 by default. Two units of one number are one
# shard; a site of 65,536 nodes has some 1,000 units.
SHARDS_MAX = 4096
UNPLACED = 16  # shards of nodes without a unit
# Shards of notices, by the last character of the name that a notice is about: a digit, or anything
# else. A node's unit may change while a notice is on its way, its name does not.
LANES = range(SHARDS_MAX, SHARDS_MAX + 11)
SLACK = 0.05  # that a daemon may have above its part before it gives a shard away


def name_unit(node: Node) -> str:
    """Return the unit of the fabric in which a node stands."""
    place = node.location
    if place == Location():
        return f"no unit {crc32(node.id.encode()) % UNPLACED}"
    return f"{place.site}/pod{place.pod}/su{place.scalable_unit}"


def find_shard(node: Node) -> int:
    """Return the number of a node's shard, below `SHARDS_MAX`."""
    return crc32(name_unit(node).encode()) % SHARDS_MAX


def find_lane(name: str) -> int:
    """Return the number of the shard that has the notices about a name."""
    last = name[-1:]
    return LANES[int(last) if last.isascii() and last.isdigit() else 10]


def assign_shards(
    members: Collection[int], weights: Mapping[int, int], owners: Mapping[int, int]
) -> dict[int, int]:
    """Return the member that is to own each shard.

    `members`: numbers of the daemons that share the duties, `weights`: the nodes of each shard,
    `owners`: who owns a shard now. Without members nobody owns any. Once every shard has the owner
    that is given here, the same comes out again.
    """
    if not members:
        return {}
    loads = dict.fromkeys(members, 0)
    given = {s: owners[s] for s in weights if owners.get(s) in loads}
    for shard, owner in given.items():
        loads[owner] += weights[shard]
    bound = compute_bound(len(loads), weights)
    for shard in sorted(weights.keys() - given.keys(), key=lambda s: (-weights[s], s)):
        lightest = min(loads.values())
        most = max(bound - weights[shard], lightest)
        owner = max((m for m in loads if loads[m] <= most), key=lambda m: _score(shard, m))
        given[shard] = owner
        loads[owner] += weights[shard]
    for shard in sorted(given, key=lambda s: (_score(s, given[s]), s)):
        owner = given[shard]
        lightest = min(loads.values())
        to = max((m for m in loads if loads[m] == lightest), key=lambda m: _score(shard, m))
        if loads[owner] > bound and loads[to] + weights[shard] < loads[owner]:
            given[shard] = to
            loads[owner] -= weights[shard]
            loads[to] += weights[shard]
    return given


def compute_bound(count: int, weights: Mapping[int, int]) -> int:
    """Return the nodes that one of `count` daemons may have: its part and some slack.

    Units may be too large for that: then what the largest first, each to the emptiest, comes to.
    """
    loads = [0] * count
    for weight in sorted(weights.values(), reverse=True):
        loads[loads.index(min(loads))] += weight
    return max(max(loads), -int(-(1 + SLACK) * sum(weights.values()) // count))


def _score(shard: int, member: int) -> bytes:
    return blake2b(f"{shard}/{member}".encode(), digest_size=8).digest()
