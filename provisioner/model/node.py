"""A node (a host with its cards, or a switch) as stored: intent and position."""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.location import Location, Outlet, Port
from provisioner.model.names import PciAddress
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# The conditions under which a node may be released to its tenant, as last read.


class ReleaseConditions(Record):
    """Conditions of a handover: it is recorded only if all still hold in the recording
    transaction.
    """

    certificate: str  # id; it must be neither revoked nor expired
    inventory: str  # identity of the installed parts (`planning/certification/certification.py`)
    tenant: str
    vrf: str  # the tenant's network


PARKING = frozenset({Reason.OUR_BUG, Reason.DAMAGED_ROW})


class NodeKind(StrEnum):
    HOST = "host"
    SWITCH = "switch"


class State(StrEnum):
    """A node's state on its journey; `planning/lifecycle/decide.py` has the table of
    transitions.
    """

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
    """The network of all of a node's ports; MIXED only while a move is under way or failed."""

    NONE = "none"
    MAINTENANCE = "maintenance"
    CUSTOMER = "customer"
    MIXED = "mixed"


class Boots(StrEnum):
    """The system that the host runs, as far as the daemon caused it; written before it is
    caused.
    """

    SYSTEM = "system"  # an operating system from its own disk
    RAMDISK = "ramdisk"  # the maintenance image, or on the way there or back
    NOTHING = "nothing"  # the maintenance image, and no disk has a system
    HANDED_OVER = "handed_over"  # a system from its own disk, without a login of the daemon's


class Origin(StrEnum):
    """How a node came to the daemon."""

    TAKEN_IN = "taken_in"  # empty hardware of an expected-hardware list
    ADOPTED = "adopted"  # it served already: nothing of it is proved, and nothing was changed
    DETACHED = "detached"  # it serves, given back to another system: no act on it is allowed


class BmcRef(Record):
    """The address of one BMC of a node. The secret itself is in the store, encrypted, by `name`."""

    name: str  # "host", "DPU_1", "NIC_3"; unique within the node
    url: str  # "https://10.0.0.9:443"
    kind: str = "host"  # "host" | "dpu" | "supernic" | "switch" (its management API)
    # SHA-256 of the certificate (DER), hex, once pinned; while the certificate is exchanged also
    # those that may come into force, separated by commas: the BMC may present any of them
    pin: str = ""
    certificate_ends_at: InstantOrNone = 0.0  # of the newest from the site's authority; 0: none
    certificate_retry_at: InstantOrNone = 0.0  # an exchange failed: no other one before this
    serial: str = ""  # of the card or system, as paired
    base_mac: str = ""  # of a card, lowercase with colons
    pci: PciAddress = ""  # of a card, as the host sees it
    rotated: bool = False  # its credential was set by us and is unique to it


class TpmProof(StrEnum):
    """Why the key of a TPM counts as that of a TPM, and of this board's."""

    QUOTE = "quote"  # it signed the first quote, which any program can: an older release took that
    MAKER = "maker"  # a pinned maker certified the TPM, which opened a credential for the key
    PERSON = "person"  # a person vouched for the key


class BoardTpm(Record):
    """The TPM of a host's board, by its attestation key."""

    key_sha256: str  # of the SPKI
    enrolled_at: Instant  # when its key was proved, or vouched for
    secure_boot: bool | None = None  # as the last quoted boot measured it; None: not stated
    shown_secure_boot: bool | None = None  # as the BMC stated it for that boot; None: not stated
    proof: TpmProof = TpmProof.QUOTE
    maker: str = ""  # common name of the pinned certificate; "": no maker vouches for it
    endorsement_sha256: str = ""  # of the SPKI of the endorsement key; "": not proved

    @property
    def contradiction(self) -> str:
        """Return the difference between BMC and TPM about one boot; "" if there is none."""
        if None in (self.secure_boot, self.shown_secure_boot):
            return ""
        if self.secure_boot == self.shown_secure_boot:
            return ""
        names = {True: "on", False: "off"}
        shown = names[bool(self.shown_secure_boot)]
        measured = names[bool(self.secure_boot)]
        return f"Secure Boot was {shown} by the BMC and {measured} by the TPM's quote, in one boot"


class TenantData(StrEnum):
    """What a person decided about the data of a node that was taken back on a reading of its ports.

    Nothing else leads there: a tenant that gives a node back, or a person who reclaims it, wants it
    erased.
    """

    SETTLED = ""  # nothing is asked
    ASKED = "asked"  # fenced, and not erased until a person decides
    ERASE = "erase"
    KEEP = "keep"  # with its tenant's word: it returns to that tenant as it is


class Node(Record):
    """One row of the nodes table. `generation` grows by one with every change."""

    id: str
    kind: NodeKind
    generation: int = 0
    state: State = State.DISCOVERED
    entered_at: Instant = 0.0  # when `state` was entered
    placement: Placement = Placement.NONE  # as last proved by reading it back
    vrf: str = ""  # name of the VRF that `placement` was proved for
    release: str = ""  # release of the matrix that this node is to run
    profile: str = ""
    tenant: str = ""  # tenant that the node is allocated to; "" while it has none
    served: str = ""  # tenant whose data may still be in it; "" once it is sanitized
    # systems of integrations that it may be in since its release began; () once proved out of all
    beside: tuple[str, ...] = ()
    tenant_data: TenantData = TenantData.SETTLED
    fenced_at: InstantOrNone = 0.0  # when it was last proved to be back in the maintenance VRF
    origin: Origin = Origin.TAKEN_IN
    taken: bool = False  # a person assigned its ports to us, whichever network they are in
    boots: Boots = Boots.SYSTEM
    # serials of the drives that were delivered with it or last erased; None: not recorded yet
    drives: tuple[str, ...] | None = None
    erasure: str = ""  # digest of the last erasure report, in the evidence table
    os_disk: str = ""  # serial or WWN of the disk for its system; "": chosen by rule
    certificate: str = ""  # id of the certificate in force
    address: str = ""  # in-band address of the host, or management address of the switch
    os: str = ""  # of a switch, as listed; "" in rows from before it was recorded
    location: Location = Location()
    ports: tuple[Port, ...] = ()  # of a host: the leaf ports it is cabled to
    bmcs: tuple[BmcRef, ...] = ()
    outlets: tuple[Outlet, ...] = ()  # all its feeds: outlets of power distribution units
    blockers: tuple[Blocker, ...] = ()
    attempts: int = 0  # of automatic remedies since the last certificate
    tpm: BoardTpm | None = None  # None: none is enrolled
    note: str = ""  # the present work, for people
    tags: tuple[str, ...] = ()  # words that people gave it, sorted

    @property
    def is_parked(self) -> bool:
        """Return whether a person must examine the node before anything is done."""
        return any(b.reason in PARKING for b in self.blockers)
