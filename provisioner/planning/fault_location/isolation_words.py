"""Records of the fault location: a fabric, its tests, their results, and the blame.

A *cell* is one node on one rail: its link to that rail's leaf. A pair test crosses two cells and
their leaves and has a result for each rail; a group test crosses all its nodes' cells and has one
result. Every record is plain JSON, so that a driver can store and replay them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from math import ceil, log
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from provisioner.model.base import Record

Cell = tuple[str, int]  # node name, rail
ALL_RAILS = -1  # the rail of a group test's one result


class FabricLink(Record):
    """One cable: the rail of the node, and its end at the leaf."""

    rail: int = Field(ge=0)
    leaf: str
    interface: str = ""
    spines: str = ""  # all that its pod's leaves have above them, such as "spines of pod 3"
    superspines: str = ""  # all that are above these


class FabricNode(Record):
    name: str
    links: tuple[FabricLink, ...]


class Culprit(StrEnum):
    """The kinds of parts that can be at fault."""

    NODE = "node"
    LINK = "link"  # one rail of one node: NIC port, cable, optic or leaf port
    LEAF = "leaf"
    UPLINK = "uplink"  # the path to other leaves: the leaf's uplinks
    CARD = "card"  # a line card of a leaf
    SPINE = "spine"  # the paths between all leaves of a rail
    POD_SPINE = "pod_spine"  # a pod's spines: the paths from all its leaves
    POD_UPLINK = "pod_uplink"  # the path to other pods: the uplinks of a pod's spines
    SUPERSPINE = "superspine"  # the paths between all pods
    RAIL = "rail"  # everything on one rail
    RACK = "rack"
    FEED = "feed"  # a power feed
    CABLE = "cable"  # only with counters from both ends
    OPTIC = "optic"  # only with counters from both ends


# of equally good explanations of the same cells, the smallest part comes first
PART_ORDER = (
    Culprit.LINK,
    Culprit.NODE,
    Culprit.CARD,
    Culprit.LEAF,
    Culprit.UPLINK,
    Culprit.RACK,
    Culprit.FEED,
    Culprit.SPINE,
    Culprit.POD_UPLINK,
    Culprit.POD_SPINE,
    Culprit.SUPERSPINE,
    Culprit.RAIL,
)
POD_PATHS = frozenset({Culprit.POD_UPLINK, Culprit.SUPERSPINE})  # of tests between pods only
# of tests between leaves only
PATHS = POD_PATHS | {Culprit.UPLINK, Culprit.SPINE, Culprit.POD_SPINE}
_RANKS = {kind: rank for rank, kind in enumerate(PART_ORDER)}


class Part(NamedTuple):
    """One part that can be at fault; parts are ordered from small to large."""

    rank: int  # its place in `PART_ORDER`
    name: str
    rail: int = -1

    @property
    def kind(self) -> Culprit:
        return PART_ORDER[self.rank]


class CellParts(NamedTuple):
    """The parts that a cell depends on: always, for tests with another leaf, and with another
    pod.
    """

    inner: frozenset[Part]
    paths: frozenset[Part]
    pod_paths: frozenset[Part]


class SharedPart(Record):
    """A part of which many cells depend: a line card of a leaf, a rack, or a power feed."""

    kind: Culprit
    name: str
    cells: tuple[Cell, ...]


class Fabric(Record):
    """Nodes with their links. A leaf's name is unique in the fabric.

    A rail may have a link in each of several planes, over which its tests are spread: its cell
    depends on all these leaves, and the first of them says which cells are on one leaf.
    """

    nodes: tuple[FabricNode, ...]
    shared: tuple[SharedPart, ...] = ()  # as far as the site's plan names them

    @model_validator(mode="after")
    def _distinct(self) -> Fabric:
        if len({n.name for n in self.nodes}) != len(self.nodes):
            raise ValueError("two nodes have one name")
        for node in self.nodes:
            if len({(link.rail, link.leaf) for link in node.links}) != len(node.links):
                raise ValueError(f"{node.name}: two links on one rail of one leaf")
        return self

    @cached_property
    def leaf_of(self) -> dict[Cell, str]:
        """Return cell -> leaf."""
        return {cell: link.leaf for cell, link in self._first_links.items()}

    @cached_property
    def pod_of_leaf(self) -> dict[str, str]:
        """Return leaf -> the spines above it, which name its pod; "": not known."""
        return {link.leaf: link.spines for link in self._first_links.values()}

    @cached_property
    def pod_of_node(self) -> dict[str, str]:
        """Return node -> its pod, by the spines above its first rail."""
        return {n.name: n.links[0].spines if n.links else "" for n in self.nodes}

    @cached_property
    def pods(self) -> frozenset[str]:
        return frozenset(self.pod_of_leaf.values()) - {""}

    @cached_property
    def _first_links(self) -> dict[Cell, FabricLink]:
        """Return cell -> its link in the first plane."""
        return {(n.name, link.rail): link for n in self.nodes for link in reversed(n.links)}

    @cached_property
    def cells_of_leaf(self) -> dict[str, tuple[Cell, ...]]:
        """Return leaf -> its cells, in the order of the fabric."""
        by_leaf: dict[str, list[Cell]] = {}
        for cell, leaf in self.leaf_of.items():
            by_leaf.setdefault(leaf, []).append(cell)
        return {leaf: tuple(cells) for leaf, cells in by_leaf.items()}

    @cached_property
    def leaves_of_rail(self) -> dict[int, dict[str, Cell]]:
        """Return rail -> its leaves, each with one of its cells."""
        leaves: dict[int, dict[str, Cell]] = {}
        for cell, leaf in self.leaf_of.items():
            leaves.setdefault(cell[1], {}).setdefault(leaf, cell)
        return leaves

    @cached_property
    def shared_by(self) -> dict[Cell, tuple[tuple[Culprit, str], ...]]:
        """Return cell -> the declared parts that it shares with others."""
        parts: dict[Cell, list[tuple[Culprit, str]]] = {}
        for part in self.shared:
            for cell in part.cells:
                parts.setdefault(cell, []).append((part.kind, part.name))
        return {cell: tuple(listed) for cell, listed in parts.items()}

    @cached_property
    def parts_of(self) -> dict[Cell, CellParts]:
        """Return cell -> the parts that it depends on."""
        links: dict[Cell, list[FabricLink]] = {}
        for node in self.nodes:
            for link in node.links:
                links.setdefault((node.name, link.rail), []).append(link)
        return {
            (node, rail): CellParts(
                frozenset(
                    (
                        Part(_RANKS[Culprit.LINK], node, rail),
                        Part(_RANKS[Culprit.NODE], node),
                        *(Part(_RANKS[Culprit.LEAF], link.leaf) for link in mine),
                        Part(_RANKS[Culprit.RAIL], f"rail {rail}"),
                        *(Part(_RANKS[k], n) for k, n in self.shared_by.get((node, rail), ())),
                    )
                ),
                frozenset(
                    (
                        *(Part(_RANKS[Culprit.UPLINK], link.leaf) for link in mine),
                        Part(_RANKS[Culprit.SPINE], f"rail {rail}"),
                        *(Part(_RANKS[Culprit.POD_SPINE], s) for s in _known(mine, "spines")),
                    )
                ),
                frozenset(
                    (
                        *(
                            Part(_RANKS[Culprit.POD_UPLINK], f"uplinks of {spines}")
                            for spines in _known(mine, "spines")
                        ),
                        *(Part(_RANKS[Culprit.SUPERSPINE], s) for s in _known(mine, "superspines")),
                    )
                ),
            )
            for (node, rail), mine in links.items()
        }

    def crosses_pods(self, leaf: str, other: str) -> bool:
        """Return whether two leaves are in different pods, as far as these are known."""
        pods = {self.pod_of_leaf[leaf], self.pod_of_leaf[other]}
        return len(pods - {""}) > 1

    def find_way(self, one: Cell, other: Cell) -> frozenset[Part]:
        """Return the parts that a test between two cells depends on; kept for each pair."""
        way = self._ways.get((one, other))
        if way is None:
            first = self.parts_of[one]
            second = self.parts_of[other]
            way = first.inner | second.inner
            leaves = self.leaf_of[one], self.leaf_of[other]
            if leaves[0] != leaves[1]:
                way = way | first.paths | second.paths
            if self.crosses_pods(*leaves):
                way = way | first.pod_paths | second.pod_paths
            self._ways[one, other] = way
        return way

    def find_cells(self, part: Part) -> frozenset[Cell]:
        """Return the cells whose tests a part can fail; of a path, those that go far enough."""
        return self._cells_of_part[part]

    def find_parts_within(self, whole: Part) -> tuple[Part, ...]:
        """Return the smaller parts all of whose cells depend on this one, without paths."""
        if whole not in self._parts_within:
            cells = self._cells_of_part[whole]
            parts = {part for cell in cells for part in self.parts_of[cell].inner}
            self._parts_within[whole] = tuple(
                sorted(
                    part
                    for part in parts
                    if part.rank < whole.rank and self._cells_of_part[part] < cells
                )
            )
        return self._parts_within[whole]

    @cached_property
    def _cells_of_part(self) -> dict[Part, frozenset[Cell]]:
        cells: dict[Part, set[Cell]] = {}
        for cell, parts in self.parts_of.items():
            for part in parts.inner | parts.paths | parts.pod_paths:
                cells.setdefault(part, set()).add(cell)
        return {part: frozenset(listed) for part, listed in cells.items()}

    @cached_property
    def _parts_within(self) -> dict[Part, tuple[Part, ...]]:
        return {}

    @cached_property
    def _ways(self) -> dict[tuple[Cell, Cell], frozenset[Part]]:
        return {}

    @cached_property
    def rails_of(self) -> dict[str, tuple[int, ...]]:
        """Return node -> its rails."""
        return {n.name: tuple(dict.fromkeys(li.rail for li in n.links)) for n in self.nodes}

    @cached_property
    def group_of(self) -> dict[str, tuple[str, ...]]:
        """Return node -> its leaves: nodes with equal leaves are in one scalable unit."""
        return {n.name: tuple(sorted(link.leaf for link in n.links)) for n in self.nodes}


def _known(links: Sequence[FabricLink], tier: str) -> frozenset[str]:
    """Return the groups of switches of a tier above these links, as far as they are known."""
    return frozenset(getattr(link, tier) for link in links) - {""}


class FabricTestKind(StrEnum):
    PAIR = "pair"  # two nodes, all rails at once, with a result for each rail
    RAIL = "rail"  # two nodes, only the rails in question, without traffic on others
    GROUP = "group"  # a collective over k nodes and all rails: one result


class FabricTest(Record):
    """One test to run. No two tests of a round share a node."""

    name: str  # unique in a campaign
    kind: FabricTestKind
    nodes: tuple[str, ...] = Field(min_length=2)
    rails: tuple[int, ...]


class RailOutcome(StrEnum):
    PASS = "pass"  # noqa: S105 (an outcome, not a password)
    FAIL = "fail"  # it ended with an error
    TIMEOUT = "timeout"  # it did not end: counts as a failure
    WRONG_DATA = "wrong_data"  # data arrived corrupted: never outweighed by passes
    NOT_RUN = "not_run"  # no information: the daemon, the agent or the tool was not available


class RailResult(Record):
    """One rail's result; `ratio` is the bandwidth over the cohort's median (1.0: equal to it)."""

    rail: int  # ALL_RAILS for a group test
    shown: RailOutcome
    ratio: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    detail: str = ""  # what the test said of a failure


class Observation(Record):
    test: FabricTest
    round_number: int = Field(ge=0)
    results: tuple[RailResult, ...]


class IsolationPolicy(Record):
    """Certainty and costs of the fault location. Minutes are of one test, on each of its nodes."""

    noise: float = Field(default=0.03, gt=0.0, lt=0.5)  # the share of single results that are wrong
    # probability of condemning any innocent part by chance, over all cells of a campaign (Wald's
    # bound)
    innocent_risk: float = Field(default=1e-4, gt=0.0, lt=1.0)
    # probability of clearing one faulty cell that fails at `rate_min` or more
    miss_risk: float = Field(default=2e-3, gt=0.0, lt=1.0)
    # the lowest failure rate that is looked for: lower ones take more rounds of screening
    rate_min: float = Field(default=1.0, ge=0.1, le=1.0)
    partners_min: int = Field(default=3, ge=3)  # good ones that failed with the culprit
    # SuperBench's variance rule: 5 % below the baseline is a defect (microsoft/superbenchmark)
    slow_below: float = Field(default=0.95, gt=0.0, le=1.0)
    group_size: int = Field(default=0, ge=0)  # nodes of a screening collective; 0: pairs
    screenings: int = Field(default=2, ge=1)  # rounds in which all nodes are tested
    rounds_max: int = Field(default=40, ge=1)
    trials_max: int = Field(default=24, ge=4)  # tests of one node; then it stays undecided
    # more blame at once than this share of nodes or of leaves has a common cause: no part is
    # condemned (NVSentinel's circuit breaker does likewise)
    held_share: float = Field(default=0.25, gt=0.0, le=1.0)
    pair_minutes: float = Field(default=2.0, gt=0.0)
    rail_minutes: float = Field(default=2.0, gt=0.0)
    group_minutes: float = Field(default=2.0, gt=0.0)

    def weigh_result(self) -> tuple[float, float]:
        """Return what a failure and a pass add to the odds that a cell fails at `rate_min`."""
        rate = self.noise + (1 - 2 * self.noise) * self.rate_min
        return log(rate / self.noise), log((1 - rate) / (1 - self.noise))

    @property
    def screening_rounds(self) -> int:
        """Return the rounds in which all nodes are tested, so that most cells are cleared."""
        _, by_pass = self.weigh_result()
        return max(self.screenings, ceil(log(self.miss_risk) / by_pass - 1e-9))

    @property
    def tests_max(self) -> int:
        """Return the tests after which a node stays undecided: more, the lower the rate."""
        return max(self.trials_max, 12 * self.screening_rounds)

    def get_minutes(self, kind: FabricTestKind) -> float:
        minutes: float = getattr(self, f"{kind}_minutes")
        return minutes


class Blame(Record):
    culprit: Culprit
    node: str = ""
    rail: int = -1
    leaf: str = ""
    group: str = ""  # of a shared part: its name, such as "rail 3"
    rate: float = 1.0  # the share of its tests that it fails, as fitted
    end: Literal["", "node", "leaf"] = ""  # of an optic: the end that it is in
    # 1 minus a bound on the probability that noise alone causes this anywhere in the campaign
    confidence: float
    reason: str
    slow: float | None = None  # median ratio, if it is slow but not failing
    partners: tuple[str, ...] = ()  # good nodes that failed with it, bounded
    tests: tuple[str, ...] = ()  # names of the tests that count, bounded

    def __str__(self) -> str:
        rail = f"rail {self.rail}" if self.rail >= 0 else ""
        where = " ".join(w for w in (self.node, rail, self.leaf, self.group) if w)
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
    undecided: tuple[Blame, ...]  # suspicious but not proved: never a reason for replacement
    held: str = ""  # why no part is condemned in spite of evidence; "": not held back
    cleared: int  # cells that are proved good
    rate_missed: float = 0.0  # a cleared cell may still fail at a lower rate than this
    untested: tuple[str, ...] = ()  # nodes without any result
    rounds: int
    node_minutes: float
