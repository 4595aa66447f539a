"""The gate's row of a port's filter where the tenant has security groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from release_world import World

FAULTS: dict[str, tuple[Callable[[World], object], list[tuple[str, str]]]] = {
    "the filter of its security groups is not on it": (
        lambda w: w.asks(guards={("leaf-0", "swp1"): "provisioner_sg_RED_web"}),
        [("acl_bound", "provisioner_sg_RED_web is against its security groups")],
    ),
    "a filter of security groups is bound the other way": (
        lambda w: (
            w.asks(guards={("leaf-0", "swp1"): "provisioner_sg_RED_web"}),
            w.port(acls=w.leaf.ports["swp1"].acls | {("provisioner_sg_RED_web", "inbound")}),
        ),
        [("acl_bound", "provisioner_sg_RED_web is against its security groups")],
    ),
    "a filter of security groups that it has no more is on it": (
        lambda w: (
            w.asks(guards={}),
            w.port(acls=w.leaf.ports["swp1"].acls | {("provisioner_sg_RED_web", "outbound")}),
        ),
        [("acl_bound", "provisioner_sg_RED_web is against its security groups")],
    ),
}


@pytest.mark.parametrize("sentence", FAULTS)
def test_a_port_without_exactly_its_filter_is_kept_back(sentence: str) -> None:
    change, expected = FAULTS[sentence]
    world = World()
    change(world)

    assert world.bad() == expected


def test_groups_may_change_while_a_node_serves_and_are_not_judged_while_they_do() -> None:
    guarded = World()
    guarded.asks(guards={("leaf-0", "swp1"): "provisioner_sg_RED_web"})
    guarded.at(acls=guarded.leaf.acls | {"provisioner_sg_RED_web": "rules"})
    guarded.port(acls=guarded.leaf.ports["swp1"].acls | {("provisioner_sg_RED_web", "outbound")})
    changing = World()
    changing.asks(guards=None)
    changing.port(acls=changing.leaf.ports["swp1"].acls | {("provisioner_sg_RED_old", "outbound")})

    assert (guarded.bad(), changing.bad()) == ([], [])


def test_a_filter_that_we_bound_before_the_move_is_not_missed_after_it() -> None:
    world = World()
    assert world.before is not None
    ours = ("swp1", "provisioner_sg_BLUE_db", "outbound")
    world.had(bound=(*world.before.bound, ours))
    theirs = World()
    theirs.had(bound=(*world.before.bound, ("swp1", "SITE", "outbound")))

    assert world.bad() == []
    assert theirs.bad() == [("acl_bound", "SITE (outbound) was bound or unbound by the move")]
