"""Settings of the export of the journal to a site's own log systems: a part of `Settings`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.base import Record


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
