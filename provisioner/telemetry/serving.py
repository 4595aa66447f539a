"""`/metrics` over HTTP for Prometheus: on loopback, or over TLS with a bearer token."""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import hdrs, web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from provisioner.model.input_error import InputError
from provisioner.model.integrations.partition import is_loopback
from provisioner.ports import Secret, StoreFailed
from provisioner.runtime.bounded_listener import (
    BoundedListener,
    Limits,
    get_handlers,
    hear_requests,
)
from provisioner.settings import Settings
from provisioner.telemetry.collecting import FleetMetrics

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
