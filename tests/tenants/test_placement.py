"""Tenants are placed together: in few units and racks, with fair shares, whole when they leave.

`make bench NAME=placement` compares the same function with an exact solver; the cases of the issue
that asked for it stand here as sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import Tenant
from provisioner.planning.tenancy.allocation import (
    COMING_MAX_S,
    allocate_nodes,
    choose_departures,
    share_nodes,
)
from provisioner.planning.tenancy.placement import Site, Wish, cost_placement, place_tenants
from provisioner.planning.tenancy.spares import propose_exchanges

PER_RACK = 4


def host(
    unit: int, index: int, tenant: str = "", state: State = State.CERTIFIED, entered_at: float = 0.0
) -> Node:
    place = Location(scalable_unit=unit, rack=f"su{unit}-r{index // PER_RACK}", index=index)
    return Node(
        id=f"su{unit}-n{index:02d}",
        kind=NodeKind.HOST,
        state=state,
        tenant=tenant,
        location=place,
        entered_at=entered_at,
    )


def unit_of(number: int, size: int = 32) -> list[Node]:
    return [host(number, index) for index in range(size)]


def tenant(name: str, wanted: int, **more: object) -> Tenant:
    return Tenant(name=name, vrf=name.upper(), nodes_wanted=wanted).model_copy(update=more)


def units(pairs: Iterable[tuple[str, str]], name: str) -> Counter[str]:
    return Counter(node.partition("-")[0] for node, owner in pairs if owner == name)


def test_four_tenants_of_a_unit_each_get_a_unit_each() -> None:
    nodes = [n for unit in range(4) for n in unit_of(unit)]
    tenants = [tenant(name, 32) for name in "abcd"]

    pairs = allocate_nodes(nodes, tenants, 0.0)

    assert len(pairs) == 128
    assert all(list(units(pairs, t.name).values()) == [32] for t in tenants)


def test_a_whole_free_unit_is_preferred_to_remainders() -> None:
    remainders = [*unit_of(0)[:20], *unit_of(1)[:12]]

    pairs = allocate_nodes([*remainders, *unit_of(2)], [tenant("red", 32)], 0.0)

    assert units(pairs, "red") == {"su2": 32}


def test_a_small_wish_leaves_the_whole_unit_whole() -> None:
    taken = [host(0, index, "blue", State.RELEASED) for index in range(16)]
    nodes = [*unit_of(1), *taken, *unit_of(0)[16:]]

    assert units(allocate_nodes(nodes, [tenant("red", 12)], 0.0), "red") == {"su0": 12}


def test_units_are_taken_by_number_not_by_their_text() -> None:
    nodes = [n for unit in (10, 2) for n in unit_of(unit, 4)]

    assert units(allocate_nodes(nodes, [tenant("red", 4)], 0.0), "red") == {"su2": 4}


def test_a_tenant_grows_where_it_stands() -> None:
    held = [host(3, index, "red", State.RELEASED) for index in range(8)]
    nodes = [*unit_of(0), *held, *unit_of(3)[8:16]]

    assert units(allocate_nodes(nodes, [tenant("red", 12)], 0.0), "red") == {"su3": 4}


def test_the_first_nodes_of_a_unit_that_comes_up_go_to_one_tenant() -> None:
    rest = [host(u, i, state=State.VALIDATING) for u in (0, 1) for i in range(1, 32)]
    first = [host(0, 0), host(1, 0)]

    pairs = allocate_nodes([*first, *rest], [tenant("red", 32), tenant("blue", 32)], 0.0)

    assert sorted(owner for _, owner in pairs) == ["blue", "red"]


def test_a_node_that_does_not_come_is_not_waited_for() -> None:
    stuck = [host(0, i, state=State.VALIDATING) for i in range(32)]
    nodes = [*stuck, *unit_of(1)[:20], *unit_of(2)[:12]]
    red = [tenant("red", 32)]

    assert len(allocate_nodes(nodes, red, COMING_MAX_S + 1)) == 32


def test_a_wish_to_be_spread_takes_nodes_from_every_unit_and_many_racks() -> None:
    nodes = [n for unit in range(4) for n in unit_of(unit)]

    pairs = allocate_nodes(nodes, [tenant("red", 8, spread=True)], 0.0)

    assert units(pairs, "red") == {f"su{u}": 2 for u in range(4)}
    racks = {n.location.rack for n in nodes if n.id in dict(pairs)}
    assert len(racks) == 8


def test_what_is_short_is_shared_by_the_part_that_each_lacks() -> None:
    wishes = [Wish("big", 30), Wish("small", 10), Wish("bound", 10, units=frozenset({(0, 1)}))]

    shares = share_nodes(wishes, {(0, 0): 10, (0, 1): 10})

    assert {name: share.total() for name, share in shares.items()} == {
        "big": 12,
        "small": 4,
        "bound": 4,
    }
    assert shares["bound"] == {(0, 1): 4}


def test_a_tenant_bound_to_a_unit_gets_it_though_others_were_placed_before() -> None:
    nodes = [*unit_of(0, 8), *unit_of(1, 8)]
    tenants = [tenant("anywhere", 8), tenant("bound", 8, units=((0, 0),))]

    pairs = allocate_nodes(nodes, tenants, 0.0)

    assert units(pairs, "bound") == {"su0": 8}
    assert units(pairs, "anywhere") == {"su1": 8}


def test_a_shrink_empties_the_smallest_remainder() -> None:
    held = [host(0, i, "red", State.RELEASED) for i in range(32)]
    held += [host(1, i, "red", State.RELEASED) for i in range(6)]

    leaving = choose_departures(held, 8)

    assert Counter(n.location.scalable_unit for n in leaving) == {1: 6, 0: 2}
    assert len({n.location.rack for n in leaving if n.location.scalable_unit == 0}) == 1


def test_nodes_that_are_not_in_service_leave_first() -> None:
    held = [host(0, i, "red", State.RELEASED) for i in range(4)] + [host(1, 0, "red"), host(1, 1)]

    leaving = choose_departures(held[:5], 2)

    assert leaving[0].id == "su1-n00"


def test_a_node_whose_release_is_under_way_does_not_leave_while_another_can() -> None:
    coming = host(1, 0, "red").model_copy(update={"placement": Placement.MIXED, "served": "red"})
    held = [host(0, 0, "red", State.RELEASED), host(0, 1, "red", State.RELEASED), coming]

    assert [n.id for n in choose_departures(held, 1)] == ["su0-n01"]
    assert choose_departures([coming], 1) == (coming,)


def test_a_spread_tenant_shrinks_where_it_has_the_most() -> None:
    held = [host(0, i, "red", State.RELEASED) for i in range(6)]
    held += [host(1, i, "red", State.RELEASED) for i in range(3)]

    leaving = choose_departures(held, 3, is_spread=True)

    assert {n.location.scalable_unit for n in leaving} == {0}


def test_a_remainder_is_offered_free_nodes_beside_the_others() -> None:
    held = [host(0, i, "red", State.RELEASED) for i in range(20)]
    held += [host(1, i, "red", State.RELEASED) for i in range(2)]
    nodes = [*held, *unit_of(0)[20:24]]

    (offer,) = propose_exchanges(nodes, [tenant("red", 22)])

    assert offer.gives == ("su1-n00", "su1-n01")
    assert set(offer.takes) <= {f"su0-n{i}" for i in range(20, 24)}
    assert (offer.in_service, len(offer.takes)) == (2, 2)
    assert offer.saves > 100


def test_nothing_is_offered_where_nothing_is_free_or_nothing_is_saved() -> None:
    held = [host(0, i, "red", State.RELEASED) for i in range(8)]
    scattered = [*held[:4], *(host(1, i, "red", State.RELEASED) for i in range(4))]

    assert propose_exchanges([*held, *unit_of(1)], [tenant("red", 8)]) == ()
    assert propose_exchanges(scattered, [tenant("red", 8)]) == ()


RACKS = st.dictionaries(
    st.builds(
        lambda pod, unit, rack: (pod, unit, (), f"r{rack}"),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2)),
    min_size=1,
    max_size=10,
)
WISHES = st.lists(st.tuples(st.integers(1, 12), st.booleans(), st.booleans()), max_size=4)


@settings(max_examples=60)
@given(racks=RACKS, asked=WISHES)
def test_no_place_is_given_twice_and_none_to_whom_it_is_forbidden(
    racks: dict[tuple[object, ...], tuple[int, int, int]], asked: list[tuple[int, bool, bool]]
) -> None:
    ready = {rack: numbers[0] for rack, numbers in racks.items()}
    coming = {rack: numbers[1] for rack, numbers in racks.items()}
    site = Site(ready, coming, {rack: sum(numbers) for rack, numbers in racks.items()})
    bound = frozenset({(0, 0)})
    wishes = [
        Wish(f"t{n}", count, units=bound if is_bound else frozenset(), is_spread=is_spread)
        for n, (count, is_bound, is_spread) in enumerate(asked)
    ]

    placement = place_tenants(site, wishes)

    used = sum(placement.values(), Counter[tuple[object, ...]]())
    assert all(count <= site.free[rack] for rack, count in used.items())
    for wish in wishes:
        places = placement.get(wish.tenant, Counter())
        assert places.total() <= wish.count
        assert all(wish.may_use(rack) for rack in places)
    anybody = [w for w in wishes if not w.units]
    wanted = sum(w.count for w in anybody)
    if len(anybody) == len(wishes):
        free = sum(site.free[rack] for rack in racks)
        assert sum(p.total() for p in placement.values()) == min(wanted, free)
    assert cost_placement(site, wishes, placement) >= 0


def test_the_cost_is_the_one_that_is_stated() -> None:
    rack, other = (0, 0, (), "r0"), (0, 1, (), "r0")
    site = Site({rack: 2, other: 1}, {other: 1}, {rack: 2, other: 4})
    red, blue = Wish("red", 1), Wish("blue", 2, is_spread=True)

    # one pod, unit, rail group and rack, and a unit and a rack broken
    assert cost_placement(site, [red], {"red": Counter({rack: 1})}) == 630 + 21
    # two in a unit and a rack, one of them not certified yet; the unit was not whole
    assert cost_placement(site, [blue], {"blue": Counter({other: 2})}) == 200 + 10 + 5


@pytest.mark.parametrize("count", [5, 9])
def test_shares_and_places_agree_when_units_are_short(count: int) -> None:
    nodes = [*unit_of(0, 6), *unit_of(1, 6)]
    bound = [tenant(f"b{n}", count, units=((0, 0),)) for n in range(2)]

    pairs = allocate_nodes(nodes, [*bound, tenant("free", 6)], 0.0)

    got = Counter(owner for _, owner in pairs)
    assert got == {"b0": 3, "b1": 3, "free": 6}
