"""Events of a node's journey: from its discovery to its retirement."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from provisioner.model.events.event import Event, EventKind
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement


class NodeDiscovered(Event):
    """A node of the expected-hardware list was found and stored."""

    KIND: ClassVar = EventKind.DISCOVERED
    bmcs: tuple[str, ...] = Field(description="Addresses of its BMCs.")
    node_kind: NodeKind = Field(alias="kind")


class NodeAdopted(Event):
    """A node that serves was stored as it was read; nothing of it was changed."""

    KIND: ClassVar = EventKind.ADOPTED
    bmcs: tuple[str, ...] = Field(description="Addresses of its BMCs.")
    node_kind: NodeKind = Field(alias="kind")
    tenant: str = Field("", description="The tenant whose network its ports were read in.")
    vrf: str = ""
    by: str = Field(description="The person who asked for it.")


class CredentialReplaced(Event):
    """The password of a BMC was replaced: its factory password, or ours by one that is newer."""

    KIND: ClassVar = EventKind.CREDENTIAL
    bmc: str
    pin: str = Field(description="SHA-256 of the certificate, hex.")
    cause: str = Field("", description="Why it was changed again; empty: at intake.")


class BmcCertificateReplaced(Event):
    """A BMC presents a certificate of the site's authority, and was logged in to with it."""

    KIND: ClassVar = EventKind.BMC_CERTIFICATE
    bmc: str
    pin: str = Field(description="SHA-256 of the certificate, hex.")
    before: str = Field(description="That of the certificate before it.")


class NodeSurveyed(Event):
    """An inventory was stored of a node that cannot be identified yet."""

    KIND: ClassVar = EventKind.SURVEYED


class NodeIdentified(Event):
    """A node's parts were read and fit one profile of the matrix."""

    KIND: ClassVar = EventKind.IDENTIFIED
    profile: str
    serial: str
    lacks: tuple[str, ...] = Field(
        (), description="Tools that the host lacks, each with the checks that need it."
    )


class BoardTpmRead(Event):
    """The TPM of a host's board was enrolled or measured another boot, or gave no proof."""

    KIND: ClassVar = EventKind.BOARD_TPM
    key: str = Field(description="SHA-256 of the enrolled attestation key, hex; empty: none.")
    refused: str = Field("", description="Why the agent did not prove that it runs on the board.")
    maker: str = Field(
        "", description="Pinned certificate of the TPM's maker; empty: none proves it."
    )
    contradiction: str = Field(
        "", description="What BMC and TPM state differently about this boot; empty: nothing."
    )


class NodeAttested(Event):
    """A certified host's devices proved their firmware again, by signatures over a new nonce."""

    KIND: ClassVar = EventKind.ATTESTED
    certificate: str
    state: str = Field(description="SHA-256 of the state of the devices that were asked.")


class StateChanged(Event):
    """A node entered another state of its journey."""

    KIND: ClassVar = EventKind.STATE
    from_state: State = Field(alias="from")
    to_state: State = Field(alias="to")
    why: str
    blockers: tuple[Blocker, ...] = ()
    tenant: str = Field("", description="The tenant that the node was allocated to before.")
    release: str = Field("", description="The release that it moves to or runs, or empty.")


class NodeWaits(Event):
    """A node waits for a reason that was not there before."""

    KIND: ClassVar = EventKind.WAITS
    blockers: tuple[Blocker, ...]


class NodeParked(Event):
    """Nothing is done with a node any more until a person has looked at it."""

    KIND: ClassVar = EventKind.PARKED
    why: str


class RemedyTried(Event):
    """A quarantined node goes back to converging by itself, since its blockers may have passed."""

    KIND: ClassVar = EventKind.REMEDY
    attempt: int


class StepEnded(Event):
    """A step of a node's plan ended. Without problems it succeeded."""

    KIND: ClassVar = EventKind.STEP
    step: str
    problems: tuple[str, ...]


class NodeValidated(Event):
    """The health checks of a node ended; `results` has each check's verdict."""

    KIND: ClassVar = EventKind.VALIDATED
    causes: tuple[str, ...] = Field(description="Why exactly these checks were selected.")
    results: dict[str, str]


class FabricProved(Event):
    """A test among nodes ended for this node."""

    KIND: ClassVar = EventKind.PROVED
    session: str
    partners: tuple[str, ...]
    results: dict[str, str]


class NodeCertified(Event):
    """A certificate was issued."""

    KIND: ClassVar = EventKind.CERTIFIED
    certificate: str
    gates: str = Field(description="Letters of the gates that it proves: abc.")


class AttentionNeeded(Event):
    """A node that serves a tenant has new blockers; it is not touched. Empty: they are over."""

    KIND: ClassVar = EventKind.ATTENTION
    blockers: tuple[Blocker, ...]


class NodeSanitized(Event):
    """Every drive of a node was erased, with proof."""

    KIND: ClassVar = EventKind.SANITIZED
    report: str = Field(description="SHA-256 of the erasure report.")
    problems: tuple[str, ...] = ()


class NodeNotSanitized(Event):
    """An erasure ended without proof for every drive."""

    KIND: ClassVar = EventKind.NOT_SANITIZED
    report: str
    problems: tuple[str, ...]


class NodeRetired(Event):
    """A node left for good."""

    KIND: ClassVar = EventKind.RETIRED
    case: str
    erasure: str = Field(description="SHA-256 of the last erasure report, or empty.")
    disks: str = Field(description="Who destroyed the disks, and how, if nothing was erased.")
    credentials: str = Field(description="What became of the BMCs' credentials.")
    not_off: str = Field(description="Why it could not be switched off, or empty.")


class AgentRefused(Event):
    """A maintenance agent, or a client that claims to be one, was refused."""

    KIND: ClassVar = EventKind.AGENT_REFUSED
    what: str
    peer: str
    reason: str
    problem: str = Field(alias="detail")


class NodeAllocated(Event):
    """A certified node was given to a tenant."""

    KIND: ClassVar = EventKind.ALLOCATED
    tenant: str


class PortsFenced(Event):
    """Ports were moved into the maintenance VRF. `confirmed`: read back at the leaf."""

    KIND: ClassVar = EventKind.FENCE
    confirmed: bool
    placements: tuple[PortPlacement, ...] = ()
    row: str = Field("", description="Why the node's row could not be written, or empty.")
    ports: tuple[str, ...] = ()
    count: int = 0
    seen_by: str = ""
    problems: tuple[str, ...] = ()


class NodeReleased(Event):
    """A node entered its tenant's VRF; `proof` seals the record of the handover."""

    KIND: ClassVar = EventKind.RELEASED
    tenant: str
    certificate: str
    proof: str
    libraries: tuple[str, ...] = Field((), description="Oldest NCCL, DOCA and CUDA that it needs.")


class ReleaseRefused(Event):
    """A release was begun and given up; the node is fenced again."""

    KIND: ClassVar = EventKind.RELEASE_REFUSED
    vrf: str
    rows: tuple[str, ...]


class PortIsolationViolated(Event):
    """Ports were found in a customer's VRF without a handover."""

    KIND: ClassVar = EventKind.TRESPASS
    ports: tuple[str, ...]
    count: int
    state: str = Field(description="The node's state, or empty where no node owns the ports.")
    seen_by: str


class NodeTakenBack(Event):
    """A node was taken out of its tenant's network because a port was elsewhere."""

    KIND: ClassVar = EventKind.TAKEN_BACK
    why: tuple[str, ...]
    vrf: str
