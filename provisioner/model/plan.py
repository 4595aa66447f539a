"""What to do next: steps with what must still be true, or what blocks and what would unblock."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Blocker


class Disruption(StrEnum):
    """What a step takes away while it runs, from nothing to most."""

    NONE = "none"
    BMC = "bmc"  # the BMC answers nothing for a while
    NIC = "nic"  # traffic of one NIC stops
    HOST = "host"  # the host is down
    SWITCH = "switch"  # a leaf or spine forwards nothing


class StepKind(StrEnum):
    UPDATE = "update"  # write a version into one or more slots of a component
    ACTIVATE = "activate"  # one reset that activates everything it covers


class Expected(Record):
    """A precondition of a step; the executor refuses the step if it is no longer so."""

    kind: str
    slot: str
    version: str | None  # running version
    staged: str | None = None


class Step(Record):
    """One thing to do. An update names a component and its slots; an activation names a reset.

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
    force: bool = False  # UPDATE: an older or the same version, else refused or skipped
    activation: Activation  # UPDATE: what it will wait for; ACTIVATE: the reset to do
    bmcs: tuple[str, ...] = ()  # ACTIVATE by bmc_reset: which BMCs
    activates: tuple[tuple[str, str], ...] = ()  # ACTIVATE: (component kind/slot, version)
    disruption: Disruption
    duration_s: int  # estimate
    expected: tuple[Expected, ...]
    reason: str  # one sentence: why this, why now

    @property
    def title(self) -> str:
        """Short words for tables: "hgx.bundle 1 → 2" or "cold_boot activates ..."."""
        if self.kind is StepKind.ACTIVATE:
            return f"{self.activation} ({len(self.activates)} waiting)"
        return f"{self.component} {self.from_version} → {self.to_version}"


class StagedFact(Record):
    """From the ledger: a version written, that the device may not show until it runs."""

    kind: str
    slot: str
    version: str
    activation: Activation


class History(Record):
    """What the ledger tells the planner about one node."""

    staged: tuple[StagedFact, ...] = ()
    # (component kind, slot, version, failed attempts): a step tried too often becomes a blocker
    failures: tuple[tuple[str, str, str, int], ...] = ()


class Neighbour(Record):
    """What runs on the other end of this node's cables: facts for node-to-switch rules."""

    node: str
    versions: dict[str, tuple[str, ...]]  # component kind -> distinct running versions


class Plan(Record):
    """The planner's whole answer. `blockers` non-empty: the release cannot be reached now.

    `in_flight` non-empty: something is being written or copied; look again later, do nothing.
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
        """Everything pinned runs, nothing is pending, nothing is in flight, nothing blocks."""
        return not (self.steps or self.blockers or self.in_flight)
