"""Builds and serves the REST API, at a unix socket and over TLS with our own authority."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from aiohttp import web
from cryptography import x509

from provisioner import components
from provisioner.access.identity import Identity
from provisioner.access.oidc import OidcProvider, OidcSite
from provisioner.access.oidc_sign_in import DeviceOffer, OidcSignIn, SignInSite
from provisioner.adapters.agent.tls import names_of_ours, open_authority
from provisioner.adapters.read_only.switches import ReadOnlySwitches
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.api.callers import Callers, GatheredRows
from provisioner.api.changes import ChangeController
from provisioner.api.fleet_atlas import Feed
from provisioner.api.parts import ApiParts, MatrixReloads, Verb
from provisioner.api.routes import home
from provisioner.checks.threshold_data import Limits as Thresholds
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.control.node.observing import SiteObserver
from provisioner.daemon.data import Data, read_status
from provisioner.daemon.tenants import FabricAccess
from provisioner.execution.actions.reach import Reach, SwitchSource
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.access import Token
from provisioner.model.events.request_events import CallerLimited
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.switch import LoginCheck, PortCounters
from provisioner.planning.path.planner import PlanCache
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import (
    BmcTransport,
    Clock,
    Credentials,
    PortError,
    PortReader,
    Secret,
    SwitchAddress,
)
from provisioner.ports.store import Rehearsals
from provisioner.ports.switch import SwitchRefused
from provisioner.runtime import permit
from provisioner.runtime.bounded_listener import Limits, serve_at, serve_runner
from provisioner.runtime.event_loop import end_tasks
from provisioner.runtime.integrations import open_doors
from provisioner.runtime.shipped import read_text
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile, Sealing, place_of
from provisioner.store.repositories.agents import SqlRunRepository
from provisioner.store.repositories.signing_keys import exchange_signing_key
from provisioner.store.signing import Signer
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The certificate of the API and of metrics: the site's own, or one of our authority.
#
# A site's certificate is renewed by its own tool (an ACME client, cert-manager). The files are
# looked at again and again, and a new pair is served from the next connection on, without a
# restart. A pair that does not fit is never put in force: the one before goes on.


log = logging.getLogger(__name__)
LOOK_S = 30.0  # how late a renewed certificate is served
EXPIRES = "api_certificate_expires_at"  # of the process's gauges, in seconds since the epoch
FILE_MAX = 256 * 1024
Marks = tuple[tuple[int, int, int], ...]


class ServedCertificate:
    """A certificate with its key in files, and the TLS of servers that show it."""

    def __init__(self, certificate: str, key: str = "") -> None:
        """Read the files. Raises InputError if they cannot be used."""
        self._certificate = certificate
        self._key = key
        self._problem = ""
        self._marks = self._read_marks()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            remedy = "Name a PEM file with the certificate, its chain and its key."
            problem = f"it cannot be used ({_explain(error)})"
            raise InputError("api_certificate", certificate, problem, remedy) from None

    def reload(self) -> bool:
        """Put changed files in force; return whether there were any, and they fit together."""
        marks = self._read_marks()
        if marks == self._marks:
            return False
        try:
            self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            problem = _explain(error)
            if problem != self._problem:  # its key may follow in a moment
                log.warning("the new %s is not served yet: %s", self._certificate, problem)
            self._problem = problem
            return False
        self._marks = marks
        self._problem = ""
        log.warning("the API serves the new certificate of %s", self._certificate)
        return True

    def _load(self) -> None:
        """Try the pair in a context of its own first: a half one would break the served one."""
        scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        scratch.load_cert_chain(self._certificate, self._key or None)
        with Path(self._certificate).open("rb") as file:
            (leaf, *_) = x509.load_pem_x509_certificates(file.read(FILE_MAX))
        self.context.load_cert_chain(self._certificate, self._key or None)
        counts = permit.get_scope().counts
        counts[EXPIRES] = int(leaf.not_valid_after_utc.timestamp())

    def _read_marks(self) -> Marks:
        """Return what changes when a file is exchanged, also behind a symbolic link."""
        marks = []
        for name in filter(None, (self._certificate, self._key)):
            with contextlib.suppress(OSError):
                status = Path(name).stat()
                marks.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(marks)


@asynccontextmanager
async def served_tls(
    data: Path, settings: Settings, keys: Sealing, look_s: float = LOOK_S
) -> AsyncIterator[ssl.SSLContext]:
    """Yield the TLS of our servers, and keep its certificate in step with the site's files.

    Raises InputError if it cannot be used.
    """
    if not settings.api_certificate:
        named = [*settings.api_names, settings.api_host, "localhost", "127.0.0.1"]
        yield open_authority(data, SealedFile(data, keys)).server_context(names_of_ours(named))
        return
    served = ServedCertificate(settings.api_certificate, settings.api_certificate_key)
    looking = asyncio.create_task(_look_again(served, look_s), name="renewed certificate")
    try:
        yield served.context
    finally:
        await end_tasks(looking)


async def _look_again(served: ServedCertificate, look_s: float) -> None:
    while True:
        await asyncio.sleep(look_s)
        served.reload()


def _explain(error: Exception) -> str:
    return str(getattr(error, "strerror", "") or error)


# ------------------------------------------------------------------------------
# The reader of leaves' port counters for the API: its switches can only be read.


class LeafReader:
    """`ports.PortReader` over HTTPS. Leaves with a shell belong to the daemon's own parts."""

    def __init__(self, reach: Reach, clock: Clock, access: FabricAccess) -> None:
        self._reach = reach
        self._clock = clock
        self._settings = access.settings

    async def read_counters(
        self, leaf: Node, interfaces: Sequence[str]
    ) -> dict[str, PortCounters] | Blocker:
        """Return the counters of some ports of a leaf now, or why it gives none; with their optics
        and queues, as far as the leaf shows them.
        """

        async def lookup() -> SwitchAddress | Blocker:
            return await self._reach.switch(leaf)

        source = SwitchSource(leaf.id, lookup, self._reach.switches, self._clock, self._settings)
        try:
            switch = await source.open()
            counted = {name: await switch.read_counters(name) for name in interfaces}
            for name, counters in counted.items():
                with suppress(SwitchRefused):
                    counted[name] = replace(counters, link=await switch.read_link(name))
            return counted
        except PortError as problem:
            return source.describe(problem)

    async def try_login(
        self, switch: Node, login: tuple[str, Secret] | None = None
    ) -> LoginCheck | Blocker:
        async def lookup() -> SwitchAddress | Blocker:
            stored = await self._reach.switch(switch)
            if login is None or isinstance(stored, Blocker):
                return stored
            return replace(stored, username=login[0], secret=login[1])

        limits = self._settings
        source = SwitchSource(switch.id, lookup, self._reach.switches, self._clock, limits)
        try:
            return await (await source.open()).check_login()
        except PortError as problem:
            return source.describe(problem)


@asynccontextmanager
async def open_port_reader(
    credentials: Credentials, clock: Clock, access: FabricAccess
) -> AsyncIterator[LeafReader]:
    """Yield a reader of ports, and close its connections at the end."""
    switches = SwitchHttps(ca_file=access.ca_file)
    reach = Reach(RedfishTransport(), ReadOnlySwitches(make_switches(switches)), credentials)
    try:
        yield LeafReader(reach, clock, access)
    finally:
        await reach.transport.close()
        await switches.close()


SOCKET = "api.sock"  # in the data directory
LOCAL_MAX = 256  # connections of the daemon's own user at once; a command makes one
PEERS_S = 3600.0  # a request that a peer began this long ago has ended
SHUTDOWN_S = 2.0  # seconds; streams are cut after it


def api_parts(
    store: SqlStore,
    keeper: TenantKeeper,
    matrix: Matrix,
    artifacts: Path,
    context: Context,
    ca_file: Path | None = None,
    *,
    vault: Credentials | None = None,
    signer: Signer | None = None,
    rehearsals: Rehearsals | None = None,
    plan: AddressPlan | None = None,
    outside: OutsideArtifacts | None = None,
    transport: BmcTransport | None = None,
    port_reader: PortReader | None = None,
    thresholds: Mapping[str, Thresholds] | None = None,
    opened: tuple[Path, Data] | None = None,
    observer: SiteObserver | None = None,
    matrix_texts: Sequence[tuple[str, str]] = (),
    reloads: MatrixReloads | None = None,
) -> ApiParts:
    """Return everything that handlers use; `opened` is the data directory and its contents, if any.

    Raises InputError for settings that contradict.
    """
    settings = context.settings

    async def read_head() -> int:
        return (await store.journal.get_head())[0]

    append = partial(_append, store, context.clock)
    provider = _open_provider(settings, context.clock, ca_file)
    return ApiParts(
        store=store,
        context=context,
        identity=_open_identity(store, context, provider),
        keeper=keeper,
        matrix=matrix,
        artifacts=artifacts,
        plans=PlanCache(
            matrix,
            components.ALL,
            settings.production,
            frozenset(settings.switch_methods_allowed),
            settings.maintenance_boot,
        ),
        works=ChangeController(table.EXECUTORS, table.FORECASTS),
        feed=Feed(read_head),
        callers=Callers(settings, GatheredRows(append)),
        vault=vault,
        sign_in=_open_sign_in(settings, provider),
        device_offer=_find_device_offer(settings),
        signer=signer,
        rehearsals=rehearsals,
        plan=plan,
        outside=outside,
        transport=transport,
        port_reader=port_reader,
        thresholds=thresholds or {},
        matrix_texts=matrix_texts,
        reloads=reloads,
        observer=observer,
        directory=None if opened is None else opened[0],
        read_watch=None if opened is None else partial(read_status, opened[0]),
        exchange_key=None if opened is None else partial(_exchange_key, opened[1]),
        static=home.read_static_files(),
        write_document=_write_document,
        list_verbs=_list_verbs,
        runs=_open_runs(store, opened),
    )


async def _append(store: SqlStore, clock: Clock, event: CallerLimited) -> None:
    await store.journal.append(event, clock.now())


def _open_identity(store: SqlStore, context: Context, provider: OidcProvider | None) -> Identity:
    """Return the reader of callers: by local token, the provider's token, or a session."""

    async def find(digest: str) -> Token | None:
        return await store.tokens.find(digest)

    limits = context.settings.session_limits()
    issuer = context.settings.api_oidc_issuer
    shut_out = store.directory.is_shut_out if context.settings.scim_token_file else None
    return Identity(find, context.clock, provider, store.sessions, limits, issuer, shut_out)


def _open_provider(settings: Settings, clock: Clock, ca_file: Path | None) -> OidcProvider | None:
    """Return the reader of OIDC tokens; None if the site has no provider."""
    if not settings.api_oidc_issuer:
        return None
    site = OidcSite(
        settings.api_oidc_issuer,
        settings.api_oidc_audience,
        settings.api_oidc_roles_claim,
        settings.api_oidc_tenant_claim,
        settings.api_oidc_role_prefix,
        settings.api_oidc_methods,
    )
    return OidcProvider(site, clock.now, ca_file)


def _open_sign_in(settings: Settings, provider: OidcProvider | None) -> OidcSignIn | None:
    """Return the console's sign-ins at the provider; None if people sign in with a token only."""
    if provider is None or not settings.api_oidc_client_id:
        return None
    file = settings.api_oidc_secret_file
    site = SignInSite(
        settings.api_oidc_client_id,
        settings.api_oidc_redirect_url,
        settings.api_oidc_scopes,
        settings.api_session_proof_s,
        read_text(Path(file)).strip() if file else "",
    )
    return OidcSignIn(provider, site, settings.api_oidc_issuer)


def _find_device_offer(settings: Settings) -> DeviceOffer | None:
    """Return what command lines need to sign in at the provider; None if they cannot."""
    client_id = settings.api_oidc_device_client_id
    if not (settings.api_oidc_issuer and client_id):
        return None
    return DeviceOffer(settings.api_oidc_issuer, client_id, settings.api_oidc_scopes)


@cache
def _open_runs(store: SqlStore, opened: tuple[Path, Data] | None) -> SqlRunRepository | None:
    """Return the playbook runs whose folders are in this data directory."""
    if opened is None:
        return None
    return SqlRunRepository(store, place_of(opened[0]) if store.shared else "")


@cache
def _list_verbs() -> tuple[Verb, ...]:
    """Return the commands; their module is loaded when somebody searches."""
    from provisioner.api.commands import COMMANDS

    return tuple(
        Verb(COMMANDS[route.name].name, route.summary, route.roles)
        for route in table.ALL
        if route.name in COMMANDS
    )


def _write_document() -> bytes:
    """Return the OpenAPI document, which is the same in every process of this version.

    A second of CPU time and 13 MB of memory: made when the first client asks for it.
    """
    from provisioner.api import openapi

    return openapi.write_document(table.ALL)


async def _exchange_key(opened: Data, now: float, compromised: bool) -> str:  # noqa: FBT001 (API)
    """Sign with a new key from now on, in this process too; return the key's id."""
    fresh = await exchange_signing_key(opened.store, opened.master, now, compromised=compromised)
    opened.signer.become(fresh)
    return fresh.key_id


@asynccontextmanager
async def serve_api(parts: ApiParts, data: Path, keys: Sealing) -> AsyncIterator[str]:
    """Serve the API at the directory's socket, and over TLS if the settings ask; yield its URL.

    Requests that the previous process left under way are reported as lost: the caller holds the
    directory and its database, so that no other process carries them out now. The URL is "" without
    TLS. Raises InputError if the API cannot be served there.
    """
    settings = parts.settings
    now = parts.clock.now()
    before = now - PEERS_S if parts.store.shared else float("inf")
    lost = await parts.store.requests.give_up(now, before)
    for request in lost:
        log.warning("request %s (%s) was under way when the daemon ended", request.id, request.kind)
    runner = web.AppRunner(
        build_application(
            parts, table.ALL, open_doors(settings, parts.clock, parts.store.directory)
        ),
        access_log=None,
        # also ends a connection that sends its headers too slowly
        keepalive_timeout=settings.api_idle_s,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    try:
        async with AsyncExitStack() as held:
            await _listen_here(held, runner, data / SOCKET, settings)
            # the places of 65,536 nodes take 2 s of CPU: no page of a person is the first to pay
            places = asyncio.create_task(parts.atlas.count_capacity(parts.store), name="places")
            held.push_async_callback(end_tasks, places)
            outside = settings.api_serve
            yield await _listen_outside(held, runner, data, settings, keys) if outside else ""
    finally:
        await runner.cleanup()


async def _listen_here(
    held: AsyncExitStack, runner: web.AppRunner, file: Path, settings: Settings
) -> None:
    """Listen at the unix socket until `held` is closed."""
    limits = Limits(LOCAL_MAX, LOCAL_MAX, settings.api_idle_s)
    try:
        await held.enter_async_context(serve_at("local api", runner, file, limits))
    except OSError as error:
        problem = f"no socket can be made there ({error.strerror or error})"
        remedy = "Put the data directory on a local file system."
        raise InputError("--data", str(file), problem, remedy) from None


async def _listen_outside(
    held: AsyncExitStack, runner: web.AppRunner, data: Path, settings: Settings, keys: Sealing
) -> str:
    """Listen over TLS until `held` is closed; return the URL."""
    place = (settings.api_host, settings.api_port)
    limits = Limits(
        settings.api_connections_max,
        settings.api_connections_per_peer,
        settings.api_idle_s,
        first_s=settings.api_first_s,
    )
    context = await held.enter_async_context(served_tls(data, settings, keys))
    try:
        listener = await held.enter_async_context(
            serve_runner("api", runner, place, limits, context)
        )
    except OSError as error:
        problem = f"the API cannot be served there ({error.strerror or error})"
        remedy = "Name a free port at an address of this machine: api_host, api_port."
        where = f"{settings.api_host}:{settings.api_port}"
        raise InputError("api_host", where, problem, remedy) from None
    host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
    return f"https://{host}:{listener.port}"
