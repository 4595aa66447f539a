"""The words of fault isolation: a fabric, its tests, what they showed, and who is to blame.

A *cell* is one node on one rail: its link to that rail's leaf. A pair test crosses two cells and
their leaves, and tells each rail's result apart; a group test crosses all its nodes' cells and
tells one result. Every record is plain JSON, so that a driver can store and replay them.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from provisioner.model.base import Record

Cell = tuple[str, int]  # node name, rail
ALL_RAILS = -1  # the rail of a group test's one result


class FabricLink(Record):
    """One cable: which rail of the node, and where it ends."""

    rail: int = Field(ge=0)
    leaf: str
    interface: str = ""


class FabricNode(Record):
    name: str
    links: tuple[FabricLink, ...]


class Fabric(Record):
    """Nodes with their links. A leaf's name is unique in the fabric."""

    nodes: tuple[FabricNode, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Fabric:
        if len({n.name for n in self.nodes}) != len(self.nodes):
            raise ValueError("two nodes have one name")
        for node in self.nodes:
            if len({link.rail for link in node.links}) != len(node.links):
                raise ValueError(f"{node.name}: two links on one rail")
        return self

    @cached_property
    def leaf_of(self) -> dict[Cell, str]:
        """Cell -> leaf."""
        return {(n.name, link.rail): link.leaf for n in self.nodes for link in n.links}

    @cached_property
    def cells_of_leaf(self) -> dict[str, tuple[Cell, ...]]:
        """Leaf -> its cells, in the order of the fabric."""
        found: dict[str, list[Cell]] = {}
        for cell, leaf in self.leaf_of.items():
            found.setdefault(leaf, []).append(cell)
        return {leaf: tuple(cells) for leaf, cells in found.items()}

    @cached_property
    def rails_of(self) -> dict[str, tuple[int, ...]]:
        """Node -> its rails."""
        return {n.name: tuple(link.rail for link in n.links) for n in self.nodes}

    @cached_property
    def group_of(self) -> dict[str, tuple[str, ...]]:
        """Node -> its leaves: nodes with equal ones stand in one scalable unit."""
        return {n.name: tuple(sorted(link.leaf for link in n.links)) for n in self.nodes}


class FabricTestKind(StrEnum):
    PAIR = "pair"  # two nodes, all rails at once, each rail's result apart
    RAIL = "rail"  # two nodes, only the rails in question: the others are quiet
    GROUP = "group"  # a collective over k nodes and all rails: one result


class FabricTest(Record):
    """One test to run. Nodes are in it alone: tests of a round share none."""

    name: str  # unique in a campaign
    kind: FabricTestKind
    nodes: tuple[str, ...] = Field(min_length=2)
    rails: tuple[int, ...]


class Shown(StrEnum):
    """How one rail of a test ended."""

    PASS = "pass"  # noqa: S105 (an outcome, not a password)
    FAIL = "fail"  # it ended, and not well
    TIMEOUT = "timeout"  # it did not end: counts as a failure
    WRONG_DATA = "wrong_data"  # data arrived corrupted: never outweighed by passes
    NOT_RUN = "not_run"  # it tells nothing: the daemon, the agent or the tool was not there


class RailResult(Record):
    """One rail's result; `ratio` is the bandwidth over the cohort's median (1.0: as everybody)."""

    rail: int  # ALL_RAILS for a group test
    shown: Shown
    ratio: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)


class Observation(Record):
    """A test with what it showed."""

    test: FabricTest
    round_number: int = Field(ge=0)
    results: tuple[RailResult, ...]


class IsolationPolicy(Record):
    """How sure to be, and what a test costs. Minutes are of one test, on each of its nodes."""

    noise: float = Field(default=0.03, gt=0.0, lt=0.5)  # a single result is wrong that often
    # of condemning anybody innocent by chance, over all cells of a campaign (Wald's bound)
    innocent_risk: float = Field(default=1e-4, gt=0.0, lt=1.0)
    miss_risk: float = Field(default=2e-3, gt=0.0, lt=1.0)  # of clearing one faulty cell
    partners_min: int = Field(default=3, ge=3)  # known-good ones that failed with the culprit
    # SuperBench's variance rule: 5 % below the baseline is a defect (microsoft/superbenchmark)
    slow_below: float = Field(default=0.95, gt=0.0, le=1.0)
    leaf_share: float = Field(default=0.75, gt=0.5, le=1.0)  # of a leaf's tests that fail
    group_size: int = Field(default=0, ge=0)  # nodes of a screening collective; 0: pairs
    screenings: int = Field(default=2, ge=1)  # rounds in which everybody is tested
    rounds_max: int = Field(default=40, ge=1)
    trials_max: int = Field(default=24, ge=4)  # of one cell; then it stays undecided
    # more blame at once than this share of nodes or of leaves has a common cause: nobody is
    # condemned (NVSentinel's circuit breaker does likewise)
    held_share: float = Field(default=0.25, gt=0.0, le=1.0)
    pair_minutes: float = Field(default=2.0, gt=0.0)
    rail_minutes: float = Field(default=2.0, gt=0.0)
    group_minutes: float = Field(default=2.0, gt=0.0)

    def minutes(self, kind: FabricTestKind) -> float:
        """How long a test of this kind occupies each of its nodes."""
        return {
            FabricTestKind.PAIR: self.pair_minutes,
            FabricTestKind.RAIL: self.rail_minutes,
            FabricTestKind.GROUP: self.group_minutes,
        }[kind]


class Culprit(StrEnum):
    """What can be to blame."""

    NODE = "node"
    LINK = "link"  # one rail of one node: NIC port, cable, optic or leaf port
    LEAF = "leaf"
    UPLINK = "uplink"  # a leaf's way to other leaves: its uplinks, or a spine
    CABLE = "cable"  # only with counters from both ends
    OPTIC = "optic"  # only with counters from both ends


class Blame(Record):
    """One culprit, or suspect, with why."""

    culprit: Culprit
    node: str = ""
    rail: int = -1
    leaf: str = ""
    end: Literal["", "node", "leaf"] = ""  # of an optic: at which end it sits
    # 1 minus a bound on the chance that noise alone shows this anywhere in the campaign
    confidence: float
    reason: str
    slow: float | None = None  # median ratio, if it is slow rather than failing
    partners: tuple[str, ...] = ()  # known-good ones that failed with it, bounded
    tests: tuple[str, ...] = ()  # names of the tests that count, bounded

    def __str__(self) -> str:
        where = " ".join(
            w for w in (self.node, f"rail {self.rail}" if self.rail >= 0 else "", self.leaf) if w
        )
        return f"{self.culprit} {where}: {self.reason}"


class Round(Record):
    """Tests that can run at the same time."""

    kind: Literal["round"] = "round"
    number: int
    why: str
    tests: tuple[FabricTest, ...]
    node_minutes: float


class Verdicts(Record):
    """The end of a campaign."""

    kind: Literal["verdicts"] = "verdicts"
    condemned: tuple[Blame, ...]
    undecided: tuple[Blame, ...]  # suspicious, and not proved: never to be replaced on this
    held: str = ""  # why nobody is condemned although there is evidence; "": not held
    cleared: int  # cells that are proved good
    untested: tuple[str, ...] = ()  # nodes nothing is known of
    rounds: int
    node_minutes: float
