"""A fabric session: nodes that are tested with one another, what was run, and what came of it.

A session is an operation of its own kind: no node's driver runs it. Each node waits for its own
`FabricOutcome`; a daemon that was gone goes on from the runs that are stored here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.health import CheckResult
from provisioner.model.location import Port
from provisioner.model.outcome import Blocker


class FabricMember(Record):
    """One node of a session, as it was when it came in; whoever is not so any more has left."""

    node: str
    seeks: bool  # it needs a result; else it is lent, and its certificate stays as it is
    bound: str  # what was installed: the report's inventory digest, or the lent certificate's id
    entered_at: float  # when it entered its state
    ports: tuple[Port, ...]


class RailRun(Record):
    """How one rail of a test ended: `planning/isolation_words.Shown`, and what was measured."""

    rail: int  # -1: all of them, in a collective
    shown: Literal["pass", "fail", "timeout", "wrong_data", "not_run"]
    gbit_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    bus_gb_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)  # of NCCL, if asked
    # of a collective over more than two nodes
    alltoall_gb_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    detail: str = ""


class Counted(Record):
    """What one end of a cable received damaged while a test ran; Unix seconds."""

    damaged: int = Field(ge=0)  # frames or blocks
    link_downs: int = Field(default=0, ge=0)
    began_at: float
    ended_at: float


class CableEnds(Record):
    """Both ends of the cable of one node on one rail; None: that end told nothing."""

    node: str
    rail: int
    at_node: Counted | None = None
    at_leaf: Counted | None = None
    detachable: bool = True  # False: copper, without optics


class FabricRun(Record):
    """One test among nodes. `evidence`: SHA-256 of the raw outputs."""

    test: str
    kind: Literal["pair", "rail", "group"]
    nodes: tuple[str, ...] = Field(min_length=2)  # of a pair (server, client)
    round_number: int
    results: tuple[RailRun, ...]
    ends: tuple[CableEnds, ...] = ()  # of tests of suspects
    evidence: str = ""


class FabricSession(Record):
    """`generation` grows by one with every write. `ended_at` 0: it is under way."""

    id: str
    generation: int = 0
    vrf: str
    release: str
    profile: str
    opened_at: float
    ended_at: float = 0.0
    members: tuple[FabricMember, ...]
    gone: tuple[str, ...] = ()  # members that left before the end
    runs: tuple[FabricRun, ...] = ()
    note: str = ""  # how it ended, for people

    @property
    def last_round(self) -> int:
        """The number of the last round that was run; -1: none was."""
        return max((r.round_number for r in self.runs), default=-1)

    @property
    def present(self) -> tuple[FabricMember, ...]:
        """Members that have not left."""
        return tuple(m for m in self.members if m.node not in self.gone)


class FabricOutcome(Record):
    """What a session says of one node, or of a leaf. No blockers: it passed."""

    node: str
    session: str
    bound: str = ""  # as its member's: for other parts this says nothing
    began_at: float
    ended_at: float
    blockers: tuple[Blocker, ...] = ()
    results: tuple[CheckResult, ...] = ()
    partners: tuple[str, ...] = ()  # whom it was tested with

    @property
    def passed(self) -> bool:
        """Whether every rail of it was proved good."""
        return not self.blockers and bool(self.results)
