"""Fabrics with planted faults, and a world that answers tests about them with noise."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from provisioner.planning.fault_location.isolation import Campaign
from provisioner.planning.fault_location.isolation_words import (
    ALL_RAILS,
    Blame,
    Cell,
    Culprit,
    Fabric,
    FabricLink,
    FabricNode,
    FabricTest,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    RailOutcome,
    RailResult,
    SharedPart,
    Verdicts,
)

UNIT = 32  # nodes of a scalable unit
SUPERSPINES = "superspines"


def shared_parts(nodes: int, rails: int = 8, unit: int = UNIT) -> tuple[SharedPart, ...]:
    """Two line cards in a leaf, four nodes in a rack, sixteen on a power feed."""
    cells: dict[tuple[Culprit, str], list[Cell]] = {}
    for i in range(nodes):
        for r in range(rails):
            card = f"su{i // unit}-rail{r}/card{i % unit * 2 // unit}"
            for key in (
                (Culprit.CARD, card),
                (Culprit.RACK, f"rack{i // 4}"),
                (Culprit.FEED, f"feed{i // 16}"),
            ):
                cells.setdefault(key, []).append((f"n{i:04}", r))
    return tuple(
        SharedPart(kind=kind, name=name, cells=tuple(listed))
        for (kind, name), listed in cells.items()
    )


def fabric_of(
    nodes: int,
    rails: int = 8,
    unit: int = UNIT,
    shared: tuple[SharedPart, ...] = (),
    pod: int = 0,
) -> Fabric:
    """Rail-optimised: the nodes of a unit share one leaf per rail; those of a pod its spines."""
    return Fabric(
        shared=shared,
        nodes=tuple(
            FabricNode(
                name=f"n{i:04}",
                links=tuple(
                    FabricLink(
                        rail=r,
                        leaf=f"su{i // unit}-rail{r}",
                        spines=f"spines of pod {i // pod}" if pod else "",
                        superspines=SUPERSPINES if pod else "",
                    )
                    for r in range(rails)
                ),
            )
            for i in range(nodes)
        ),
    )


def tier_parts(fabric: Fabric, kind: Culprit) -> list[tuple[Culprit, str]]:
    """Every part of a kind above the leaves of pods."""
    if kind is Culprit.SUPERSPINE:
        return [(kind, SUPERSPINES)]
    before = "uplinks of " if kind is Culprit.POD_UPLINK else ""
    return [(kind, f"{before}{pod}") for pod in sorted(fabric.pods)]


@dataclass
class World:
    """What is planted, and how often a single result is wrong."""

    fabric: Fabric
    rng: random.Random
    noise: float = 0.03
    nodes: set[str] = field(default_factory=set)
    links: set[Cell] = field(default_factory=set)
    leaves: set[str] = field(default_factory=set)
    uplinks: set[str] = field(default_factory=set)
    shared: set[tuple[Culprit, str]] = field(default_factory=set)  # cards, rails, racks, feeds
    slow: dict[object, float] = field(default_factory=dict)  # planted thing -> its ratio
    rate: float = 1.0  # the share of tests that a planted thing fails

    def run(self, test: FabricTest, number: int) -> Observation:
        rails = test.rails if test.kind is not FabricTestKind.GROUP else (ALL_RAILS,)
        return Observation(
            test=test, round_number=number, results=tuple(self._result(test, r) for r in rails)
        )

    def _result(self, test: FabricTest, rail: int) -> RailResult:
        crossed = {
            part
            for part in sorted(
                self._crossed(test, test.rails if rail == ALL_RAILS else (rail,)), key=str
            )
            if self.rate >= 1.0 or self.rng.random() < self.rate
        }
        slow = min((self.slow[c] for c in crossed if c in self.slow), default=1.0)
        hard = any(c not in self.slow for c in crossed)
        if self.rng.random() < self.noise:  # a wrong result
            bad = bool(crossed)
            return RailResult(rail=rail, shown=RailOutcome.PASS if bad else RailOutcome.FAIL)
        if hard:
            return RailResult(
                rail=rail, shown=self.rng.choice([RailOutcome.FAIL, RailOutcome.TIMEOUT])
            )
        ratio = slow * self.rng.gauss(1.0, 0.01)
        return RailResult(rail=rail, shown=RailOutcome.PASS, ratio=ratio)

    def _crossed(self, test: FabricTest, rails: tuple[int, ...]) -> set[object]:
        """The planted things on a test's way."""
        found: set[object] = {n for n in test.nodes if n in self.nodes}
        for rail in rails:
            leaves = {self.fabric.leaf_of[n, rail] for n in test.nodes}
            found |= {(n, rail) for n in test.nodes if (n, rail) in self.links}
            found |= leaves & self.leaves
            cells = {(n, rail) for n in test.nodes}
            found |= {
                s for c in cells for s in self.fabric.shared_by.get(c, ()) if s in self.shared
            }
            found |= {(Culprit.RAIL, f"rail {rail}")} & self.shared
            if len(leaves) > 1:
                found |= {(Culprit.SPINE, f"rail {rail}")} & self.shared
                found |= {("up", leaf) for leaf in leaves & self.uplinks}
                found |= self._crossed_above({self.fabric.pod_of_leaf[leaf] for leaf in leaves})
        return found

    def _crossed_above(self, pods: set[str]) -> set[tuple[Culprit, str]]:
        above = {(Culprit.POD_SPINE, pod) for pod in pods}
        if len(pods) > 1:
            above |= {(Culprit.POD_UPLINK, f"uplinks of {pod}") for pod in pods}
            above |= {(Culprit.SUPERSPINE, SUPERSPINES)}
        return above & self.shared

    def planted(self) -> set[tuple[Culprit, str, int]]:
        return (
            {(Culprit.NODE, n, -1) for n in self.nodes}
            | {(Culprit.LINK, n, r) for n, r in self.links}
            | {(Culprit.LEAF, leaf, -1) for leaf in self.leaves}
            | {(Culprit.UPLINK, leaf, -1) for leaf in self.uplinks}
            | {(kind, name, -1) for kind, name in self.shared}
        )


def plant(
    world: World, *, nodes: int = 0, links: int = 0, leaves: int = 0, uplinks: int = 0
) -> World:
    """Chooses so many faults of each sort, none hidden behind another."""
    rng, fabric = world.rng, world.fabric
    all_leaves = sorted(fabric.cells_of_leaf)
    chosen = rng.sample(all_leaves, leaves + uplinks)
    world.leaves = set(chosen[:leaves])
    world.uplinks = set(chosen[leaves:])
    names = [n.name for n in fabric.nodes]
    world.nodes = set(rng.sample(names, nodes))
    free = [
        c
        for c, leaf in fabric.leaf_of.items()
        if c[0] not in world.nodes and leaf not in world.leaves and leaf not in world.uplinks
    ]
    world.links = set(rng.sample(free, links))
    return world


def name_of(blame: Blame) -> tuple[Culprit, str, int]:
    return blame.culprit, blame.node or blame.leaf or blame.group, blame.rail


def isolate(world: World, policy: IsolationPolicy) -> Verdicts:
    """The whole campaign."""
    campaign = Campaign(world.fabric, policy)
    while True:
        step = campaign.plan_next_round()
        if isinstance(step, Verdicts):
            return step
        campaign.add(world.run(test, step.number) for test in step.tests)
