"""The parts of a daemon, from what `serve` holds open and from the options of a site."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError, model_validator

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.consoles.ssh_consoles import open_consoles
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.checks.threshold_data import Limits
from provisioner.cli.options.matrix_files import Pinned
from provisioner.control.context import Context
from provisioner.control.engine.engine_shared import WorkQueue
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.control.node.observing import SiteObserver
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.agents import ServedAgents
from provisioner.daemon.api import SOCKET, api_parts, open_port_reader, serve_api
from provisioner.daemon.daemon import Parts
from provisioner.daemon.data import Data, read_thresholds
from provisioner.daemon.events import Sender
from provisioner.daemon.hosts import Hosts
from provisioner.daemon.tenants import FabricAccess, open_keeper
from provisioner.execution.actions.work import HostLogin, login_of
from provisioner.execution.artifacts import artifacts
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.alert import Classification
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.expected import DEFAULT_OS
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.diff import find_lost_releases
from provisioner.planning.matrix.located_yaml import load
from provisioner.planning.watch.pushed_alerts import ORDINARY, Source
from provisioner.ports import BmcTransport, Clock, Secret, SwitchPasswords, SwitchTransport
from provisioner.ports.agents import ConsoleBook, Consoles, SimulatedSite
from provisioner.ports.alerts import AuditSink
from provisioner.ports.telemetry import Telemetry
from provisioner.ports.tickets import TicketSystem
from provisioner.ports.webhooks import WebhookPosts
from provisioner.runtime.integrations import build_pdus, open_rehearsals
from provisioner.runtime.shipped import read_text
from provisioner.runtime.switch_systems import find_system, make_switches
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

if TYPE_CHECKING:
    from provisioner.control.engine.cluster import Cluster  # only with the extra "postgresql"


# ------------------------------------------------------------------------------
# Reads the list of sources that may push alerts, with their secrets from elsewhere.


SECRET_MIN = 16  # characters; a shorter token can be guessed


class Entry(Record):
    """One source. Exactly one of the four fields names the place of its secret."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    format: Literal["alertmanager", "plain"]
    bearer_env: str = ""
    bearer_file: str = ""
    hmac_env: str = ""
    hmac_file: str = ""
    classifications: tuple[Classification, ...] = ORDINARY

    @model_validator(mode="after")
    def _one_secret(self) -> Entry:
        places = (self.bearer_env, self.bearer_file, self.hmac_env, self.hmac_file)
        if sum(map(bool, places)) != 1:
            raise ValueError("give exactly one of bearer_env, bearer_file, hmac_env, hmac_file")
        return self


class AlertSources(Record):
    """The whole file."""

    sources: tuple[Entry, ...] = ()


def read_senders(path: Path | None) -> tuple[Sender, ...]:
    """Return the senders of a file; none without one. Raises InputError."""
    if path is None:
        return ()
    located = load(str(path), read_text(path))
    try:
        sources = AlertSources.model_validate(located.tree).sources
    except ValidationError as error:
        raise located.build_model_error(error, "See docs/watch.md.") from None
    names = [entry.name for entry in sources]
    for name in names:
        if names.count(name) > 1:
            remedy = "Give each source a name of its own."
            raise InputError(str(path), name, "two sources have this name", remedy)
    return tuple(_sender(str(path), entry) for entry in sources)


def _sender(path: str, entry: Entry) -> Sender:
    variable = entry.bearer_env or entry.hmac_env
    file = entry.bearer_file or entry.hmac_file
    secret = os.environ.get(variable, "") if variable else read_text(Path(file)).strip()
    if len(secret) < SECRET_MIN:
        where = variable or file
        problem = f"{where} has no secret of at least {SECRET_MIN} characters"
        remedy = "Make one with: openssl rand -hex 32"
        raise InputError(path, entry.name, problem, remedy)
    source = Source(name=entry.name, format=entry.format, classifications=entry.classifications)
    return Sender(source, Secret(secret), signed=bool(entry.hmac_env or entry.hmac_file))


# ------------------------------------------------------------------------------
# Serves the REST API in a daemon's process, from the daemon's parts.


log = logging.getLogger(__name__)


GRACE_S = 0.5  # in which the answer of a reload leaves, before the API is opened anew


class MatrixReload:
    """Implements `api.parts.MatrixReloads` by the files that `serve` was given."""

    def __init__(self, read: Callable[[], Pinned]) -> None:
        self._read = read
        self.asked = asyncio.Event()
        self.pinned: Pinned | None = None  # what was asked for last

    async def read(self) -> tuple[Matrix, Sequence[tuple[str, str]]]:
        """Return the matrix as the files have it now. Raises InputError."""
        pinned = await asyncio.to_thread(self._read)
        return pinned.matrix, pinned.texts

    def take(self, matrix: Matrix, texts: Sequence[tuple[str, str]]) -> None:
        self.pinned = Pinned(matrix, texts)
        asyncio.get_running_loop().call_later(GRACE_S, self.asked.set)

    def begin(self) -> None:
        """Forget what was asked for before."""
        self.asked.clear()
        self.pinned = None

    async def follow_signal(self, store: SqlStore, clock: Clock, sign: asyncio.Event) -> None:
        """Read the files again at each SIGHUP, for ever; what cannot be worked by is kept out."""
        while True:
            await sign.wait()
            sign.clear()
            try:
                matrix, texts = await self.read()
            except InputError as error:
                log.error("the matrix stays as it was: %s", error)
                continue
            if lost := find_lost_releases(await store.nodes.list(), matrix):
                log.error("the matrix stays as it was: it lacks %s, which nodes run", min(lost))
                continue
            event = RequestCarriedOut(request="reload", by="SIGHUP", target=matrix.digest())
            await store.journal.append(event, clock.now())
            self.take(matrix, texts)


@asynccontextmanager
async def served_api(
    data: Path,
    opened: Data,
    context: Context,
    access: FabricAccess,
    matrix: Matrix,
    files: Artifacts,
    transport: BmcTransport | None = None,
    thresholds: Mapping[str, Limits] | None = None,
    observer: SiteObserver | None = None,
    matrix_texts: Sequence[tuple[str, str]] = (),
    reloads: MatrixReload | None = None,
) -> AsyncIterator[str]:
    """Serve the REST API in this process; yield its URL, "" if only the socket is served."""
    gate = context.get_gate()
    clock = context.clock
    async with (
        open_keeper(opened.store, opened.vault, clock, access, gate) as keeper,
        open_port_reader(opened.vault, clock, access) as ports,
    ):
        parts = api_parts(
            opened.store,
            keeper,
            matrix,
            files.directory,
            context,
            access.ca_file,
            vault=opened.vault,
            signer=opened.signer,
            rehearsals=open_rehearsals(matrix, access.settings),
            plan=access.plan,
            outside=files if isinstance(files, OutsideArtifacts) else None,
            transport=transport,
            port_reader=ports,
            thresholds=thresholds,
            observer=observer,
            matrix_texts=matrix_texts,
            reloads=reloads,
            opened=(data, opened),
        )
        async with serve_api(parts, data, opened.master) as url:
            log.info("the API is at %s", data / SOCKET)
            if url:
                log.info("the API is at %s/v1/docs; its CA is %s", url, data / CERTIFICATE_FILE)
            yield url


SWITCH_KEYS = "switch_keys"  # SSH host keys of switches, pinned when their password is changed


@dataclass(frozen=True)
class SiteParts:
    """The parts that a site's options decide, each with the meaning that it has in `Parts`."""

    login: HostLogin | None
    passwords: SwitchPasswords | None
    thresholds: Mapping[str, Limits]
    consoles: tuple[Consoles, ConsoleBook] | None


@dataclass(frozen=True)
class Receivers:
    """The sources and receivers beside the devices, with the meaning that each has in `Parts`."""

    watch: WatchParts
    webhooks: WebhookPosts
    tickets: TicketSystem | None
    sinks: Sequence[AuditSink]
    shared: tuple[Cluster, WorkQueue] | None
    fabrics: Fabrics | None


def build_site_parts(
    site: SimulatedSite | None,
    data: Path,
    chosen: Settings,
    user: str,
    key: Path | None,
    thresholds: Path | None,
) -> SiteParts:
    """Return the login on new hosts, the changer of switches' passwords, thresholds, consoles."""
    opening = None if site else find_system(DEFAULT_OS).open_passwords
    passwords = opening and opening(data / SWITCH_KEYS)
    consoles = None
    if site is None and chosen.consoles != "off":
        files = ConsoleFiles(data, chosen.console_bytes_max)
        consoles = (open_consoles(data / "console-keys", chosen), files)
    return SiteParts(login_of(user, key), passwords, read_thresholds(thresholds), consoles)


def build_parts(
    kept: tuple[Data, Clock, Settings, Pinned, Telemetry],
    reached: tuple[Hosts, ServedAgents, artifacts.Artifacts],
    wires: tuple[RedfishTransport, SwitchTransport],
    receivers: Receivers,
    site: SiteParts,
) -> Parts:
    """Return the parts of a daemon: the store's, the access to hosts, the site's and the rest."""
    opened, clock, chosen, pinned, telemetry = kept
    hosts, served, files = reached
    transport, switches = wires
    return Parts(
        store=opened.store,
        credentials=opened.vault,
        clock=clock,
        settings=chosen,
        transport=transport,
        switches=make_switches(switches, hosts.shell),
        watch=receivers.watch,
        webhooks=(opened.store.webhooks, receivers.webhooks),
        exports=(opened.store.audit_exports, receivers.sinks),
        folds=opened.store.list_folds(),
        tickets=receivers.tickets,
        shared=receivers.shared,
        fabrics=receivers.fabrics,
        runner=hosts.runner,
        shell=hosts.shell,
        agents=served.agents,
        os_images=served.images,
        signer=opened.signer,
        artifacts=files,
        matrix=pinned.matrix,
        matrix_texts=pinned.texts,
        campaigns=opened.store.campaigns,
        cases=opened.store.cases,
        recovery=opened.store.recovery,
        telemetry=telemetry,
        pdus=build_pdus(chosen, transport, os.environ),
        login=site.login,
        passwords=site.passwords,
        thresholds=site.thresholds,
        consoles=site.consoles,
    )
