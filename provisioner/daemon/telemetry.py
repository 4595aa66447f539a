"""Opens metrics and traces as the settings say; `SILENCE` where they ask for none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from provisioner.daemon.data import read_text
from provisioner.daemon.served_certificate import EXPIRES, served_tls
from provisioner.model.input_error import InputError
from provisioner.ports import Clock, Secret
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime import permit, process_scope
from provisioner.settings import Settings
from provisioner.store.database import waits
from provisioner.store.sql_store import SqlStore
from provisioner.telemetry.collecting import FleetMetrics, Queues
from provisioner.telemetry.logs import set_up_logging
from provisioner.telemetry.recording import Recorder
from provisioner.telemetry.serving import build_application, require_private_address, serve_metrics
from provisioner.telemetry.several import TelemetryFanout
from provisioner.telemetry.tracing import TraceTelemetry, open_traces

TOKEN_MIN = 16  # characters: shorter tokens can be guessed


@dataclass
class Measured:
    """The receivers of measurements, and the registry that scrapers read."""

    telemetry: Telemetry = SILENCE
    registry: CollectorRegistry | None = None  # None: metrics are not served
    token: Secret | None = field(default=None, repr=False)


@asynccontextmanager
async def open_telemetry(settings: Settings, clock: Clock) -> AsyncIterator[Measured]:
    """Yield the receivers that the settings ask for, and set up the log.

    Waiting spans are sent at the end. Raises InputError.
    """
    set_up_logging(settings.log_format)
    parts: list[Telemetry] = []
    registry = None
    token = None
    if settings.metrics_port is not None:
        token = _token(settings.metrics_token_file)
        require_private_address(settings, token)
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        registry.register(_Build())
        registry.register(_Cluster())
        parts.append(Recorder(registry, clock.now))
    traces = None
    if settings.trace_endpoint:
        headers = read_headers("trace_headers_file", settings.trace_headers_file)
        traces = open_traces(settings.trace_endpoint, headers, read_version())
        parts.append(traces)
    try:
        receiver = parts[0] if len(parts) == 1 else TelemetryFanout(parts) if parts else SILENCE
        yield Measured(receiver, registry, token)
    finally:
        if traces is not None:
            await asyncio.to_thread(TraceTelemetry.close, traces)


@asynccontextmanager
async def served_metrics(
    measured: Measured,
    data: Path,
    store: SqlStore,
    clock: Clock,
    settings: Settings,
    queues: Queues,
) -> AsyncIterator[str]:
    """Serve `/metrics` if the settings ask for it; yield its URL, or "".

    Beyond loopback it has our TLS.
    """
    if measured.registry is None:
        yield ""
        return
    fleet = FleetMetrics(store, clock, settings, measured.registry, queues)
    app = build_application(measured.registry, fleet, measured.token)
    tls = nullcontext() if measured.token is None else served_tls(data, settings)
    async with tls as context, serve_metrics(app, settings, context) as url:
        yield url


def read_version() -> str:
    """Return the version of this program."""
    try:
        return version("gpu-provisioner")
    except PackageNotFoundError:  # run from a copy of its files
        return "unknown"


class _Build(Collector):
    """The metric of the running version."""

    def collect(self) -> list[InfoMetricFamily]:
        text = "The version of the provisioner that runs."
        return [InfoMetricFamily("provisioner_build", text, {"version": read_version()})]


class _Cluster(Collector):
    """The metrics of this daemon's standing towards its database and its peers."""

    def collect(self) -> list[Metric]:
        wait = "How long the transaction that waits longest has waited for the database."
        notices = "Notices of this daemon about itself, by subject (docs/high-availability.md)."
        standing = GaugeMetricFamily("provisioner_notices", notices, labels=("subject",))
        notices_by_subject = process_scope.get_scope().notices
        for subject in ("clock", "daemons", "time", "callers"):
            standing.add_metric((subject,), len(notices_by_subject.get(subject, ())))
        seconds = waits.longest()[1]
        scope = process_scope.get_scope()
        limited = CounterMetricFamily(
            "provisioner_api_limited",
            "Requests to the API over a limit of one caller, by the limit.",
            labels=("limit",),
        )
        for limit, count in sorted(scope.limited.items()):
            limited.add_metric((limit,), count)
        messages = CounterMetricFamily(
            "provisioner_log_messages",
            "Messages of machines' system logs, by outcome: stored, over_limit, malformed, lost; "
            "unknown_sender: connections and datagrams of senders that are no node.",
            labels=("outcome",),
        )
        for outcome, count in sorted(scope.log_messages.items()):
            messages.add_metric((outcome,), count)
        open_now = scope.counts.get("api_streams", 0)
        text = "Event streams of the API that are open."
        observing = "1 while the daemon was started with --observe, and changes no device."
        withheld = CounterMetricFamily(
            "provisioner_withheld",
            "Requests to devices that were refused before they were sent.",
            value=scope.counts.get(permit.WITHHELD, 0),
        )
        ends = GaugeMetricFamily(
            "provisioner_api_certificate_expires_at_seconds",
            "When the site's certificate of the API ends (Unix time); 0: our authority's.",
            value=scope.counts.get(EXPIRES, 0),
        )
        backup = GaugeMetricFamily(
            "provisioner_backup_newest_at_seconds",
            "When the newest scheduled backup was made (Unix time); 0: none is scheduled.",
            value=scope.counts.get("backup_newest_at", 0),
        )
        return [
            ends,
            backup,
            GaugeMetricFamily("provisioner_observing", observing, value=float(scope.observes)),
            withheld,
            GaugeMetricFamily("provisioner_database_wait_seconds", wait, value=seconds),
            standing,
            limited,
            messages,
            GaugeMetricFamily("provisioner_api_streams", text, value=open_now),
        ]


def _token(path: str) -> Secret | None:
    if not path:
        return None
    token = read_text(Path(path)).strip()
    if len(token) < TOKEN_MIN or not token.isascii() or not token.isprintable():
        problem = f"a token has at least {TOKEN_MIN} characters of ASCII"
        raise InputError("metrics_token_file", path, problem, "Run: openssl rand -hex 32 > FILE")
    return Secret(token)


def read_headers(setting: str, path: str) -> dict[str, str]:
    """Return a collector's headers; their values are secrets, and are never logged."""
    headers = dict[str, str]()
    if not path:
        return headers
    for number, line in enumerate(read_text(Path(path)).splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip().isascii() and value.strip()):
            problem = f"line {number} is no header"
            raise InputError(setting, path, problem, "Write lines of `Name: value`.")
        if line.strip():
            headers[name.strip()] = value.strip()
    return headers
