"""What the abstract model of ports consists of: ports, actors, and the watch's suspicion."""

from __future__ import annotations

from dataclasses import dataclass, field

from port_truth import MAINTENANCE

from provisioner.model.case import Case
from provisioner.model.certificate import Certificate
from provisioner.model.erasure import ErasurePolicy
from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement

TENANTS = {"red": "RED", "blue": "BLUE"}
LEAVES = ("leaf-0", "leaf-1")
LOST = 0.1
VRF_OF = TENANTS
POLICY = ErasurePolicy(required=())
FOREIGN = ("stale", "foreign hand", "keep configuration", "restore configuration", "hot swap")
# what is read and is not so, or was so once: of a leaf, a BMC, and a node's drives
MISREAD = ("misread leaf", "replayed leaf", "half answer", "event of a BMC", "strange drive")
CHANCES = ("crash", "reboot", "leak", "leak ends", "withdraw", *FOREIGN, *MISREAD)
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


@dataclass
class Watch:
    """A suspicion of the watch: a node, its row before the leaf was read, and what was read."""

    actor: Actor
    before: Node
    leaf: int
    seen: tuple[PortPlacement, ...] | None = None
    noted: bool = False


def prefix_of(port: Port) -> str:
    head, _, last = port.address.removesuffix("/31").rpartition(".")
    return f"{head}.{int(last) - 1}/31"


def withdrawn() -> Blocker:
    return Blocker(reason="certificate_invalid", subject="node", detail="withdrawn", unblock="")
