"""Settings of the maintenance network and of the agents that run in it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Settings of the intake of machines' system logs: a part of `Settings`.


class LogIntakeSettings(Record):
    """A receiver of syslog for the switches and hosts of the inventory. Without a port: none."""

    log_intake_host: str = Field(
        "127.0.0.1", description="Address on the management network at which syslog is received."
    )
    log_intake_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of syslog over TLS (RFC 5425, usually 6514), 0: a free one; unset: none. "
        "Each sender shows a certificate with the name of its node.",
    )
    log_intake_ca_file: str = Field(
        "", description="PEM file of the authorities of the senders' certificates."
    )
    log_intake_udp_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of syslog over UDP, for switches alone, which it knows by their "
        "management addresses: a neighbour on that network can forge these. Unset: none.",
    )
    log_intake_connections_max: int = Field(
        1024, ge=8, le=65536, description="Connections of senders that are open at the same time."
    )
    log_days: int = Field(30, ge=1, le=3650, description="Days for which messages are stored.")
    log_lines_per_minute: int = Field(
        6000,
        ge=60,
        le=600_000,
        description="Messages of one node that are stored in a minute; more are only counted.",
    )
    log_bytes_per_s: int = Field(
        256 * 1024,
        ge=4096,
        le=64 * 1024 * 1024,
        description="Bytes that are read from one node in a second, and those of 8 s at once: over "
        "TLS it waits with the rest, datagrams beyond are dropped.",
    )
    log_bytes_max: int = Field(
        64 * 1024 * 1024,
        ge=65536,
        description="Bytes of all stored messages of one node; the oldest go first.",
    )


def _checked_network(text: str) -> str:
    """Return an IPv4 network in its one spelling; ValueError if it is none."""
    return str(ipaddress.IPv4Network(text))


Network = Annotated[str, Field(max_length=18), AfterValidator(_checked_network)]


BootWay = Literal["vendor", "virtual_media", "http", "http_dhcp", "pxe"]
BY_SITE: frozenset[BootWay] = frozenset({"http_dhcp", "pxe"})  # the site's servers name the image


class MaintenanceSettings(Record):
    """Part of `Settings`."""

    maintenance_boot: BootWay = Field(
        "vendor",
        description="How hosts boot the maintenance image: `virtual_media`, `http` (UEFI HTTP from "
        "`HttpBootUri`), `http_dhcp` (UEFI HTTP from the URL of the site's DHCP server), `pxe` "
        "(the site's DHCP and TFTP or HTTP servers), or the declared way of each vendor.",
    )
    agent_lookup_trusts: Literal["nobody", "first"] = Field(
        "nobody",
        description="Where the image of a boot cannot carry the agent's token (no slot in it, or "
        "`--artifact-url`): such an image is not booted, or the first lookup gets the token.",
    )
    agent_tpm: Literal["require", "record", "off"] = Field(
        "off",
        description="Whether the maintenance agent must quote the TPM of its board, whose key a "
        "maker or a person vouched for: an agent without that quote is refused, or only recorded.",
    )
    tpm_makers_file: str = Field(
        "",
        max_length=1024,
        description="PEM file of the TPM makers' certificates, roots or intermediates, that vouch "
        "for this site's boards, and of their revocation lists (CRL); a person vouches for any "
        "other TPM (`node retry --admit-tpm`).",
    )
    tpm_boards_file: str = Field(
        "",
        max_length=1024,
        description="Text file with a node's name and the SHA-256 digests of its board's "
        "endorsement keys, or of their certificates, in each line: a TPM that is on no line of the "
        "node is enrolled for it by a person only.",
    )
    lookup_isolation: Literal["leaves", "site"] = Field(
        "leaves",
        description="Who keeps hosts apart on the network where agents are looked up: a filter on "
        "the leaves' host ports, read back and proved, or the site's own switches, unproved.",
    )
    lookup_networks: tuple[Network, ...] = Field(
        (),
        max_length=64,
        description="IPv4 networks in which hosts are while their agents are looked up (in-band, "
        "not the rails): no host in the maintenance network reaches another one there.",
    )
    lookup_reached: tuple[Network, ...] = Field(
        (),
        max_length=64,
        description="Parts of `lookup_networks` that hosts may reach: the daemon, gateways, DHCP, "
        "name and time servers, each as a network (10.0.0.2/32).",
    )
    lookup_ports: tuple[str, ...] = Field(
        (),
        max_length=1024,
        description="LEAF/PORT patterns of host ports in that network which no release moves; the "
        "ports of nodes that stand in the maintenance VRF are filtered without being named.",
    )

    @property
    def keeps_hosts_apart(self) -> bool:
        return self.lookup_isolation == "leaves" and bool(self.lookup_networks)
