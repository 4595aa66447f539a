"""What the abstract model of ports consists of: ports, actors, and the watch's suspicion."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from port_members import EVENTS, LOOK_S
from port_truth import MAINTENANCE

from provisioner.model.case import Case
from provisioner.model.certificate import Certificate
from provisioner.model.erasure import ErasurePolicy
from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement
from provisioner.planning.lifecycle.decide import View

TENANTS = {"red": "RED", "blue": "BLUE"}
LEAVES = ("leaf-0", "leaf-1")
LOST = 0.1
VRF_OF = TENANTS
POLICY = ErasurePolicy(required=())
FOREIGN = ("stale", "foreign hand", "keep configuration", "restore configuration", "hot swap")
# what is read and is not so, or was so once: of a leaf, a BMC, and a node's drives
MISREAD = (
    "misread leaf",
    "replayed leaf",
    "half answer",
    "event of a BMC",
    "strange drive",
    "half answer of a BMC",
    "half answer of an agent",
)
CHANCES = ("crash", "reboot", "leak", "leak ends", "withdraw", *FOREIGN, *MISREAD, *EVENTS)
MEMBERS = 2
BMCS = 2  # of a node
STEP_S = 0.04  # a fence's bound is 240 s where the code is tried, and as many steps as below here
LOOK_STEPS = int(LOOK_S / STEP_S)
STRIKES = 0.1  # of the times that chance would strike a member: a strike lasts for long
TURN_TRIPS = 10  # round trips to the database in one turn
TRUE_FAULTS = 0.3  # of the events that cut a node off
KEEPS = 0.5  # of the answers about data of a tenant that was not exposed
LIES_MAX = 3  # looks at a port that a misreading lasts
# Steps of all actors: a look at one port comes every two hundred, and chance may stretch that.
FENCE_STEPS = 6_000
NOTICE_STEPS = 4_000
# Some resting nodes are left alone for so long that only the watch can see what happens to them.
LEFT_ALONE, LEFT_STEPS = 0.03, 12_000
SAVED = 0.5  # of what foreign hands do


@dataclass
class ModelPort:
    """One port of a leaf, as it is in each of the leaf's trees."""

    operational: str = MAINTENANCE
    applied: str = MAINTENANCE
    startup: str = MAINTENANCE
    coming: list[str] = field(default_factory=list)  # revisions on their way, the oldest first
    leak: str = ""  # a VRF that its prefix leaks into
    hands: dict[str, int] = field(default_factory=dict)  # VRF of a foreign hand -> the step
    kept: str = MAINTENANCE  # its VRF in a copy of the leaf's configuration
    lie: str = ""  # what the next looks show instead; the wish of chance, not of the leaf
    lies: int = 0  # so many looks
    inside: int = 0  # the step at which it forwarded in a VRF by a foreign hand; 0: it does not

    def may_be(self) -> set[str]:
        return {self.operational, self.applied, self.startup, *self.coming}

    def look(self) -> set[str]:
        """What one look shows: all that may be, and what is misread besides."""
        if not self.lies:
            return self.may_be()
        self.lies -= 1
        return self.may_be() | {self.lie}


@dataclass
class Actor:
    """One node's operation: what it does next. None of it survives a crash but `row`."""

    row: Node
    certificate: Certificate | None = None
    revoked: bool = False  # or expired, or another drive is in than the certified one
    soiled: bool = False  # it stood in a customer's VRF and was not erased since
    target: str = ""  # VRF of the move under way; "": no move
    leaf: int = 0  # how far the move is
    active: bool = False
    parks: bool = False  # the fence under way ends in quarantine
    left_until: int = 0  # the step until which nobody wants anything of it
    foreign: int = 0  # the step at which a foreign hand last touched one of its ports
    data: str = ""  # whose data is on its disks, in truth
    given_up: bool = False  # a person or the tenant said that the data may go
    exposed: bool = False  # another customer could reach it since it was handed over
    case: Case | None = None
    ports: tuple[ModelPort, ...] = ()
    devices: tuple[str, ...] = ()  # what its driver has to reach
    member: int = 0  # who drives it
    pending: Pending | None = None  # what a driver far from its database has not written yet
    driverless: int = 0  # the step since which its driver reaches less than a peer; 0: it does not
    bmc_halves: int = 0  # so many next looks at what it has booted give no answer
    agent_halves: int = 0  # so many next reports of an erasure lack a drive


@dataclass(frozen=True)
class Pending:
    """A turn that was decided from a row and a look, and is written by a step."""

    due: int
    row: Node
    view: View


@dataclass
class Watch:
    """A suspicion of the watch: a node, its row before the leaf was read, and what was read."""

    actor: Actor
    before: Node
    leaf: int
    seen: tuple[PortPlacement, ...] | None = None
    noted: bool = False


def prefix_of(port: Port) -> str:
    return _prefix_at(port.address)


@cache
def _prefix_at(address: str) -> str:
    head, _, last = address.removesuffix("/31").rpartition(".")
    return f"{head}.{int(last) - 1}/31"


@cache
def placed(switch: str, interface: str, vrf: str) -> PortPlacement:
    """A port that was read in a VRF; there are few such records, and each is asked for often."""
    return PortPlacement(switch=switch, interface=interface, vrf=vrf)


def withdrawn() -> Blocker:
    return Blocker(reason="certificate_invalid", subject="node", detail="withdrawn", unblock="")
