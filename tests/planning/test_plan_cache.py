"""What a cache keeps from one node never changes the plan of another."""

from __future__ import annotations

from itertools import product

from provisioner import components
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release, Requirement
from provisioner.planning.path.planner import PlanCache, PlanningNode

LEVELS = ("1.0", "2.0", "3.0")
KINDS = ("host.bmc", "host.driver", "host.fabric_manager")


def build_matrix() -> Matrix:
    rules = (
        Requirement(
            name="equal",
            when={"host.driver": ">0"},
            needs={"host.fabric_manager": "=host.driver"},
            reason="it refuses to start",
        ),
        Requirement(
            name="driver and BMC",
            when={"host.driver": ">=3"},
            needs={"host.bmc": ">=2"},
            reason="tested together",
        ),
    )
    profile = Profile(match=Match(), pins={kind: Pin(version="3.0") for kind in KINDS})
    edges = {
        kind: tuple(
            Edge(
                from_versions=(start,),
                to=to,
                activates_by=Activation.BMC_RESET if kind == "host.bmc" else Activation.WARM_REBOOT,
                artifact="file",
                sha256="0" * 64,
                evidence="notes",
            )
            for start, to in (LEVELS[:2], LEVELS[1:])
        )
        for kind in KINDS
    }
    return Matrix(
        releases={"r": Release(profiles={"p": profile}, requires=rules)},
        edges=edges,
    )


def test_every_mixture_has_the_plan_that_it_has_alone() -> None:
    matrix = build_matrix()
    cache = PlanCache(matrix, components.ALL, production=True)
    nodes = [
        PlanningNode(
            Inventory(
                node="n",
                vendor="v",
                components=tuple(
                    Component(kind=kind, slot="0", version=version, source=kind, bmc="host")
                    for kind, version in zip(KINDS, versions, strict=True)
                ),
            ),
            "r",
            "p",
        )
        for versions in product(LEVELS, repeat=3)
    ]
    together = [cache.plan(node) for node in nodes]
    alone = [PlanCache(matrix, components.ALL, production=True).plan(node) for node in nodes]

    assert together == alone
