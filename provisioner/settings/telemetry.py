"""Settings of metrics, traces and logs: a part of `Settings`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.base import Record


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
