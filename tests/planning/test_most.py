"""The largest choice under two families of nested groups, held against every choice there is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import event, given
from hypothesis import strategies as st

from provisioner.planning.campaigns.limits import Members, build_forest, count_used
from provisioner.planning.campaigns.rollout_room import Packing


def _domains(count: int, size: int, limits: list[int], name: str) -> list[Members]:
    """Blocks of `size` neighbours, each with the next limit."""
    blocks = [frozenset(range(at, min(at + size, count))) for at in range(0, count, size)]
    return [Members(f"{name} {i}", limits[i % len(limits)], who) for i, who in enumerate(blocks)]


few = st.lists(st.sampled_from([1, 1, 2, 0]), min_size=1, max_size=4)


@given(st.integers(1, 9), few, few, few, st.data())
def test_no_choice_is_larger_and_what_came_first_keeps_its_number(
    count: int, racks: list[int], units: list[int], tenants: list[int], data: st.DataObject
):
    first_few = st.permutations(range(count))
    order = data.draw(first_few)
    owner_of = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    places = build_forest(
        [*_domains(count, 2, racks, "rack"), *_domains(count, 4, units, "unit")], count
    )
    owners = build_forest(
        [
            Members(f"t{t}", tenants[t % len(tenants)], frozenset(who))
            for t in range(3)
            if (who := {n for n in range(count) if owner_of[n] == t})
        ],
        count,
    )
    idle = [n for n in order if owner_of[n] == 0]
    packing = Packing(places, owners, count_used(places, ()), count_used(owners, ()))
    greedy = _greedy(places, owners, order)

    packing.add(idle)
    packing.add(n for n in order if owner_of[n] != 0)

    def fits(chosen: tuple[int, ...]) -> bool:
        return all(
            number <= group.limit
            for trees in (places, owners)
            for number, group in zip(count_used(trees, chosen), trees.groups, strict=True)
        )

    def most(of: list[int]) -> int:
        return next(
            size
            for size in range(len(of), -1, -1)
            if any(fits(chosen) for chosen in combinations(of, size))
        )

    event("better than greed" if greedy < len(packing.taken) else "greed was enough")
    assert fits(tuple(packing.taken))
    assert len(packing.taken) == most(list(range(count)))
    assert sum(n in packing.taken for n in idle) == most(idle)


def _greedy(places, owners, order) -> int:
    taken: list[int] = []
    for node in order:
        trial = [*taken, node]
        if all(
            number <= group.limit
            for trees in (places, owners)
            for number, group in zip(count_used(trees, trial), trees.groups, strict=True)
        ):
            taken = trial
    return len(taken)


def test_a_node_gives_way_where_two_others_find_room_for_it():
    places = build_forest([Members("rack 0", 1, frozenset({0, 1}))], 3)
    owners = build_forest([Members("a", 1, frozenset({0, 2})), Members("b", 1, frozenset({1}))], 3)
    packing = Packing(places, owners, count_used(places, ()), count_used(owners, ()))

    packing.add([0, 1, 2])  # 0 takes the rack from 1 and the tenant from 2

    assert packing.taken == {1, 2}


def test_domains_that_cross_are_held_in_the_smallest_group_around_both():
    crossing = [Members("rack", 1, frozenset({0, 1, 2})), Members("leaf", 1, frozenset({2, 3}))]

    built = build_forest(crossing, 5)

    whole = {
        built.groups[g].label: count_used(built, range(5))[g] for g in range(len(built.groups))
    }
    assert whole == {"leaf": 2, "rack": 4, "the fleet": 5}
