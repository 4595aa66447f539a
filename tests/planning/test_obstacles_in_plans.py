"""Obstacles that BMCs report block a plan before its first step, where a step would meet them."""

from __future__ import annotations

import pytest
from test_planner import edge, matrix, node

from provisioner import components
from provisioner.model.inventory import Activation, Inventory, WriteObstacle
from provisioner.model.matrix import Matrix
from provisioner.model.outcome import Reason
from provisioner.planning.path.planner import PlanCache, PlanningNode, plan

EDGES = {
    "host.bios": (edge("1.0", "2.0", Activation.COLD_BOOT),),
    "host.driver": (edge("1.0", "2.0", Activation.WARM_REBOOT),),
}


def with_obstacle(*hinders: str, bmc: str = "host", kinds: tuple[str, ...] = ()) -> Inventory:
    obstacle = WriteObstacle(
        bmc=bmc,
        name="licence",
        hinders=hinders,
        reason=Reason.NOT_OFFERED,
        detail="it lacks the licence",
        unblock="Install the licence.",
    )
    seen = node(*((kind, "0", "1.0") for kind in kinds or EDGES))
    return seen.model_copy(update={"obstacles": (obstacle,)})


def pinned(*kinds: str) -> Matrix:
    return matrix(dict.fromkeys(kinds, "2.0"), {kind: EDGES[kind] for kind in kinds})


def test_a_push_that_a_licence_hinders_blocks_the_whole_plan() -> None:
    found = plan(with_obstacle("push"), pinned("host.bios", "host.driver"), "r", "p")

    assert found.steps == ()
    (blocker,) = found.blockers
    assert (blocker.subject, blocker.unblock) == ("host/licence", "Install the licence.")


@pytest.mark.parametrize(
    ("kinds", "hinders", "bmc"),
    [
        (("host.driver",), "push", "host"),  # nothing is pushed
        (("host.bios",), "media", "host"),  # no image is booted
        (("host.bios",), "push", "DPU_1"),  # another BMC
    ],
)
def test_an_obstacle_that_no_step_meets_blocks_nothing(
    kinds: tuple[str, ...], hinders: str, bmc: str
) -> None:
    found = plan(with_obstacle(hinders, bmc=bmc), pinned(*kinds), "r", "p")

    assert found.blockers == ()
    assert found.steps


def test_an_image_of_the_system_meets_media_by_the_ways_that_use_it() -> None:
    edges = {"host.os": (edge("1.0", "2.0", Activation.NONE),)}
    seen, target = with_obstacle("media", kinds=("host.os",)), matrix({"host.os": "2.0"}, edges)

    assert plan(seen, target, "r", "p").blockers
    assert plan(seen, target, "r", "p", way="virtual_media").blockers
    assert not plan(seen, target, "r", "p", way="pxe").blockers


def test_a_licence_that_was_installed_since_is_no_blocker_of_a_cached_plan() -> None:
    cache = PlanCache(pinned("host.bios"), components.ALL, production=True)
    hindered = with_obstacle("push")
    free = hindered.model_copy(update={"obstacles": ()})

    assert cache.plan(PlanningNode(hindered, "r", "p")).blockers
    assert not cache.plan(PlanningNode(free, "r", "p")).blockers
