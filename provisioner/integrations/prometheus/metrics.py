"""Metrics of this daemon: their registry, and the server that scrapers read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from provisioner.daemon.api import EXPIRES, served_tls
from provisioner.daemon.event_supervisor import DROPPED
from provisioner.integrations.prometheus.recording import Recorder
from provisioner.integrations.prometheus.serving import (
    FleetMetrics,
    Queues,
    build_application,
    require_private_address,
    serve_metrics,
)
from provisioner.ports import Clock, Secret
from provisioner.runtime import permit
from provisioner.settings import Settings
from provisioner.store.database import waits
from provisioner.store.database.data_directory import Sealing
from provisioner.store.sql_store import SqlStore


class Metrics:
    """The registry of this daemon, the receiver that counts into it, and its server.

    Raises InputError if the whole network could read the metrics.
    """

    def __init__(
        self, settings: Settings, clock: Clock, token: Secret | None, version: str
    ) -> None:
        require_private_address(settings, token)
        self._token = token
        self._clock = clock
        self._settings = settings
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(_Build(version))
        self.registry.register(_Cluster())
        self.recorder = Recorder(self.registry, clock.now)

    @asynccontextmanager
    async def serve(
        self, data: Path, store: SqlStore, queues: Queues, keys: Sealing
    ) -> AsyncIterator[str]:
        """Serve `/metrics` and yield its URL. Beyond loopback it has our TLS."""
        fleet = FleetMetrics(store, self._clock, self._settings, self.registry, queues)
        app = build_application(self.registry, fleet, self._token)
        tls = nullcontext() if self._token is None else served_tls(data, self._settings, keys)
        async with tls as context, serve_metrics(app, self._settings, context) as url:
            yield url


class _Build(Collector):
    """The metric of the running version."""

    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> list[InfoMetricFamily]:
        text = "The version of the provisioner that runs."
        return [InfoMetricFamily("provisioner_build", text, {"version": self._version})]


SUBJECTS = (
    "clock",
    "daemons",
    "time",
    "callers",
    "reach",
    "reach of peers",
    "database",
    "folds",
    "rack water",
)


class _Cluster(Collector):
    """The metrics of this daemon's standing towards its database and its peers."""

    def collect(self) -> list[Metric]:
        wait = "How long the transaction that waits longest has waited for the database."
        notices = "Notices of this daemon about itself, by subject (docs/high-availability.md)."
        standing = GaugeMetricFamily("provisioner_notices", notices, labels=("subject",))
        notices_by_subject = permit.get_scope().notices
        for subject in SUBJECTS:
            label = subject.replace(" ", "_")
            standing.add_metric((label,), len(notices_by_subject.get(subject, ())))
        seconds = waits.longest()[1]
        scope = permit.get_scope()
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
        dropped = CounterMetricFamily(
            "provisioner_events_dropped",
            "Events of BMCs that `events_process` could not hand over in time.",
            value=scope.counts.get(DROPPED, 0),
        )
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
            dropped,
            GaugeMetricFamily("provisioner_api_streams", text, value=open_now),
            GaugeMetricFamily(
                "provisioner_shards",
                "Units of the fabric that this daemon looks after, among several; 0: it is alone.",
                value=scope.counts.get("shards", 0),
            ),
        ]
