"""Settings of the fabric: how tenants are isolated, and how often the daemon reads the leaves."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Literal

from pydantic import Field, field_validator

from provisioner.model.base import Record
from provisioner.model.recovery import Address, InVrf

# ------------------------------------------------------------------------------
# Settings of releases and reclaims of nodes' ports.
#
# Figures without a source are our own.


class ReleaseSettings(Record):
    """Times are seconds of the daemon's clock."""

    release_settle_s: float = Field(
        30.0, gt=0, description="Routes and neighbours have followed a moved port within this."
    )
    release_confirm_s: float = Field(
        10.0, ge=0, description="The whole gate of a release is judged again after this."
    )
    release_watch_s: float = Field(
        1800.0, ge=0, description="After a release a fault of its gate takes the node back."
    )
    release_probes: Literal["required", "off"] = Field(
        "required", description="Packets are sent from and to a node before its handover."
    )
    release_port_acls: tuple[str, ...] = Field(
        (), max_length=16, description="Filters that must be bound to every port of a tenant."
    )
    release_reached: tuple[InVrf, ...] = Field(
        (),
        max_length=64,
        description="VRF=ADDRESS of storage that answers only nodes whose VRF imports that VRF.",
    )
    release_never_reached: tuple[Address, ...] = Field(
        (), max_length=64, description="No released node reaches these, nor BMCs and switches."
    )
    handover_login: Literal["keep", "remove"] = Field(
        "keep",
        description="The daemon's login in a system that it wrote, at the handover to a tenant: it "
        "stays, or is removed, with proof (docs/release.md). The tenant then needs one of its own.",
    )
    host_metadata: Literal["off", "link_local"] = Field(
        "off",
        description="Metadata of a host at 169.254.169.254, which its own system serves: not at "
        "all, or by a small service that the configuration drive brings (docs/os-deployment.md).",
    )
    tenant_user: str = Field(
        "tenant",
        pattern=r"^[a-z][a-z0-9-]{0,30}$",
        description="The account that a tenant's keys open in the system of its nodes, with sudo; "
        "it is made at the handover if the tenant has keys (docs/tenants.md).",
    )
    release_rdma: Literal["required", "listed", "off"] = Field(
        "listed",
        description="RDMA to a canary in the tenant's VRF before a node's handover: of every "
        "tenant, of those with a listed canary, or never.",
    )
    release_rdma_canaries: tuple[InVrf, ...] = Field(
        (),
        max_length=1024,
        description="VRF=ADDRESS of the site's own hosts that serve ib_write_bw in tenants' VRFs "
        "(docs/release.md has the line).",
    )
    port_mtu: int = Field(
        9216, ge=1280, le=9216, description="Of leaves' ports (Cumulus' default)."
    )
    front_mtu: int = Field(
        0, ge=0, le=9216, description="Of leaves' north-south ports (rail -1); 0: as `port_mtu`."
    )
    probe_bytes: int = Field(8972, ge=56, le=9188, description="Payload of unfragmented probes.")
    reclaim_idle_s: float = Field(
        60.0, ge=0, description="A reclaimed port is moved after this, idle or not."
    )
    watch_ports_s: float = Field(
        120.0,
        gt=0,
        description="Every port of every leaf is read this often, and each released node's ports.",
    )
    watch_optics_days: int = Field(
        31,
        ge=0,
        description="Readings of optics are kept this many days, and judged; 0: none are kept.",
    )
    ports_not_ours: tuple[str, ...] = Field(
        (),
        max_length=1024,
        description="LEAF/PORT patterns of storage, border and other ports that no node owns: "
        "reported where they are in a tenant's network, never moved.",
    )
    port_descriptions: bool = Field(
        default=True,
        description="Name node, tenant and epoch in the description of a moved leaf port, by which "
        "a restore is noticed; a description of the site's own is never overwritten.",
    )
    certificate_lapsed: Literal["alert", "drain"] = Field(
        "alert",
        description="A serving node with an expired or revoked certificate: an alert and release "
        "debt, or also a drain after its tenant's notice.",
    )


class FabricSettings(Record):
    """Part of `Settings`."""

    isolation: Literal["vrf", "infiniband"] = Field(
        "vrf",
        description="What isolates tenants east-west: VRFs on Ethernet leaves, or InfiniBand "
        "partitions of ports that have a `guid`, through UFM.",
    )
    rail_networks: tuple[str, ...] = Field(
        ("172.0.0.0/8",),
        min_length=1,
        max_length=64,
        description="Networks that hosts reach by their rails: one for all rails, or one for each "
        "rail in its order, which traffic without a source address then takes too.",
    )
    rail_mtu: int = Field(
        9216, ge=1280, le=9978, description="Bytes of a frame on the rails of a host."
    )
    rail_proof: Literal["other_leaf", "own_leaf"] = Field(
        "other_leaf",
        description="Where every rail of a host must reach before its release: another leaf, or "
        "only its own, in a fabric whose rails are not connected with each other.",
    )
    outside_prefixes_max: int = Field(
        0,
        ge=0,
        le=4_294_967_295,
        description="Routes from a router outside at which its session ends, where a tenant's "
        "session names no limit of its own; 0: none is set.",
    )
    outside_drain_s: float = Field(
        0.0,
        ge=0,
        le=600,
        description="A session to the outside that a change ends asks its router to go around it "
        "(RFC 8326) for this long before; 0: it ends at once. Leaves act on changed policies "
        "after 5 s (`policy-update-timer`), so that less than 15 is too short.",
    )
    tenant_settle_s: float = Field(
        60.0,
        gt=0,
        description="Between searches for tenants whose network differs from the database.",
    )

    @field_validator("rail_networks")
    @classmethod
    def _require_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ip_network(network)
        return networks


# ------------------------------------------------------------------------------
# Settings of the storage system that tenants share.


class StorageSystem(Record):
    """The storage system of a site. Its secret is in the environment or in a file, never here."""

    provider: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")  # integration's name: "vast"
    # of its management, in the adapter's form
    address: str = Field(pattern=r"^[^@\s\x00-\x1f]+$", min_length=1, max_length=253)
    username: str = Field("", max_length=64)  # "": the secret is a token
    secret_env: str = Field("", max_length=64)
    secret_file: str = Field("", max_length=1024)
    pin: str = Field("", pattern=r"^([0-9a-fA-F]{64})?$")  # SHA-256 of its certificate
    prefix: str = Field("", pattern=r"^[a-z0-9-]{0,16}$")  # before tenants' names, as its spaces'
    client_networks: tuple[str, ...] = Field((), max_length=64)  # of nodes' addresses; (): all
    pools: tuple[str, ...] = Field((), max_length=16)  # of addresses that serve; (): all
    options: dict[str, str] = Field({}, max_length=32)  # the adapter's own, docs/storage.md

    def name_space(self, tenant: str) -> str:
        """Return what a tenant's space is called on the system."""
        return f"{self.prefix}{tenant}"

    @field_validator("client_networks")
    @classmethod
    def _require_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ip_network(network)
        return networks


class StorageSettings(Record):
    """Part of `Settings`."""

    storage: StorageSystem | None = Field(
        None,
        description="The storage system in which tenants get spaces: `provider` (an integration), "
        "`address`, `username`, `secret_env` or `secret_file`, `pin`, `client_networks`, `pools`, "
        "`options` (docs/storage.md). Without, tenants have none.",
    )
    storage_gather_s: float = Field(
        0.5, ge=0, description="Nodes that enter or leave a space within this share one change."
    )
    storage_limit_s: float = Field(
        300.0, gt=0, description="An asynchronous task of the storage system ends within this."
    )
    storage_poll_s: float = Field(
        2.0, gt=0, description="Between two looks at such a task, and at a busy storage system."
    )
    watch_storage_s: float = Field(
        300.0, gt=0, description="Every tenant's space is read and judged this often."
    )
