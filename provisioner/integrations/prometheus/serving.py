"""`/metrics` over HTTP for Prometheus: on loopback, or over TLS with a bearer token."""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aiohttp import hdrs, web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from provisioner.model.campaign import Campaign, CampaignState
from provisioner.model.credential import CredentialSummary
from provisioner.model.input_error import InputError
from provisioner.model.integrations.audit_export import ExportStatus
from provisioner.model.integrations.partition import is_loopback
from provisioner.planning.campaigns.rollout import compute_budget, find_failures
from provisioner.planning.lifecycle.journey import JOURNEY
from provisioner.ports import Clock, Secret, StoreFailed
from provisioner.runtime.bounded_listener import (
    BoundedListener,
    Limits,
    get_handlers,
    hear_requests,
)
from provisioner.settings import Settings
from provisioner.store.rows.home_rows import EXPIRIES, Fleet, read_fleet
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Metrics of the fleet, read from the database at a scrape, and no more often.
#
# No label is a node, except for the few that are longest over their limit (`metrics_nodes_max`),
# and no label is a campaign, except for those in progress (CAMPAIGNS_MAX).


CAMPAIGNS_MAX = 20  # in progress at the same time, the newest first: people run one or two
GOING = (
    CampaignState.STARTED,
    CampaignState.PAUSED,
    CampaignState.STOPPED,
    CampaignState.ROLLING_BACK,
)
Queues = Callable[[], Mapping[str, tuple[float, float]]]  # name -> (length, limit; 0: none)


@dataclass(frozen=True)
class _FleetReading:
    at: float
    took_s: float
    fleet: Fleet
    campaigns: Sequence[tuple[Campaign, int, int]]  # with its counted failures and its budget


class FleetMetrics(Collector):
    """A collector for a registry; call `refresh` before each scrape."""

    def __init__(
        self,
        store: SqlStore,
        clock: Clock,
        settings: Settings,
        registry: CollectorRegistry,
        queues: Queues = dict,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._queues = queues
        self._look: _FleetReading | None = None
        self._turn = asyncio.Lock()
        registry.register(self)

    async def refresh(self) -> None:
        """Read again if the reading is older than `metrics_fresh_s`; scrapers share a reading."""
        async with self._turn:
            loop = asyncio.get_running_loop()
            last = self._look
            began = loop.time()
            if last is not None and began - last.at < self._settings.metrics_fresh_s:
                return
            limits = {state: stage.limit_s for state, stage in JOURNEY.items()}
            reading = partial(
                read_fleet,
                now=self._clock.now(),
                limits_s=limits,
                late_max=self._settings.metrics_nodes_max,
            )
            fleet = await self._store.read(reading)
            campaigns = await self._read_campaigns(fleet)
            self._look = _FleetReading(began, loop.time() - began, fleet, campaigns)

    async def _read_campaigns(self, fleet: Fleet) -> Sequence[tuple[Campaign, int, int]]:
        if not fleet.campaigns:
            return ()
        book = self._store.campaigns
        campaigns = []
        going = [c for c in await book.list() if c.state in GOING]
        for campaign in going[-CAMPAIGNS_MAX:]:
            rows = await book.list_rows(campaign.id)
            progress = {r.node: r.progress for r in rows}
            failed = len(find_failures(campaign, progress))
            campaigns.append((campaign, failed, compute_budget(campaign, progress)))
        return campaigns

    def collect(self) -> Iterable[Metric]:
        """Return the latest reading as metric families; none before the first reading."""
        name = "provisioner_state_limit_seconds"
        text = "How long a node may be in a state."
        family = GaugeMetricFamily(name, text, labels=("state",))
        for state, stage in JOURNEY.items():
            family.add_metric((state.value,), stage.limit_s)
        yield family
        yield from self._collect_queues()
        look = self._look
        if look is None:
            return
        yield from _collect_states(look.fleet)
        yield from _collect_counts(look.fleet)
        yield from _collect_certificates(look.fleet)
        yield from _collect_logins(look.fleet.logins, self._clock.now())
        yield from _collect_exports(look.fleet.exports, self._clock.now())
        yield from _collect_campaigns(look)
        yield _make_gauge(
            "provisioner_metrics_read_seconds", "The last look took this.", look.took_s
        )

    def _collect_queues(self) -> Iterator[Metric]:
        length = GaugeMetricFamily(
            "provisioner_queue_length", "What is in a queue of the daemon.", labels=("queue",)
        )
        limit = GaugeMetricFamily(
            "provisioner_queue_limit", "What it takes at once.", labels=("queue",)
        )
        for name, (inside, most) in sorted(self._queues().items()):
            length.add_metric((name,), inside)
            if most:
                limit.add_metric((name,), most)
        yield length
        yield limit


def _collect_states(fleet: Fleet) -> Iterator[Metric]:
    labels = ("kind", "state")
    count = GaugeMetricFamily("provisioner_nodes", "Nodes by kind and state.", labels=labels)
    longest = GaugeMetricFamily(
        "provisioner_state_longest_seconds",
        "How long the node that is longest in a state is in it.",
        labels=labels,
    )
    over = GaugeMetricFamily(
        "provisioner_nodes_over_limit", "Nodes longer in a state than its limit.", labels=labels
    )
    for f in fleet.states:
        count.add_metric((f.kind, f.state), f.nodes)
        longest.add_metric((f.kind, f.state), f.longest_s)
        over.add_metric((f.kind, f.state), f.over_limit)
    late = GaugeMetricFamily(
        "provisioner_node_over_limit_seconds",
        "Nodes that are longest over the limit of their state, by name; only a few.",
        labels=("node", "state"),
    )
    for node, state, seconds in fleet.late:
        late.add_metric((node, state), seconds)
    yield from (count, longest, over, late)


def _collect_counts(fleet: Fleet) -> Iterator[Metric]:
    for name, text, label, figures in (
        ("nodes_blocked", "Nodes by the reason of their first blocker.", "reason", fleet.blocked),
        ("operations", "Operations that are not done.", "status", fleet.operations),
        ("alerts", "Alerts that stand, by their first class.", "classification", fleet.alerts),
        ("cases", "Open repair cases by stage.", "stage", fleet.cases),
        ("requests", "Changes asked for through the API.", "state", fleet.requests),
    ):
        family = GaugeMetricFamily(f"provisioner_{name}", text, labels=(label,))
        for value, count in sorted(figures.items()):
            family.add_metric((value,), count)
        yield family
    yield _make_gauge("provisioner_journal_rows", "Rows of the journal.", fleet.journal_rows)


def _collect_certificates(fleet: Fleet) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "provisioner_certificates",
        "Certificates of nodes in force, by when they end: expired, within a day, a week, later.",
        labels=("expires",),
    )
    for name, _ in EXPIRIES:
        family.add_metric((name,), fleet.certificates[name])
    yield family
    text = "Age of the oldest certificate of a node in force."
    yield _make_gauge("provisioner_certificate_oldest_seconds", text, fleet.oldest_certificate_s)


def _collect_logins(logins: CredentialSummary, now: float) -> Iterator[Metric]:
    name = "provisioner_credential_oldest_seconds"
    age_s = max(0.0, now - logins.oldest_at) if logins.oldest_at else 0.0
    yield _make_gauge(name, "Age of the oldest password of a BMC, as far as recorded.", age_s)
    for name, text, count in (
        ("credentials", "Logins of BMCs that the daemon keeps.", logins.count),
        ("credentials_unknown_age", "Of these, with an unrecorded age.", logins.unknown_age),
        ("credentials_due", "Of these, an event demands a change.", logins.due),
        ("credentials_failing", "Of these, the last change failed.", logins.failing),
    ):
        yield _make_gauge(f"provisioner_{name}", text, count)


def _collect_exports(exports: Sequence[ExportStatus], now: float) -> Iterator[Metric]:
    labels = ("receiver",)
    waiting = GaugeMetricFamily(
        "provisioner_audit_export_waiting",
        "Rows of the journal that a receiver has not taken.",
        labels=labels,
    )
    failing = GaugeMetricFamily(
        "provisioner_audit_export_failing_seconds",
        "How long it has taken nothing, 0 while it does.",
        labels=labels,
    )
    rejected = CounterMetricFamily(
        "provisioner_audit_export_rejected", "Rows that it refused for good.", labels=labels
    )
    for export in exports:
        since = export.failing_since
        waiting.add_metric((export.receiver,), export.waiting)
        failing.add_metric((export.receiver,), max(0.0, now - since) if since else 0.0)
        rejected.add_metric((export.receiver,), export.rejected)
    yield from (waiting, failing, rejected)


def _collect_campaigns(look: _FleetReading) -> Iterator[Metric]:
    named = {c.id for c, _, _ in look.campaigns}
    nodes = GaugeMetricFamily(
        "provisioner_campaign_nodes",
        "Nodes of campaigns under way, by how far they are.",
        labels=("campaign", "state"),
    )
    for (campaign, state), count in sorted(look.fleet.campaigns.items()):
        if campaign in named:
            nodes.add_metric((campaign, state), count)
    labels = ("campaign",)
    failed = GaugeMetricFamily(
        "provisioner_campaign_failures", "Failures that count.", labels=labels
    )
    most = GaugeMetricFamily(
        "provisioner_campaign_failure_budget", "How many nodes may fail.", labels=labels
    )
    stopped = GaugeMetricFamily(
        "provisioner_campaign_stopped",
        "1: it stopped itself, and waits for a person.",
        labels=labels,
    )
    still = GaugeMetricFamily(
        "provisioner_campaign_standing_still",
        "1: nothing of it is under way, and nothing may begin.",
        labels=labels,
    )
    for campaign_row, count, allowed in look.campaigns:
        still.add_metric((campaign_row.id,), campaign_row.still_since > 0)
        failed.add_metric((campaign_row.id,), count)
        most.add_metric((campaign_row.id,), allowed)
        stopped.add_metric((campaign_row.id,), campaign_row.state is CampaignState.STOPPED)
    yield from (nodes, failed, most, stopped, still)


def _make_gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value)


log = logging.getLogger(__name__)
HEADERS_S = 10.0  # a connection that sends no whole request within this is closed
PATH = "/metrics"


def build_application(
    registry: CollectorRegistry, fleet: FleetMetrics, token: Secret | None
) -> web.Application:
    """Return an application with one path. Without a `token` everyone may read."""

    async def metrics(request: web.Request) -> web.Response:
        if token is not None and not _has_token(request, token):
            headers = {hdrs.WWW_AUTHENTICATE: 'Bearer realm="provisioner metrics"'}
            raise web.HTTPUnauthorized(headers=headers)
        try:
            await fleet.refresh()
        except StoreFailed:  # the metrics of this process are served nevertheless
            log.warning("metrics: the database could not be read")
        text = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[web.middleware(hear_requests)])
    app.router.add_get(PATH, metrics)
    return app


def _has_token(request: web.Request, token: Secret) -> bool:
    word, _, credentials = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    expected = token.reveal().encode()
    return word.lower() == "bearer" and hmac.compare_digest(credentials.strip().encode(), expected)


def require_private_address(settings: Settings, token: Secret | None) -> None:
    """Raise InputError if the whole network could read the metrics."""
    if token is None and not is_loopback(settings.metrics_host):
        problem = "metrics beyond loopback need a token"
        remedy = "Name a file with a token in metrics_token_file, or serve them at 127.0.0.1."
        raise InputError("metrics_host", settings.metrics_host, problem, remedy)


@asynccontextmanager
async def serve_metrics(
    app: web.Application, settings: Settings, context: ssl.SSLContext | None
) -> AsyncIterator[str]:
    """Serve the application by the settings and yield its URL. Raises InputError."""
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=HEADERS_S)
    await runner.setup()
    limits = Limits(
        settings.metrics_connections_max,
        settings.metrics_connections_per_peer,
        HEADERS_S,
        first_s=min(HEADERS_S, settings.api_first_s),
    )
    listener = BoundedListener("metrics", get_handlers(runner), limits, context)
    try:
        try:
            await listener.start(settings.metrics_host, settings.metrics_port or 0)
        except OSError as error:
            where = f"{settings.metrics_host}:{settings.metrics_port}"
            problem = f"metrics cannot be served there ({error.strerror or error})"
            remedy = "Name a free port at an address of this machine: metrics_host, metrics_port."
            raise InputError("metrics_port", where, problem, remedy) from None
        host = settings.metrics_host
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if context is None else "https"
        yield f"{scheme}://{shown}:{listener.port}{PATH}"
    finally:
        await listener.stop()
        await runner.cleanup()
