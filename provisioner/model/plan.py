"""Plans: steps with their preconditions, or blockers with instructions that would remove them."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker


class Disruption(StrEnum):
    """The service that a step interrupts while it runs, from none to most."""

    NONE = "none"
    BMC = "bmc"  # the BMC does not answer for a while
    NIC = "nic"  # traffic of one NIC stops
    HOST = "host"  # the host is down
    SWITCH = "switch"  # a leaf or spine forwards no traffic


class StepKind(StrEnum):
    UPDATE = "update"  # write a version into one or more slots of a component
    ACTIVATE = "activate"  # one reset that activates everything it covers


class Precondition(Record):
    """A precondition of a step; the executor refuses the step if it no longer holds."""

    kind: str
    slot: str
    version: str | None  # running version
    staged: str | None = None


class Step(Record):
    """One action of a plan. An update names a component and its slots; an activation names a reset.

    `carries` are other components whose versions change with this one (a BFB carries NIC firmware).
    """

    kind: StepKind
    component: str = ""  # UPDATE: component kind
    slots: tuple[str, ...] = ()
    from_version: str = ""
    to_version: str = ""
    carries: tuple[tuple[str, str], ...] = ()  # (component kind, version)
    method: str = ""  # name of the update method, from components/
    artifact: str = ""  # file name in the artifact store; "" for methods that need none
    sha256: str = ""
    force: bool = False  # UPDATE: an older or the same version, otherwise refused or skipped
    activation: Activation  # UPDATE: the reset that it will need; ACTIVATE: the reset to do
    bmcs: tuple[str, ...] = ()  # ACTIVATE by bmc_reset: which BMCs
    activates: tuple[tuple[str, str], ...] = ()  # ACTIVATE: (component kind/slot, version)
    disruption: Disruption
    duration_s: int  # estimate
    expected: tuple[Precondition, ...]
    reason: str  # one sentence: why this, why now

    @property
    def title(self) -> str:
        """Return a short title for tables: "hgx.bundle 1 → 2" or "cold_boot (2 waiting)"."""
        if self.kind is StepKind.ACTIVATE:
            return f"{self.activation} ({len(self.activates)} waiting)"
        return f"{self.component} {self.from_version} → {self.to_version}"


class StagedFact(Record):
    """A version that the ledger records as written; the device may not report it until it runs."""

    kind: str
    slot: str
    version: str
    activation: Activation


class History(Record):
    """The facts of the ledger about one node that the planner uses."""

    staged: tuple[StagedFact, ...] = ()
    # (component kind, slot, version, failed attempts): a step tried too often becomes a blocker
    failures: tuple[tuple[str, str, str, int], ...] = ()
    # (component kind, slot, version): written and activated, without an error, as often as is
    # sensible; if the version still does not run, the step is not repeated
    completed: tuple[tuple[str, str, str], ...] = ()


class Neighbour(Record):
    """The versions on the other end of this node's cables, for rules between nodes and switches."""

    node: str
    versions: dict[str, tuple[str, ...]]  # component kind -> distinct running versions


class Plan(Record):
    """The planner's whole answer. With `blockers`, the release cannot be reached now.

    With `in_flight`, something is being written or copied: observe again later, and do nothing now.
    """

    node: str
    release: str
    profile: str
    steps: tuple[Step, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    in_flight: tuple[str, ...] = ()
    outages: int = 0
    resets: int = 0
    duration_s: int = 0

    @property
    def done(self) -> bool:
        """Return whether all pinned versions run, with nothing pending, in flight or blocked."""
        return not (self.steps or self.blockers or self.in_flight)
