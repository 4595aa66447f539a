"""Settings of BMCs beside their firmware: their time, and the consoles of their hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from provisioner.model.base import Record

NtpServer = Annotated[str, Field(max_length=253, pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*)$")]


class BmcSettings(Record):
    """Part of `Settings`."""

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
