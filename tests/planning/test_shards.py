"""Which daemon looks after which shard: all of them, evenly, and nothing moves without need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind
from provisioner.planning.watch.shards import (
    SHARDS_MAX,
    SLACK,
    UNPLACED,
    assign_shards,
    compute_bound,
    find_shard,
    name_unit,
)

MEMBERS = st.sets(st.integers(1, 99), min_size=1, max_size=6)
WEIGHTS = st.dictionaries(st.integers(0, SHARDS_MAX - 1), st.integers(1, 80), max_size=40)
OWNERS = st.dictionaries(st.integers(0, SHARDS_MAX - 1), st.integers(1, 99), max_size=40)


def loads(given_to: dict[int, int], weights: dict[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for shard, member in given_to.items():
        found[member] = found.get(member, 0) + weights[shard]
    return found


def settle(members: set[int], weights: dict[int, int], owners: dict[int, int]) -> dict[int, int]:
    """Let daemons follow the assignment until it asks for no change; within a few rounds."""
    for _ in range(len(weights) + 2):
        after = assign_shards(members, weights, owners)
        if after == owners:
            return after
        owners = after
    raise AssertionError(f"it never rests: {members} {weights}")


@given(MEMBERS, WEIGHTS, OWNERS)
def test_every_shard_gets_one_living_member_whoever_had_it(members, weights, owners):
    found = assign_shards(members, weights, owners)

    assert found.keys() == weights.keys()
    assert set(found.values()) <= members
    assert found == assign_shards(
        sorted(members, reverse=True), dict(reversed(weights.items())), owners
    )


@given(MEMBERS, WEIGHTS, OWNERS)
def test_it_comes_to_rest_and_then_nobody_has_much_more_than_a_part(members, weights, owners):
    rest = settle(members, weights, owners)

    most = max(loads(rest, weights).values(), default=0)
    part = sum(weights.values()) / len(members)
    assert most <= max(
        compute_bound(len(members), weights), part + max(weights.values(), default=0)
    )


@given(MEMBERS, st.integers(300, 1200))
def test_of_many_small_units_nobody_has_more_than_its_part_and_some_slack(members, units):
    weights = dict.fromkeys(range(units), 64)

    most = max(loads(settle(members, weights, {}), weights).values())

    assert most <= (1 + SLACK) * 64 * units / len(members) + 64


@given(MEMBERS, WEIGHTS, st.integers(100, 199))
def test_one_that_comes_gets_shards_and_no_other_shard_moves(members, weights, new):
    before = settle(members, weights, {})
    after = assign_shards({*members, new}, weights, before)

    assert {after[s] for s in weights if after[s] != before[s]} <= {*members, new}
    kept = [s for s in weights if after[s] == before[s]]
    bound = compute_bound(len(members) + 1, weights)
    heavy = {m for m, load in loads(before, weights).items() if load > bound}
    assert all(s in kept for s in weights if before[s] not in heavy)


@given(MEMBERS.filter(lambda m: len(m) > 1), WEIGHTS)
def test_of_one_that_goes_the_shards_move_and_hardly_any_other(members, weights):
    before = settle(members, weights, {})
    gone = max(members)
    after = assign_shards(members - {gone}, weights, before)

    bound = compute_bound(len(members) - 1, weights)
    for shard in weights:
        if before[shard] != gone and after[shard] != before[shard]:
            load = loads(after, weights).get(before[shard], 0)
            assert load + weights[shard] > bound, "it was moved although it had room"


def test_without_members_nobody_owns_any():
    assert assign_shards((), {1: 5}, {1: 7}) == {}


def test_a_unit_is_a_shard_and_nodes_without_one_are_a_few():
    def node(name: str, **place: int) -> Node:
        return Node(id=name, kind=NodeKind.HOST, location=Location(**place))

    placed = [node(f"n{i}", pod=0, scalable_unit=1, index=i) for i in range(64)]
    assert len({find_shard(n) for n in placed}) == 1
    assert name_unit(placed[0]) == "site/pod0/su1"
    assert find_shard(node("x", pod=1, scalable_unit=1)) != find_shard(placed[0])
    unplaced = {find_shard(node(f"u{i}")) for i in range(500)}
    assert len(unplaced) == UNPLACED
