"""The records of `firmware_matrix.yaml`, which alone states the target versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from provisioner.model.base import Record
from provisioner.model.inventory import Activation

MAINTENANCE = "maintenance"  # name of the maintenance image in `images`
UNKNOWN = "unknown"  # a pin whose version no public document gives; refused in production mode


Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,64}$")]  # of a measurement, hex
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# what a failed or missing proof of one kind costs; "": not decided, which `matrix check` reports
Policy = Literal["require", "record", "off", ""]
DatabaseName = Literal["PK", "KEK", "db", "dbx"]  # of Secure Boot


class Reference(Record):
    """The signed manifest (RIM) with the golden values of a version, as a person admitted it.

    The digest is that of the file, since two genuine manifests may bear one id.
    """

    rim: Annotated[str, Field(pattern=r"^[\w.+-]+$", max_length=120)]
    sha256: Sha256
    admitted: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]  # its signer was valid then


# a day or a month, as its source gives it; "" where no source gives one
Day = Annotated[str, Field(pattern=r"^(\d{4}-\d{2}(-\d{2})?)?$")]
Severity = Literal["critical", "high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low")


class Notice(Record):
    """A security notice, and the versions that it concerns.

    `affected`: conditions by component kind, any of which is enough; `undecided`: kinds whose
    version does not tell, with the reason. A site that lives with it says why in `accepted`.
    """

    published: Day
    severity: Severity
    cves: tuple[Annotated[str, Field(pattern=r"^CVE-\d{4}-\d{4,7}$")], ...]
    says: str
    fixed: str  # the versions that have the correction, as the notice names them
    evidence: str
    affected: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    undecided: dict[str, str] = Field(default_factory=dict)
    accepted: str = ""


class Issue(Record):
    """A known issue of a release. One that `blocks` keeps it from production until accepted."""

    says: str
    evidence: str
    kinds: tuple[str, ...] = ()
    blocks: bool = False
    accepted: str = ""  # why a site uses the release all the same


class Support(Record):
    """How long the publisher supports a release."""

    ends: Day = ""
    says: str = ""  # in the publisher's words, where it names no day
    evidence: str = ""


LibraryName = Literal["nccl", "doca", "cuda"]  # of what a tenant brings along
LIBRARIES: tuple[LibraryName, ...] = ("nccl", "doca", "cuda")


class LibraryNeed(Record):
    """The oldest version of a tenant's library that knows the GPUs of these models."""

    gpu_models: tuple[str, ...] = Field(min_length=1)  # globs, as in `Match`
    version: str
    says: str  # what the document says, for people
    evidence: str


class Pin(Record):
    """The version that a component must run under one release and profile.

    `version` may be UNKNOWN. `also` lists other approved versions (OEM or LTS branches).
    """

    version: str
    also: tuple[str, ...] = ()
    artifact: str = ""
    sha256: str = ""
    evidence: str = ""  # where it was published
    sought: str = ""  # of an unknown version: the document that would state it
    bounds: str = ""  # of an unknown version: the condition that a published document sets
    security: tuple[str, ...] = ()  # notices that concern it, where conditions cannot say so
    optional: bool = False  # pinned where it is present; a node without such a part needs none
    reference: Reference | None = None  # names the golden values of this version

    @property
    def known(self) -> bool:
        return self.version != UNKNOWN


MATCH_KINDS = ("host", "switch", "nvlink-switch", "power-shelf")  # NodeKind, and racks' units


class Match(Record):
    """The nodes that a profile is for. Empty fields match everything."""

    kind: str = "host"  # one of MATCH_KINDS
    models: tuple[str, ...] = ()  # case-insensitive globs over system or baseboard model
    gpu_models: tuple[str, ...] = ()
    cards: Literal["", "bluefield", "connectx"] = ""  # connectx: such cards, and no BlueField
    devices: dict[str, int] = Field(default_factory=dict)  # bill of materials, DeviceKind -> count


ASKED = frozenset({"require", "record"})


class TrustedMaker(Record):
    """A key, beside NVIDIA's, that chains of attesting components may end in."""

    name: str
    spki_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    source: str  # where the key was published, and when it was read


class AttestedComponents(Record):
    """The roots of trust whose names match one glob, and the measurements that are admitted.

    Measurements are learned on a witness node and reviewed by a person; an index that is not named
    is not compared, since its meaning moves with the firmware of the root of trust.
    """

    count: int = Field(default=1, ge=1, le=64)  # how many must answer
    digests: dict[Annotated[int, Field(ge=1, le=254)], tuple[Digest, ...]] = Field(min_length=1)
    learned_from: str = ""  # the witness node and the date
    reference: Reference | None = None  # the manifest that the digests were taken from, if any
    covers: tuple[str, ...] = ()  # pinned kinds whose firmware these measurements show


class SecureBootRule(Record):
    """The state of Secure Boot that a profile's hosts must run in, and the keys that they trust."""

    policy: Policy = ""
    state: Literal["on", "off"] = "on"
    # database -> accepted digests (`checks/attestation/event_log.py`); others are not compared
    databases: dict[DatabaseName, Annotated[tuple[Sha256, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )

    @property
    def is_asked(self) -> bool:
        return self.policy in ASKED


class ReportRule(Record):
    """The reports that a program inside the host collects from devices of one kind."""

    policy: Policy = ""
    # how many must answer; 0: as many as the bill of materials or the inventory lists
    count: int = Field(default=0, ge=0, le=128)
    # manifests beside those that pins name: of a part that comes in a bundle and has no pin
    references: tuple[Reference, ...] = ()
    # admitted by a person from a witness node, in place of manifests
    digests: dict[Annotated[int, Field(ge=1, le=254)], tuple[Digest, ...]] = Field(
        default_factory=dict
    )
    learned_from: str = ""  # the witness node and the date

    @property
    def is_asked(self) -> bool:
        return self.policy in ASKED


class GpuReportRule(ReportRule):
    """The reports of GPUs, and the library that collects them."""

    # NVML answers in the modes CC and PPCIE only, Corelib for Blackwell GPUs outside of them
    library: Literal["nvml", "corelib"] = "nvml"


class AttestationRule(Record):
    """Which components of a profile's nodes must prove their firmware by signed measurements."""

    policy: Policy = ""  # of the roots of trust
    # of OCSP answers about the chains: a missing one counts, is noted, or none is looked at
    revocation: Literal["require", "record", "off"] = "record"
    components: dict[str, AttestedComponents] = Field(default_factory=dict)  # by glob of names
    makers: tuple[TrustedMaker, ...] = ()
    secure_boot: SecureBootRule = SecureBootRule()
    gpu_reports: GpuReportRule = GpuReportRule()
    nvswitch_reports: ReportRule = ReportRule()

    @property
    def is_required(self) -> bool:
        """Whether a node without these proofs gets no certificate."""
        return self.policy == "require"

    @property
    def is_asked(self) -> bool:
        return self.policy in ASKED

    @model_validator(mode="after")
    def _requires_something(self) -> AttestationRule:
        if self.is_asked and not self.components:
            raise ValueError(f"attestation: {self.policy} concerns no component: name components")
        return self


class Profile(Record):
    match: Match
    pins: dict[str, Pin]
    attestation: AttestationRule = AttestationRule()


class Requirement(Record):
    """A rule between versions: while every `when` holds for the running versions, every `needs`
    must hold.

    Keys are component kinds, of the node itself or of its neighbours (switches of a host's ports,
    hosts of a switch); values are version conditions: "==1.2", ">=5.11.0.0026", "<2",
    "=host.driver" (equal to another component). A kind that the node does not have makes `when`
    false, and `needs` unmet. The rule does not concern a neighbour without such a kind.
    """

    name: str
    when: dict[str, str]
    needs: dict[str, str]
    reason: str
    evidence: str = ""


class Release(Record):
    """The pins of one published stack, or of one product.

    `supersedes`: an earlier release from which each pin can be reached. `follows`: an earlier one
    of the same line, between which no move is published; `sought`: where one was looked for, by
    kind. `leaves`: kinds that its publisher does not speak of, and that a site manages itself.
    """

    profiles: dict[str, Profile]
    requires: tuple[Requirement, ...] = ()
    supersedes: str = ""
    follows: str = ""
    sought: dict[str, str] = Field(default_factory=dict)
    published: Day = ""  # as its publisher dates it
    seen: Day = ""  # without that: the earliest dated public document that names it
    support: Support = Support()
    issues: dict[str, Issue] = Field(default_factory=dict)
    leaves: tuple[str, ...] = ()


class Edge(Record):
    """One allowed update of one component: a move with published evidence."""

    from_versions: tuple[str, ...] = Field(alias="from", default=())
    to: str
    via: tuple[str, ...] = ()  # versions to pass through, each activated before the next
    carries: dict[str, str] = Field(default_factory=dict)  # other kinds that change with it
    requires: dict[str, str] = Field(default_factory=dict)  # conditions when it is pushed
    activates_by: Activation
    method: str = ""  # "" : the component kind's own
    artifact: str = ""  # "" : the pin's, for the edge into the pin
    sha256: str = ""
    duration_s: int = 0  # 0: the component kind's own estimate
    downgrade: bool = False
    one_way: bool = False  # anti-rollback: no edge may lead back
    evidence: str = ""
    sought: str = ""  # without evidence: which document would vouch for it, and what was read there

    model_config = Record.model_config | {"populate_by_name": True}


class Matrix(Record):
    """The whole file. `sources` names the files that it was read from, for messages."""

    schema_version: int = Field(alias="schema", default=1)
    releases: dict[str, Release]
    edges: dict[str, tuple[Edge, ...]] = Field(default_factory=dict)
    # a bundle that no device reports by name is identified by its contents: kind -> version ->
    # contents
    bundles: dict[str, dict[str, dict[str, str]]] = Field(default_factory=dict)
    # NV-config profiles by name ("RA1.3"): parameter -> value as mlxconfig prints it
    nic_profiles: dict[str, dict[str, str]] = Field(default_factory=dict)
    # settings that every boot loses, by the same names: path of DOCA's management service -> value
    nic_runtime: dict[str, dict[str, str]] = Field(default_factory=dict)
    # settings, packages and services of a host by the name that `host.baseline` or
    # `host.check_tools` pins
    host_settings: dict[str, dict[str, str]] = Field(default_factory=dict)
    # settings of BIOS and BMC by the name that `host.bios_settings` or `host.bmc_settings` pins:
    # meaning, or "attribute:NAME" -> value
    machine_settings: dict[str, dict[str, str]] = Field(default_factory=dict)
    # where a published version of a kind was looked for, of pins that say nothing of their own
    sought: dict[str, str] = Field(default_factory=dict)
    # security notices by the publisher's number
    security: dict[str, Notice] = Field(default_factory=dict)
    # oldest versions of tenants' libraries, beside those that pins and rules of releases name
    libraries: dict[LibraryName, tuple[LibraryNeed, ...]] = Field(default_factory=dict)
    # maintenance images by name: MAINTENANCE is the bootable image with the agent
    images: dict[str, Pin] = Field(default_factory=dict)

    model_config = Record.model_config | {"populate_by_name": True}
