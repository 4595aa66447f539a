"""All settings: each with its unit in the name, its default, its limits and its reason.

One frozen model; no other code reads the environment or a configuration file. `render_markdown`
makes the list of all settings, for `make docs` and `provisioner help settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args, get_origin

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from provisioner.checks.check import Pattern
from provisioner.model.base import Record
from provisioner.settings.api import ApiSettings, BackupSettings, ClusterSettings
from provisioner.settings.bmcs import (
    BmcCertificateSettings,
    BmcSettings,
    CredentialSettings,
    PowerSettings,
)
from provisioner.settings.fabric import FabricSettings, ReleaseSettings, StorageSettings
from provisioner.settings.maintenance import LogIntakeSettings, MaintenanceSettings
from provisioner.settings.repair import RepairSettings
from provisioner.settings.telemetry import AuditExportSettings, TelemetrySettings, WebhookSettings


class Settings(
    TelemetrySettings,
    RepairSettings,
    FabricSettings,
    MaintenanceSettings,
    ApiSettings,
    ReleaseSettings,
    PowerSettings,
    WebhookSettings,
    AuditExportSettings,
    BackupSettings,
    ClusterSettings,
    BmcSettings,
    BmcCertificateSettings,
    CredentialSettings,
    LogIntakeSettings,
    StorageSettings,
):
    """Times are seconds of the daemon's clock unless the name states another unit."""

    production: bool = Field(
        default=True, description="Refuse unknown pins, and moves without file, digest or evidence."
    )
    site: str = Field("site", description="Name of the site, the first part of every location.")

    fabric_overlay: Literal["pure_l3", "l3_evpn"] = Field(
        "l3_evpn",
        description="Form of the tenants' networks in the fabric, which sets the NICs' "
        "inter-packet gap (`nic_runtime` of the matrix).",
    )

    kernel_lines_harmless: tuple[Pattern, ...] = Field(
        (),
        max_length=256,
        description="Regular expressions of kernel messages of level err that are harmless here.",
    )

    # how much at once
    requests_max: int = Field(
        256, ge=1, le=4096, description="Redfish requests in progress in the whole daemon."
    )
    operations_max: int = Field(
        512, ge=1, le=65536, description="Nodes that are driven at the same time."
    )
    playbook_slots: int = Field(
        4, ge=1, le=64, description="Playbook runs at the same time: about 150 MB each."
    )
    playbook_hosts_max: int = Field(
        50,
        ge=1,
        le=100,
        description="Hosts in one playbook run: 10 MB and 4 processes each while it runs.",
    )
    ssh_connections_max: int = Field(
        256, ge=1, le=4096, description="Connections to hosts that are open at the same time."
    )
    switches_down_percent: int = Field(
        25,
        ge=1,
        le=100,
        description="Switches of one tier (leaf, spine) that may be out of service at once, "
        "rounded down, but at least one.",
    )

    # the ledger's windows (docs/sources/engine.md#ledger): an intent may be sent only this long
    # after it was written, and a request has ended after this long; a successor waits for both
    # before it reads
    send_window_s: float = Field(5.0, gt=0, description="An intent may be sent this long after it.")
    request_max_s: float = Field(
        150.0, gt=0, description="Longest request that changes something (an upload is 120 s)."
    )
    attempts_max: int = Field(3, ge=1, le=10, description="Attempts at one action.")

    # waiting for devices; limits from NVIDIA's and other vendors' own tools
    # (docs/sources/redfish.md#silence)
    poll_s: float = Field(20.0, gt=0, description="Between readings of a task or a power state.")
    task_limit_s: float = Field(3600.0, gt=0, description="A firmware task ends within this.")
    bfb_transfer_limit_s: float = Field(
        1200.0, gt=0, description="BlueField: a BFB is transferred within this (20 minutes)."
    )
    bfb_install_limit_s: float = Field(
        2400.0, gt=0, description="BlueField: from transfer to a running system (40 minutes)."
    )
    bmc_return_limit_s: float = Field(600.0, gt=0, description="A BMC answers again after a reset.")
    power_limit_s: float = Field(300.0, gt=0, description="A power state follows its request.")
    boot_limit_s: float = Field(1800.0, gt=0, description="A host's system is up after power on.")
    playbook_limit_s: float = Field(3600.0, gt=0, description="A playbook ends within this.")
    switch_limit_s: float = Field(1800.0, gt=0, description="A switch is back after its reboot.")
    switch_methods_allowed: tuple[Literal["nvue_packages", "onie"], ...] = Field(
        (),
        description="Ways of upgrading a switch beside the optimized image: packages, and ONIE, "
        "which destroys the switch's configuration.",
    )
    switch_drain_limit_s: float = Field(
        600.0, gt=0, description="A drained switch carries no traffic any more within this."
    )
    switch_idle_bps: float = Field(
        100_000.0,
        gt=0,
        description="Bytes a second on a port that count as no traffic (BGP and LLDP remain).",
    )
    switch_settle_limit_s: float = Field(
        2400.0,
        gt=0,
        description="After its reboot a switch has its BGP sessions, its VNIs and the carrier of "
        "all ports again within this; hosts below that are being booted come back later.",
    )
    switch_gather_s: float = Field(
        0.5, gt=0, description="Moves of ports on one leaf that come within this share a revision."
    )
    switch_poll_s: float = Field(1.0, gt=0, description="Between readings of a switch's revision.")
    switch_apply_limit_s: float = Field(
        300.0, gt=0, description="A revision is applied and in effect within this."
    )
    agent_heartbeat_s: float = Field(
        120.0,
        ge=15,
        description="A maintenance agent that was silent this long counts as gone; it calls about "
        "twice as often.",
    )
    agent_token_s: float = Field(
        86400.0, gt=0, description="The token of a maintenance agent is invalid after this."
    )
    maintenance_boot_limit_s: float = Field(
        2400.0, gt=0, description="From power on, the maintenance agent calls within this."
    )
    agent_step_limit_s: float = Field(
        600.0, gt=0, description="A short step of the maintenance agent ends within this."
    )
    erase_limit_s: float = Field(
        28800.0, gt=0, description="The erasure of one disk ends within this (overwriting is slow)."
    )
    image_write_limit_s: float = Field(
        3600.0, gt=0, description="An image is written to a disk, and read back, within this."
    )
    memory_off_s: float = Field(
        60.0,
        ge=0,
        description="A host is off this long before the maintenance image starts, so that memory "
        "forgets; DRAM does within 35 s.",
    )
    good_reads_wanted: int = Field(
        3, ge=1, le=10, description="Good answers in a row before a restarted BMC is trusted."
    )

    # requirements for a certificate
    certify_gates: str = Field(
        "ab",
        pattern=r"^abc?d?$",
        description="Gates that a node passes: a identity and errors, b load, c fabric with "
        "partners, d long burn of new nodes and parts.",
    )
    release_gates: str = Field(
        "",
        pattern=r"^(abc?d?)?$",
        description="Gates that a certificate must prove before its node goes to a tenant; empty: "
        "those of `certify_gates`.",
    )
    fabric_days: float = Field(
        90.0, gt=0, description="Gate C is proved anew when its proof is older than this, in days."
    )
    test_budget_s: float = Field(
        0.0, ge=0, description="Time that the tests of one node may take; 0: as long as it takes."
    )
    fabric_partners_min: int = Field(
        3,
        ge=3,
        le=64,
        description="Gate C: other nodes that there must be before tests among nodes begin.",
    )
    fabric_gather_s: float = Field(
        600.0, ge=0, description="Nodes that are ready for gate C within this are tested together."
    )
    fabric_wait_s: float = Field(
        21600.0, gt=0, description="A node waits this long for partners, then an alert is raised."
    )
    fabric_rate_min: float = Field(
        1.0,
        ge=0.2,
        le=1.0,
        description="Gate C looks for parts that fail at least this share of their tests; below 1 "
        "takes more rounds (0.3: nine instead of two), and a longer `fabric_session_limit_s`.",
    )
    fabric_session_limit_s: float = Field(
        7200.0, gt=0, description="Tests among nodes end within this; unfinished ones remain open."
    )
    fabric_nccl: bool = Field(
        default=False,
        description="Gate C: also NCCL on each rail of a pair, which verifies the received data.",
    )
    fabric_collectives: tuple[Annotated[int, Field(ge=2, le=512)], ...] = Field(
        (),
        max_length=4,
        description="Gate C: collectives over so many nodes with all GPUs, after the pairs; 2 is "
        "an all-reduce over two nodes, more add an all-to-all.",
    )
    fabric_training: bool = Field(
        default=False,
        description="Gate C: after each of `fabric_collectives` also a training step (PyTorch), "
        "whose bits and times are compared with its siblings' and the fleet's.",
    )

    # between two tenants
    erase_required: str = Field(
        "disk host_memory gpu_memory",
        pattern=r"^disk( (host_memory|gpu_memory|bluefield_storage|tpm|bios|bmc|bmc_defaults"
        r"|firmware|secure_boot|boot_entries))*$",
        description="Contents to erase between two tenants; others are only listed.",
    )
    erase_overwrite: bool = Field(
        default=False, description="A disk without a better method may be overwritten."
    )
    erase_rewrites: str = Field(
        "",
        pattern=r"^((bmc|bios|gpu|nic|card)( (bmc|bios|gpu|nic|card))*)?$",
        description="Firmware to write once more between two tenants although its version fits.",
    )
    erase_card_storage: bool = Field(
        default=False,
        description="Wipe eMMC and NVMe of BlueFields in DPU mode between two tenants, before "
        "their bundle is written again (`card` in `erase_rewrites`).",
    )
    erase_bmc_defaults: Literal["off", "network_kept", "addresses_reserved"] = Field(
        "off",
        description="BMCs to reset to factory defaults between two tenants: those that keep "
        "their network, or all, since DHCP gives each its address again.",
    )
    erase_same_tenant_may_skip: bool = Field(
        default=False,
        description="A node that was taken back for repair returns to its tenant unerased.",
    )

    # how long work files of playbook runs are kept
    runs_keep_days: float = Field(
        2.0, gt=0, description="Folder and row of a playbook run that went well, in days."
    )
    runs_failed_keep_days: float = Field(
        30.0, gt=0, description="The same of a run that failed on a host, was ended or lost."
    )

    # freshness of readings
    fresh_s: float = Field(
        300.0,
        ge=0,
        description="While converging, a BMC read within this is not read again, unless a step "
        "touched it; a certificate is always issued and used on a new reading.",
    )
    retry_s: float = Field(30.0, gt=0, description="First wait after a passing failure; doubles.")
    retry_max_s: float = Field(600.0, gt=0, description="Longest wait between two tries.")
    watch_s: float = Field(900.0, gt=0, description="Between two readings of a resting node.")
    watch_requests_per_s: float = Field(
        200.0, gt=0, le=10000, description="Redfish requests of the watch, for the whole fleet."
    )
    watch_first_s: float = Field(
        7200.0,
        ge=0,
        description="After a start every BMC is read once within this, beyond "
        "`watch_requests_per_s` where that is too little; 0: never beyond it.",
    )
    watch_node_s: float = Field(
        300.0,
        gt=0,
        description="Between two brief readings of a released node: one request for each BMC.",
    )
    watch_told_s: float = Field(
        0.0, ge=0, description="The same for a BMC that sends events to the daemon; 0: every time."
    )
    watch_parts_s: float = Field(
        86400.0, gt=0, description="Between two full readings of a released node's parts."
    )
    watch_silent_s: float = Field(
        1800.0, gt=0, description="A BMC that gave no answer for this long raises an alert."
    )
    watch_streams_max: int = Field(
        4096, ge=0, description="Event streams of BMCs that are followed: 60 KB each."
    )
    certificate_days: float = Field(30.0, gt=0, description="A certificate is valid this long.")
    remedies_max: int = Field(
        2, ge=0, le=10, description="Automatic tries to leave quarantine, for passing causes."
    )
    remedy_s: float = Field(1800.0, gt=0, description="Wait in quarantine before such a try.")

    @property
    def gates_to_release(self) -> str:
        return self.release_gates or self.certify_gates

    @model_validator(mode="after")
    def _provable(self) -> Settings:
        lacking = sorted(set(self.release_gates) - set(self.certify_gates))
        if lacking:
            gates = ", ".join(lacking)
            raise ValueError(f"release_gates requires {gates}, which certify_gates never proves")
        if "bmc_defaults" in self.erase_required and self.erase_bmc_defaults == "off":
            raise ValueError("erase_required has bmc_defaults, and erase_bmc_defaults is off")
        if self.erase_card_storage and "card" not in self.erase_rewrites.split():
            raise ValueError(
                "erase_card_storage leaves cards without a system: erase_rewrites must have card"
            )
        return self


_GROUPS: Mapping[type[Record], str] = {
    Settings: "Nodes: limits, waits, the watch, certificates",
    BmcSettings: "BMCs",
    CredentialSettings: "Passwords",
    BmcCertificateSettings: "TLS certificates of BMCs",
    MaintenanceSettings: "The maintenance image and its agent",
    FabricSettings: "Tenants' networks",
    ReleaseSettings: "Release to a tenant",
    StorageSettings: "Shared storage of tenants",
    RepairSettings: "Repair, spares and tickets",
    PowerSettings: "Outlets of PDUs",
    ApiSettings: "The API, its callers and its listeners",
    ClusterSettings: "Several daemons on one PostgreSQL",
    BackupSettings: "Backups",
    WebhookSettings: "Webhooks",
    AuditExportSettings: "Export of the journal",
    LogIntakeSettings: "System logs that are received",
    TelemetrySettings: "Metrics, traces and the daemon's log",
}


def render_markdown() -> str:
    """Return the list of all settings by subject, made from the model itself."""
    return "\n".join(line for owner, title in _GROUPS.items() for line in _render(owner, title))


def _render(owner: type[Record], title: str) -> list[str]:
    """Return the section of the settings that one class declares."""
    lines = ["", f"## {title}", "", "| setting | default | values | meaning |", "|---|---|---|---|"]
    for name in owner.__annotations__:
        field = Settings.model_fields[name]
        values = _describe_values(field)
        lines.append(f"| `{name}` | `{field.default}` | {values} | {field.description} |")
    return [*lines, ""]


def _describe_values(field: FieldInfo) -> str:
    """Return the words or the bounds that a setting permits; empty where only its type does."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    signs = {"gt": "> ", "ge": "≥ ", "lt": "< ", "le": "≤ "}
    bounds = (
        (sign, getattr(rule, name, None)) for rule in field.metadata for name, sign in signs.items()
    )
    return ", ".join(f"{sign}{bound:g}" for sign, bound in bounds if bound is not None)
