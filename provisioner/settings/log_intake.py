"""Settings of the intake of machines' system logs: a part of `Settings`."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


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
    log_bytes_max: int = Field(
        64 * 1024 * 1024,
        ge=65536,
        description="Bytes of all stored messages of one node; the oldest go first.",
    )
