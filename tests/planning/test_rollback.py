"""A way back is planned before there is a way forth, and what has none is named."""

from __future__ import annotations

from provisioner import components
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release
from provisioner.model.outcome import Reason
from provisioner.planning.path.planner import PlanCache, PlanningNode, WayBack, plan, plan_way_back

URL = "https://example.com/notes"


def _edge(start: str, to: str, **more: object) -> Edge:
    return Edge.model_validate(
        {
            "from": (start,),
            "to": to,
            "activates_by": Activation.BMC_RESET,
            "artifact": f"bmc-{to}.bin",
            "sha256": "0" * 64,
            "evidence": URL,
        }
        | more
    )


def _ask(*edges: Edge, held: frozenset[str] | None = None, baseline: str = "old") -> WayBack:
    """The way of a host BMC from 1.0 (release old) to 2.0 (release new), and back."""
    releases = {
        name: Release(
            profiles={"p": Profile(match=Match(), pins={"host.bmc": Pin(version=version)})}
        )
        for name, version in (("old", "1.0"), ("new", "2.0"))
    }
    matrix = Matrix(releases=releases, edges={"host.bmc": edges})
    part = Component(kind="host.bmc", slot="BMC", version="1.0", source="/", bmc="host")
    node = PlanningNode(Inventory(node="n", vendor="v", components=(part,)), "new", "p")
    cache = PlanCache(matrix, components.ALL, production=True)
    forth = cache.plan(node)
    assert forth.steps, forth.blockers
    return plan_way_back(node, forth, baseline, cache, held)


UP, DOWN = _edge("1.0", "2.0"), _edge("2.0", "1.0", downgrade=True)


def test_only_a_way_back_is_forced_on_the_bmc() -> None:
    def steps(runs: str, wanted: str) -> list[bool]:
        pins = {"host.bmc": Pin(version=wanted)}
        releases = {"r": Release(profiles={"p": Profile(match=Match(), pins=pins)})}
        part = Component(kind="host.bmc", slot="BMC", version=runs, source="/", bmc="host")
        seen = Inventory(node="n", vendor="v", components=(part,))
        found = plan(seen, Matrix(releases=releases, edges={"host.bmc": (UP, DOWN)}), "r", "p")
        return [s.force for s in found.steps if s.component]

    assert (steps("1.0", "2.0"), steps("2.0", "1.0")) == ([False], [True])


def test_an_edge_back_with_a_held_image_is_a_way_back() -> None:
    found = _ask(UP, DOWN, held=frozenset({"bmc-1.0.bin"}))

    assert (found.one_way, found.why, found.blockers) == ((), (), ())
    assert (found.steps, found.resets) == (2, 1)


def test_an_image_that_is_not_held_makes_a_step_one_way() -> None:
    found = _ask(UP, DOWN, held=frozenset())

    assert found.one_way == ("host.bmc 2.0",)
    assert [b.reason for b in found.why] == [Reason.MISSING_ARTIFACT]


def test_a_fuse_makes_a_step_one_way() -> None:
    found = _ask(_edge("1.0", "2.0", one_way=True), DOWN)

    assert found.one_way == ("host.bmc 2.0",)
    assert [b.reason for b in found.why] == [Reason.ANTI_ROLLBACK]


def test_no_edge_back_makes_a_step_one_way() -> None:
    found = _ask(UP)

    assert found.one_way == ("host.bmc 2.0",)
    assert found.why[0].reason in (Reason.NO_PATH, Reason.DOWNGRADE)
    assert found.why[0].unblock


def test_a_baseline_that_the_matrix_does_not_have_is_no_way_back() -> None:
    found = _ask(UP, DOWN, baseline="forgotten")

    assert found.one_way == ()
    assert [b.reason for b in found.blockers] == [Reason.NO_PROFILE]
