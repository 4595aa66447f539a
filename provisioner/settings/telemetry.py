"""Settings of metrics, traces and logs: a part of `Settings`."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from provisioner.model.base import Record

Network = Annotated[str, AfterValidator(lambda text: str(ip_network(text)))]  # in its usual form

# ------------------------------------------------------------------------------
# Settings of the export of the journal to a site's own log systems: a part of `Settings`.


class AuditExportSettings(Record):
    """Receivers of every row of the journal. Without any of these nothing is exported."""

    audit_syslog: str = Field(
        "",
        pattern=r"^((\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+):[0-9]{1,5})?$",
        description="HOST:PORT of a syslog receiver over TLS (RFC 5424, RFC 5425; usually 6514).",
    )
    audit_syslog_ca_file: str = Field(
        "", description="PEM file of the authorities of its certificate; empty: the system's."
    )
    audit_syslog_identity_file: str = Field(
        "", description="PEM file with our certificate and key, where it wants one."
    )
    audit_syslog_receipt: Literal["close_notify", "end"] = Field(
        "close_notify",
        description="Proof that rows were read: the receiver's answer to our close_notify, or the "
        "end of the connection alone, for receivers that never answer it (rsyslog with gtls).",
    )
    audit_syslog_bytes_max: int = Field(
        8192,
        ge=2048,
        le=1_048_576,
        description="Longest message that it takes; of a longer row all but the detail is sent.",
    )
    audit_otlp_endpoint: str = Field(
        "",
        pattern=r"^(https?://[^\s@?#]+)?$",
        description="OTLP/HTTP receiver of logs, https://HOST:4318/v1/logs.",
    )
    audit_otlp_ca_file: str = Field(
        "", description="PEM file of the authorities of its certificate; empty: the system's."
    )
    audit_otlp_headers_file: str = Field(
        "", description="File of headers for it, one `Name: value` per line."
    )
    audit_export_rows: int = Field(
        200, ge=1, le=1000, description="Rows that are on their way to one receiver at once."
    )
    audit_export_timeout_s: float = Field(
        30.0, gt=0, le=300, description="A receiver has taken these rows within this."
    )
    audit_export_s: float = Field(
        2.0, gt=0, le=3600, description="How late a row may be sent while the receiver answers."
    )
    audit_export_most_s: float = Field(
        60.0, gt=0, le=3600, description="Longest wait between two tries that failed."
    )


# ------------------------------------------------------------------------------
# Settings of webhooks: a part of `Settings`.


class WebhookSettings(Record):
    """How events are sent and retried: with the defaults for some 15 hours."""

    webhook_tries: int = Field(
        24, ge=1, le=1000, description="An event that was refused this often is a dead letter."
    )
    webhook_first_s: float = Field(
        5.0, gt=0, description="Between the first two tries; it doubles with each one."
    )
    webhook_most_s: float = Field(3600.0, gt=0, description="Between two tries at the most.")
    webhook_timeout_s: float = Field(
        15.0, gt=0, le=300, description="A receiver answers within this (Standard Webhooks: 15-30)."
    )
    webhook_parallel: int = Field(
        16,
        ge=1,
        le=256,
        description="Events on their way to one webhook at once, of as many nodes; several daemons "
        "divide them, and each has one at least.",
    )
    webhook_networks: tuple[Network, ...] = Field(
        (),
        max_length=64,
        description="Networks (CIDR) in which receivers may be beside public addresses: private "
        "ones, loopback, link-local; a cloud's metadata needs its own entry (/32 or /128).",
    )
    webhook_plain: bool = Field(
        default=False, description="Receivers may be asked by http, where their `plain` says so."
    )
    webhook_waiting_max: int = Field(
        10000,
        ge=1,
        description="Rows of events that wait for one webhook; more wait in the journal.",
    )


class TelemetrySettings(Record):
    """Metrics, traces and logs of the daemon. Without any of these it only logs."""

    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="Port of `/metrics`, 0: a free one; unset: not served."
    )
    metrics_host: str = Field(
        "127.0.0.1", description="Its address; anything but loopback needs `metrics_token_file`."
    )
    metrics_token_file: str = Field(
        "", description="File with the bearer token that scrapers must send; served over TLS then."
    )
    metrics_connections_max: int = Field(
        32, ge=8, le=65536, description="Connections to `/metrics` that are open at the same time."
    )
    metrics_connections_per_peer: int = Field(
        16, ge=4, le=65536, description="Connections of one scraper."
    )
    metrics_fresh_s: float = Field(
        10.0, ge=0, le=3600, description="The database is not read again for metrics within this."
    )
    metrics_nodes_max: int = Field(
        10, ge=0, le=100, description="Nodes that metrics name: those longest over their limit."
    )
    trace_endpoint: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="OTLP/HTTP collector of traces, https://HOST:4318/v1/traces; without: none.",
    )
    trace_headers_file: str = Field(
        "", description="File of headers for the collector, one `Name: value` per line."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Lines of the log: for people, or one JSON object each."
    )
