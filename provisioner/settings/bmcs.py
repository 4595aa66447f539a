"""Settings of BMCs beside their firmware: their time, and the consoles of their hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Settings of power distribution units (PDUs), whose outlets stand on the hardware list.
#
# A PDU stands here and not on the list, because a list comes through the API: a caller
# who may take nodes in must not name a command that the daemon runs.


VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"


class PduLogin(Record):
    """A user and a password, which is in the environment or in a file and never here."""

    username: str = Field("", max_length=64)
    password_env: str = Field("", max_length=64)
    password_file: str = Field("", max_length=1024)

    @model_validator(mode="after")
    def _has_source(self) -> PduLogin:
        if bool(self.password_env) == bool(self.password_file):
            raise ValueError("give exactly one of password_env, password_file")
        return self


class RedfishPduSettings(PduLogin):
    """A PDU with a Redfish service (DSP2046: PowerEquipment, RackPDUs, Outlets)."""

    kind: Literal["redfish"]
    url: str = Field(pattern=r"^https://[^@/\s]+/?$")
    pin: str = Field("", pattern=r"^([0-9a-fA-F]{64})?$")  # SHA-256 of its certificate


class SnmpPduSettings(PduLogin):
    """A PDU over SNMP. `version` 2c: the password is the community, and there is no user."""

    kind: Literal["snmp"]
    host: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]*$", max_length=253)
    port: int = Field(161, ge=1, le=65535)
    table: Literal["apc_rpdu2", "apc_rpdu", "raritan_pdu2", "sentry4"]
    version: Literal["3", "2c"] = "3"
    auth: Literal["sha256", "sha512", "sha1"] = "sha256"
    privacy_env: str = Field("", max_length=64)  # version 3: the key of its encryption
    privacy_file: str = Field("", max_length=1024)

    @model_validator(mode="after")
    def _is_encrypted(self) -> SnmpPduSettings:
        if self.version == "3" and not self.username:
            raise ValueError("SNMP version 3 needs a username")
        if self.version == "3" and bool(self.privacy_env) == bool(self.privacy_file):
            raise ValueError("SNMP version 3 needs exactly one of privacy_env, privacy_file")
        return self


class CommandPduSettings(Record):
    """The site's own command: `argv` with `read`, `on` or `off` and the outlet after it."""

    kind: Literal["command"]
    argv: tuple[str, ...] = Field(min_length=1, max_length=32)
    limit_s: float = Field(30.0, gt=0, le=300)
    environment: tuple[Annotated[str, Field(pattern=VARIABLE)], ...] = Field((), max_length=16)

    @model_validator(mode="after")
    def _is_absolute(self) -> CommandPduSettings:
        if not self.argv[0].startswith("/"):
            raise ValueError("argv begins with the absolute path of the command")
        return self


PduSettings = Annotated[
    RedfishPduSettings | SnmpPduSettings | CommandPduSettings, Field(discriminator="kind")
]


class PowerSettings(Record):
    """Part of `Settings`."""

    pdus: dict[str, PduSettings] = Field(
        {},
        max_length=4096,
        description="Power distribution units by name, for `outlets` of the hardware list: kind "
        "`redfish`, `snmp` or `command`.",
    )
    outlets_off_s: float = Field(
        300.0,
        ge=10,
        le=3600,
        description="A host whose BMC cannot remove standby power has its outlets off this long.",
    )
    outlets_silence_limit_s: float = Field(
        120.0,
        gt=0,
        description="A BMC falls silent within this after all outlets of its host are off.",
    )
    outlets_limit_s: float = Field(
        60.0, gt=0, description="An outlet reports the requested state within this."
    )


# ------------------------------------------------------------------------------
# Settings of the BMCs' own TLS certificates, which the site's authority signs.


_VALUE = r"[^,=/+<>#;\x00-\x1f]{1,64}"
_SUBJECT = rf"^(C=[A-Z]{{2}},ST={_VALUE},L={_VALUE},O={_VALUE},OU={_VALUE})?$"


class BmcCertificateSettings(Record):
    """Part of `Settings`."""

    bmc_ca_command: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Command of the site's certificate authority: it reads the request (PKCS#10, "
        "PEM) of a BMC from its input and prints the certificate (PEM). Empty: BMCs keep theirs.",
    )
    bmc_ca_environment: tuple[Annotated[str, Field(pattern=VARIABLE)], ...] = Field(
        (), max_length=16, description="Variables that this command inherits from the daemon."
    )
    bmc_ca_limit_s: float = Field(
        60.0, gt=0, le=600, description="The command of the authority ends within this."
    )
    bmc_certificate_subject: str = Field(
        "",
        pattern=_SUBJECT,
        description="Subject of BMCs' certificates beside their name, which Redfish demands whole: "
        "C=DE,ST=Hessen,L=Frankfurt,O=Example,OU=Compute.",
    )
    bmc_certificate_renew_days: float = Field(
        30.0, gt=0, le=3650, description="A BMC's certificate is renewed so long before its end."
    )
    bmc_certificate_nodes_max: int = Field(
        16, ge=1, le=4096, description="Nodes whose BMCs get certificates at the same time."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> BmcCertificateSettings:
        if self.bmc_ca_command and not self.bmc_ca_command[0].startswith("/"):
            raise ValueError("bmc_ca_command begins with the absolute path of the command")
        if self.bmc_ca_command and not self.bmc_certificate_subject:
            raise ValueError("bmc_ca_command needs bmc_certificate_subject")
        return self


# ------------------------------------------------------------------------------
# Settings of logins that the daemon keeps: how old a password may become, and how fast all change.
#
# The rate at its default changes the 720,896 BMCs of 65,536 hosts within 6.3 hours.


class CredentialSettings(Record):
    """Part of `Settings`."""

    credential_days: float = Field(
        0.0,
        ge=0,
        le=3650,
        description="A BMC's password is changed when it is older than this, in days; 0: only "
        "when an event or a person demands it.",
    )
    credential_after_tenant: bool = Field(
        default=False,
        description="Passwords of a host's BMCs are changed when it comes back from a tenant, "
        "before it counts as sanitized.",
    )
    credential_switches: bool = Field(
        default=False,
        description="Passwords of switches' APIs are changed like those of BMCs, the site's own "
        "ones of the list too; other tools that have them lose access.",
    )
    credential_setup_password: bool = Field(
        default=False,
        description="The UEFI set-up password of a host is set and changed when it comes back from "
        "a tenant, where its BMC proves the one in force; one boot more.",
    )
    credential_setup_password_file: str = Field(
        "",
        max_length=1024,
        description="File with the set-up password that the site's hosts have today; empty: they "
        "have none, or the daemon's.",
    )
    switch_tacacs_key_file: str = Field(
        "",
        max_length=1024,
        description="File with the key of the TACACS+ servers that sets of switches name; empty: "
        "such a set is refused on switches that take the key.",
    )
    credential_shown_h: float = Field(
        4.0,
        gt=0,
        le=72,
        description="A password that a person was shown is changed after this, in hours.",
    )
    credential_rotations_per_s: float = Field(
        32.0, gt=0, le=1000, description="BMCs whose password is changed, for the whole fleet."
    )
    credential_nodes_max: int = Field(
        256, ge=1, le=65536, description="Nodes whose passwords are changed at the same time."
    )


NtpServer = Annotated[str, Field(max_length=253, pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*)$")]


class BmcSettings(Record):
    """Part of `Settings`."""

    racks_folder: str = Field(
        "",
        max_length=1024,
        description="Folder with the plan of NVL72 racks as racks.yaml, and beside it water.json "
        "and looks/ of `provisioner rack`; empty: no rack is shown (docs/racks.md).",
    )
    racks_update: bool = Field(
        default=False, description="Carry out campaigns over racks that a person approved."
    )
    racks_nvlink_manager: str = Field(
        "",
        max_length=256,
        pattern=r"^(https://[^\s/@?#\\]+)?$",
        description="https://HOST of NMX Manager or NetQ NVLink: a handover puts the GPUs of a "
        "planned tray into its tenant's NVLink partition, and a reclaim takes them out; its "
        "password is PROVISIONER_NMX_PASSWORD. Empty: neither (docs/racks.md#partitions).",
    )
    racks_nvlink_user: str = Field("rw-user", min_length=1, max_length=64, description="Its user.")
    bmc_ntp_servers: tuple[NtpServer, ...] = Field(
        (),
        max_length=4,
        description="Time servers that BMCs are given at intake, by name or address; none: their "
        "time is left alone. A BMC without NTP gets our time once.",
    )
    bmc_accounts_expected: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Accounts of BMCs beside the daemon's own that belong there; * stands for any "
        "characters. Others are named when a host comes back from a tenant.",
    )
    bmc_destinations_expected: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Destinations of BMCs' events beside the daemon's own that belong there; * "
        "stands for any characters.",
    )
    bmc_ssh_keys_expected: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Fingerprints (SHA256:…) of SSH keys that belong to accounts of BMCs. Others "
        "are named when a host comes back from a tenant.",
    )
    secure_boot_keys_expected: tuple[Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$")], ...] = (
        Field(
            (),
            max_length=64,
            description="SHA-256 of the site's own certificates in the databases of Secure Boot, "
            "beside the factory's. Others are named when a host comes back from a tenant.",
        )
    )
    bmc_skew_limit_s: float = Field(
        60.0,
        ge=5,
        le=86400,
        description="Largest difference between a BMC's clock and ours without an alert.",
    )
    watch_basic: bool = Field(
        default=True,
        description="The watch reads one resource of a pinned BMC with Basic instead of a session; "
        "the password is sent only after the certificate was compared. False: always a session.",
    )
    attestation_again_s: float = Field(
        7 * 86400.0,
        ge=3600,
        description="A certified host whose profile asks for attestation proves its firmware again "
        "after this, and after each reset that its BMC shows.",
    )
    attestation_references: str = Field(
        "",
        max_length=1024,
        description="Folder with manifests (RIM) and OCSP answers (`*.ocsp`) about devices, as "
        "`bundle unpack` writes it; it is read each time that devices are asked.",
    )
    attestation_grace_s: float = Field(
        86400.0,
        ge=0,
        description="A proof that is due and cannot be had revokes the certificate after this, "
        "where the profile requires it.",
    )
    bmc_lockdown: Literal["refuse", "lift"] = Field(
        "refuse",
        description="A BMC in lockdown: name it and wait for a person, or lift the lockdown while "
        "an operation writes to the host's BMC, and restore it before the host goes on.",
    )
    consoles: Literal["off", "ssh", "ssh_or_ipmi"] = Field(
        "off",
        description="Collect the serial consoles of hosts through their BMCs: not, over SSH, or "
        "over IPMI where a BMC offers no SSH and its profile does not pin IPMI off.",
    )
    consoles_max: int = Field(1024, ge=1, le=65536, description="Consoles that are open at once.")
    console_days: int = Field(
        30, ge=1, le=3650, description="Days for which lines of consoles are stored."
    )
    console_lines_per_minute: int = Field(
        6000,
        ge=60,
        le=600_000,
        description="Lines of one console that are stored in a minute; more are only counted.",
    )
    console_bytes_max: int = Field(
        64 * 1024 * 1024,
        ge=65536,
        description="Bytes of all stored lines of one host; the oldest go first.",
    )
