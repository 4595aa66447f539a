"""Fabric sessions: nodes that are tested with one another, the runs, and their outcomes.

A session is an operation of its own kind: it belongs to no node's driver. Each node waits for its
own `FabricOutcome`; a restarted daemon continues from the runs that are stored here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.cohort import CheckResult
from provisioner.model.location import Port
from provisioner.model.outcome import Blocker


class FabricMember(Record):
    """One node of a session, as it was when it joined; a node that has changed since then has
    left.
    """

    node: str
    seeks: bool  # it needs a result; otherwise it is lent, and its certificate stays unchanged
    bound: str  # the report's inventory digest, or the lent certificate's id
    entered_at: float  # when it entered its state
    ports: tuple[Port, ...]
    rack: str = ""
    pdus: tuple[str, ...] = ()  # that its outlets are of


class RailRun(Record):
    """The outcome of one rail of a test (`planning/fault_location/isolation_words.Shown`) and its
    measurements.
    """

    rail: int  # -1: all of them, in a collective
    shown: Literal["pass", "fail", "timeout", "wrong_data", "not_run"]
    gbit_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    bus_gb_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)  # of NCCL, if asked
    # of a collective over more than two nodes
    alltoall_gb_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    training: Mapping[str, float] = Field(default_factory=dict)  # what a training step measured
    detail: str = ""


class DamageCount(Record):
    """Damaged data that one end of a cable received while a test ran. Times are Unix seconds."""

    damaged: int = Field(ge=0)  # frames or blocks
    link_downs: int = Field(default=0, ge=0)
    began_at: float
    ended_at: float


class CableEnds(Record):
    """Both ends of the cable of one node on one rail; None: that end reported nothing."""

    node: str
    rail: int
    at_node: DamageCount | None = None
    at_leaf: DamageCount | None = None
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
    """A session. `generation` grows by one with every write; `ended_at` 0: it is under way."""

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
    doors: tuple[tuple[str, ...], ...] = ()  # nodes that may connect to each other now, for mpirun
    note: str = ""  # how it ended, for people

    @property
    def last_round(self) -> int:
        """Return the number of the last round that was run; -1: none was."""
        return max((r.round_number for r in self.runs), default=-1)

    @property
    def present(self) -> tuple[FabricMember, ...]:
        """Return the members that have not left."""
        return tuple(m for m in self.members if m.node not in self.gone)


class FabricOutcome(Record):
    """The outcome of a session for one node or leaf. It passed if there are no blockers."""

    node: str
    session: str
    bound: str = ""  # as of its member: for other installed parts this outcome is no evidence
    began_at: float
    ended_at: float
    blockers: tuple[Blocker, ...] = ()
    results: tuple[CheckResult, ...] = ()
    partners: tuple[str, ...] = ()  # nodes it was tested with

    @property
    def passed(self) -> bool:
        return not self.blockers and bool(self.results)
