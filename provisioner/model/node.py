"""A node (a host with its cards, or a switch) as the store keeps it: intent and position."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.location import Location, Port
from provisioner.model.outcome import Blocker, Reason

PARKING = frozenset({Reason.OUR_BUG, Reason.DAMAGED_ROW})


class NodeKind(StrEnum):
    HOST = "host"
    SWITCH = "switch"


class State(StrEnum):
    """Where a node is on its journey; `planning/lifecycle/decide.py` has the table."""

    DISCOVERED = "discovered"
    INTAKE = "intake"
    CONVERGING = "converging"
    VALIDATING = "validating"
    CERTIFIED = "certified"
    RELEASED = "released"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    REPAIRING = "repairing"
    RETIRED = "retired"


class Placement(StrEnum):
    """Where all of a node's ports are; MIXED only while a move is under way or went wrong."""

    NONE = "none"
    MAINTENANCE = "maintenance"
    CUSTOMER = "customer"
    MIXED = "mixed"


class Boots(StrEnum):
    """What the host runs, as far as we have brought it about; written before it is done."""

    SYSTEM = "system"  # an operating system from its own disk
    RAMDISK = "ramdisk"  # the maintenance image, or it is on its way there or back
    NOTHING = "nothing"  # the maintenance image, and no disk has a system any more


class BmcRef(Record):
    """How to reach one BMC of a node. The secret itself is in the store, encrypted, by `name`."""

    name: str  # "host", "DPU_1", "NIC_3"; unique within the node
    url: str  # "https://10.0.0.9:443"
    kind: str = "host"  # "host" | "dpu" | "supernic" | "switch" (its management API)
    pin: str = ""  # SHA-256 of the certificate (DER), hex, once pinned
    serial: str = ""  # of the card or system, as paired
    base_mac: str = ""  # of a card, lowercase with colons
    pci: str = ""  # of a card, as the host sees it
    rotated: bool = False  # its credential is ours, unique to it


class Node(Record):
    """One row of the nodes table. `generation` grows by one with every change."""

    id: str
    kind: NodeKind
    generation: int = 0
    state: State = State.DISCOVERED
    entered_at: float = 0.0  # when `state` was entered
    placement: Placement = Placement.NONE  # as last proved by read-back
    vrf: str = ""  # name of the VRF that `placement` was proved for
    release: str = ""  # release of the matrix that this node is to run
    profile: str = ""
    tenant: str = ""  # tenant that the node is allocated to; "" while it is nobody's
    served: str = ""  # tenant whose data may still be in it; "" once it is sanitized
    fenced_at: float = 0.0  # when it was last proved to be back in the maintenance VRF
    taken: bool = False  # a person gave its ports to us, whichever network they stand in
    boots: Boots = Boots.SYSTEM
    # serials of the drives that were delivered with it or last erased; None: not recorded yet
    drives: tuple[str, ...] | None = None
    erasure: str = ""  # digest of the last erasure report, in the evidence table
    os_disk: str = ""  # serial or WWN of the disk for its system; "": chosen by rule
    certificate: str = ""  # id of the certificate in force
    address: str = ""  # in-band address of the host, or management address of the switch
    location: Location = Location()
    ports: tuple[Port, ...] = ()  # of a host: the leaf ports it is cabled to
    bmcs: tuple[BmcRef, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    attempts: int = 0  # of automatic remedies since the last certificate
    note: str = ""  # what is being done now, for people

    @property
    def is_parked(self) -> bool:
        """Whether a person has to look at it before anything is done."""
        return any(b.reason in PARKING for b in self.blockers)

    def moved(self, state: State, now: float, **changes: object) -> Node:
        """This node after entering `state`; the generation is the store's to raise."""
        return self.model_copy(update={"state": state, "entered_at": now, **changes})
