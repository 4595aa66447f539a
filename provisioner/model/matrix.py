"""What should be: `firmware_matrix.yaml` as records. The only statement of target versions."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.inventory import Activation

MAINTENANCE = "maintenance"  # name of the maintenance image in `images`
UNKNOWN = "unknown"  # a pin that no public document gives; refused in production mode


class Pin(Record):
    """The version that a component must run under one release and profile.

    `version` may be UNKNOWN. `also` lists other approved versions (OEM or LTS branches).
    """

    version: str
    also: tuple[str, ...] = ()
    artifact: str = ""
    sha256: str = ""
    evidence: str = ""  # where it was published
    optional: bool = False  # pinned where it is present; a node without such a part needs none

    @property
    def known(self) -> bool:
        """False for a version nobody published."""
        return self.version != UNKNOWN


class Match(Record):
    """Which nodes a profile is for. Empty fields match anything."""

    kind: str = "host"  # NodeKind value
    models: tuple[str, ...] = ()  # case-insensitive globs over system or baseboard model
    gpu_models: tuple[str, ...] = ()
    devices: dict[str, int] = Field(default_factory=dict)  # bill of materials, DeviceKind -> count


class Profile(Record):
    match: Match
    pins: dict[str, Pin]


class Requirement(Record):
    """While every `when` is true of what runs, every `needs` must be true too.

    Keys are component kinds, of the node itself or of its neighbours (switches of a host's ports,
    hosts of a switch); values are version conditions: "==1.2", ">=5.11.0.0026", "<2",
    "=host.driver" (equal to another component). A kind that the node does not have makes `when`
    false, and `needs` unmet. A neighbour that has no such kind is not concerned.
    """

    name: str
    when: dict[str, str]
    needs: dict[str, str]
    reason: str
    evidence: str = ""


class Release(Record):
    profiles: dict[str, Profile]
    requires: tuple[Requirement, ...] = ()
    supersedes: str = ""


class Edge(Record):
    """One allowed update of one component: a move that somebody vouches for."""

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
    one_way: bool = False  # anti-rollback: never an edge back
    evidence: str = ""

    model_config = Record.model_config | {"populate_by_name": True}


class Matrix(Record):
    """The whole file. `sources` names the files it was read from, for messages."""

    schema_version: int = Field(alias="schema", default=1)
    releases: dict[str, Release]
    edges: dict[str, tuple[Edge, ...]] = Field(default_factory=dict)
    # a bundle that no device reports by name is known by its contents: kind -> version -> contents
    bundles: dict[str, dict[str, dict[str, str]]] = Field(default_factory=dict)
    # NV-config profiles by name ("RA1.3"): parameter -> value as mlxconfig prints it
    nic_profiles: dict[str, dict[str, str]] = Field(default_factory=dict)
    # what is lost at every boot, by the same names: path of DOCA's management service -> value
    nic_runtime: dict[str, dict[str, str]] = Field(default_factory=dict)
    # what nodes boot for maintenance, by name: MAINTENANCE is the bootable image of the agent
    images: dict[str, Pin] = Field(default_factory=dict)

    model_config = Record.model_config | {"populate_by_name": True}
