"""Opens the REST API: identity, work, feed and the server, over TLS with our own authority."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

from aiohttp import web

from provisioner import components
from provisioner.access.identity import Identity
from provisioner.access.oidc import OidcProvider, OidcSite
from provisioner.adapters.agent.tls import names_of_ours, open_authority
from provisioner.api import openapi, pages, table
from provisioner.api.app import application
from provisioner.api.changes import Works
from provisioner.api.feed import Feed
from provisioner.api.parts import ApiParts
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.access import Token
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.path.planner import PlanCache
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Clock, Credentials
from provisioner.ports.rehearsals import Rehearsals
from provisioner.runtime.bounded_listener import Limits, listening
from provisioner.settings import Settings
from provisioner.store.database.data_directory import lock_api
from provisioner.store.database.sql_store import SqlStore
from provisioner.store.rows import page_rows, request_rows, token_rows
from provisioner.store.signing import Signer

log = logging.getLogger(__name__)
PEERS_S = 3600.0  # a request that a peer has been at for this long is not at it any more
SHUTDOWN_S = 2.0  # streams are cut after it


def api_parts(
    store: SqlStore,
    keeper: TenantKeeper,
    matrix: Matrix,
    artifacts: Path,
    clock: Clock,
    settings: Settings,
    ca_file: Path | None = None,
    *,
    vault: Credentials | None = None,
    signer: Signer | None = None,
    rehearsals: Rehearsals | None = None,
    plan: AddressPlan | None = None,
    outside: OutsideArtifacts | None = None,
) -> ApiParts:
    """Everything that handlers reach. Raises InputError for settings that cannot be."""

    async def find(digest: str) -> Token | None:
        return await store.read(partial(token_rows.find_token, digest=digest))

    async def head() -> int:
        return (await store.read(page_rows.journal_head))[0]

    provider = None
    if settings.api_oidc_issuer:
        site = OidcSite(
            settings.api_oidc_issuer,
            settings.api_oidc_audience,
            settings.api_oidc_roles_claim,
            settings.api_oidc_tenant_claim,
            settings.api_oidc_role_prefix,
        )
        provider = OidcProvider(site, clock.now, ca_file)
    document = ("application/json", openapi.text(table.ALL))
    return ApiParts(
        store=store,
        clock=clock,
        settings=settings,
        identity=Identity(find, clock, provider),
        keeper=keeper,
        matrix=matrix,
        artifacts=artifacts,
        plans=PlanCache(matrix, components.ALL, settings.production),
        works=Works(table.EXECUTORS),
        feed=Feed(head),
        vault=vault,
        signer=signer,
        rehearsals=rehearsals,
        plan=plan,
        outside=outside,
        static={**pages.static_files(), pages.OPENAPI: document},
    )


@asynccontextmanager
async def serve_api(parts: ApiParts, data: Path) -> AsyncIterator[str]:
    """Serve it where the settings say; its URL. Raises InputError if it cannot be served there.

    What the process before left under way is told as lost; on a file, one process serves at a time,
    so that what another one carries out now is not taken for that.
    """
    file = parts.store.file
    with nullcontext() if file is None else lock_api(file):
        async with _served(parts, data) as url:
            yield url


@asynccontextmanager
async def _served(parts: ApiParts, data: Path) -> AsyncIterator[str]:
    settings = parts.settings
    context = tls_context(data, settings)
    now = parts.clock.now()
    before = now - PEERS_S if parts.store.shared else float("inf")
    lost = await parts.store.write(partial(request_rows.give_up, now=now, asked_before=before))
    for asked in lost:
        log.warning("request %s (%s) was under way when the daemon ended", asked.id, asked.kind)
    runner = web.AppRunner(
        application(parts, table.ALL),
        access_log=None,
        # also ends a connection that sends its headers too slowly
        keepalive_timeout=settings.api_idle_s,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    place = (settings.api_host, settings.api_port)
    limits = Limits(
        settings.api_connections_max, settings.api_connections_per_peer, settings.api_idle_s
    )
    try:
        async with AsyncExitStack() as held:
            try:
                entered = listening("api", runner, place, limits, context)
                listener = await held.enter_async_context(entered)
            except OSError as error:
                problem = f"the API cannot be served there ({error.strerror or error})"
                remedy = "Name a free port at an address of this machine: api_host, api_port."
                where = f"{settings.api_host}:{settings.api_port}"
                raise InputError("api_host", where, problem, remedy) from None
            host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
            yield f"https://{host}:{listener.port}"
    finally:
        await runner.cleanup()


def tls_context(data: Path, settings: Settings) -> ssl.SSLContext:
    """The site's own certificate, or one of our authority, whose certificate clients trust.

    Raises InputError if it cannot be used.
    """
    if settings.api_certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(settings.api_certificate)
        except (OSError, ssl.SSLError) as error:
            remedy = "Name a PEM file with the certificate, its chain and its key."
            problem = f"it cannot be used ({error.strerror or error})"
            raise InputError("api_certificate", settings.api_certificate, problem, remedy) from None
        return context
    named = [*settings.api_names, settings.api_host, "localhost", "127.0.0.1"]
    return open_authority(data).server_context(names_of_ours(named))
