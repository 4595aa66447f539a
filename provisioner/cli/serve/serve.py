"""`provisioner serve`: the daemon."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.adapters.redfish.eventing.event_stream import RedfishStreams
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options import serve_options as opt
from provisioner.cli.options.checked_options import check_artifact_url, check_remote
from provisioner.cli.options.matrix_files import read_pinned
from provisioner.cli.options.serve_options import (
    Limited,
    PlanFile,
    UfmPin,
    UfmUrl,
    UfmUser,
    build_fabric_access,
)
from provisioner.cli.serve.daemon_parts import (
    MatrixReload,
    Receivers,
    build_parts,
    build_site_parts,
    read_senders,
    served_api,
)
from provisioner.control.engine.engine_shared import WorkQueue
from provisioner.control.watch.port_owners import UnownedPorts
from provisioner.control.watch.recovery import Recovery, find_lost_moves
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.agents import (
    AgentDoor,
    ServedAgents,
    build_simulated_agents,
    check_hosts_apart,
    serve_agents,
)
from provisioner.daemon.artifacts import ArtifactDoor, open_artifacts, warn_of_boot_token
from provisioner.daemon.cluster import (
    clock_of,
    declared_end,
    digests_of,
    end_at_once,
    open_cluster,
    watched_waits,
)
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.data import Data, held_data, open_data
from provisioner.daemon.events import Sender, open_watch
from provisioner.daemon.hosts import Hosts, kept_clock, open_hosts, simulated_hosts
from provisioner.daemon.observing import SILENT, ObservingDaemon, narrow_hosts, narrow_switch_wire
from provisioner.daemon.recovery import CountedWrites, counted_writes, scheduled_backups
from provisioner.daemon.telemetry import Measured, open_telemetry, served_metrics
from provisioner.daemon.telling import LOOK_S, LOOK_SHARED_S, tell_events
from provisioner.daemon.tenants import FabricAccess, open_fabrics
from provisioner.execution.artifacts import artifacts as artifact_files
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.model.input_error import InputError
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.planning.watch.membership import WorksBy
from provisioner.ports import Clock, Remote, StoreFailed
from provisioner.ports.agents import SimulatedSite
from provisioner.ports.alerts import AuditSink
from provisioner.ports.telemetry import Telemetry
from provisioner.ports.tickets import TicketSystem
from provisioner.ports.webhooks import WebhookPosts
from provisioner.runtime import permit, undumpable
from provisioner.runtime.event_loop import exempt_heap_daily, new_event_loop, raise_open_files
from provisioner.runtime.integrations import (
    open_audit_sinks,
    open_log_intake,
    open_posts,
    open_simulated_site,
    open_tickets,
)
from provisioner.runtime.shipped import read_text
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.database.postgres import is_postgres
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.repositories.signing_keys import exchange_signing_key

if TYPE_CHECKING:
    from provisioner.control.engine.cluster import Cluster  # only with the extra "postgresql"


# ------------------------------------------------------------------------------
# Runs a daemon that observes: `provisioner serve --observe`.
#
# The gate of the process is closed before the first connection and never opens, and the parts are
# narrowed to read-only ports; each of the two alone would keep every write from leaving.


log = logging.getLogger(__name__)


def check_own_place(database: str) -> None:
    """Refuse a shared database, on which this daemon would lead and nothing would act."""
    if is_postgres(database):
        remedy = "Leave --database out: an observing daemon has a data directory of its own."
        raise InputError("--observe", "--database", "other daemons may act on it", remedy)


async def run_observing(daemon: ObservingDaemon) -> None:
    """Observe until stopped by SIGINT or SIGTERM, or until a loop fails."""
    stopped = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stopped.set)
    await daemon.start()
    log.warning("OBSERVING: nothing is written to any device (docs/adopting.md)")
    log.info("serving")
    ends = [asyncio.create_task(daemon.wait()), asyncio.create_task(stopped.wait())]
    ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await daemon.stop()
    for task in ends:
        task.cancel()
    for task in ended:
        task.result()


def serve(
    data: opt.DataDirectory = Path("var"),
    database: opt.Database = "",
    matrix: opt.Matrices = None,
    artifacts: opt.Artifacts = Path("artifacts"),
    artifact_host: opt.ArtifactHost = "127.0.0.1",
    artifact_port: opt.ArtifactPort = 8070,
    artifact_url: opt.ArtifactUrl = "",
    api_port: opt.ApiPort = None,
    agent_host: opt.AgentHost = "127.0.0.1",
    agent_port: opt.AgentPort = 6385,
    agent_url: opt.AgentUrl = "",
    settings: opt.SettingsFile = None,
    playbooks: opt.Playbooks = opt.PLAYBOOKS,
    ssh_user: opt.SshUser = "provisioner",
    ssh_key: opt.SshKey = None,
    known_hosts: opt.KnownHosts = None,
    ca_file: opt.CaFile = None,
    thresholds: opt.Thresholds = None,
    plan: PlanFile = None,
    ufm: UfmUrl = "",
    ufm_user: UfmUser = "",
    ufm_pin: UfmPin = "",
    default_limited: Limited = False,
    events_url: opt.EventsUrl = "",
    alert_sources: opt.AlertSources = None,
    simulator: opt.Simulator = None,
    restored: opt.Restored = False,
    change_until: opt.ChangeUntil = "",
    lab: opt.Lab = False,
    observe: opt.Observe = False,
) -> None:
    """Run the daemon until it is stopped (Ctrl-C or SIGTERM); it drives every node taken in.

    Actions under way continue when it stops. Example: provisioner serve --settings site.yaml
    """
    undumpable.forbid_core_files()
    chosen, pinned, database = opt.read_files(settings, matrix, api_port, (data, database), lab=lab)
    playbooks = opt.check_places(simulator, playbooks, artifacts, ca_file, observe=observe)
    door = AgentDoor(agent_host, agent_port, agent_url)
    files_at = ArtifactDoor(artifact_host, artifact_port, check_artifact_url(artifact_url))
    remote = check_remote(ssh_user, ssh_key, known_hosts)
    senders = read_senders(alert_sources)
    access = build_fabric_access(plan, chosen, ca_file, (ufm, ufm_user, ufm_pin), default_limited)
    works = _works_by(chosen, pinned.matrix, {"thresholds": thresholds, "plan": plan}, change_until)

    async def run() -> None:
        site, clock = await _open_site(simulator, data, database)
        async with (
            open_telemetry(chosen, clock) as measured,
            _wires(data, chosen, ca_file, measured.telemetry) as (transport, switches, sse),
            open_data(data, clock.now(), database, migrates=True) as opened,
            _seated((data, database), opened, chosen, clock, works, restored) as (counted, shared),
            open_artifacts(artifacts, files_at, clock, ca_file, chosen) as files,
            _agents(site, door, data, opened, clock, chosen, files, observe) as served,
            _hosts(site, playbooks, data, remote, opened, clock, chosen) as hosts,
            open_fabrics(access) as fabrics,
            _watch((events_url, senders), data, opened, clock, sse, access) as watch,
            _people(clock, chosen, ca_file) as people,
        ):
            parts = build_parts(
                (opened, clock, chosen, pinned, measured.telemetry),
                (narrow_hosts(hosts) if observe else hosts, served, files),
                (transport, narrow_switch_wire(switches) if observe else switches),
                Receivers(watch, people[0], people[1], people[2], shared, fabrics),
                build_site_parts(site, data, chosen, ssh_user, ssh_key, thresholds),
            )
            await _drive(parts, data, opened, (access, files), (measured, counted), observe, matrix)

    _run_alone((data, works.digests["code"]), database, chosen, run, observe=observe)


def _watch(
    listener: tuple[str, tuple[Sender, ...]],
    data: Path,
    opened: Data,
    clock: WallClock,
    streams: RedfishStreams,
    access: FabricAccess,
) -> AbstractAsyncContextManager[WatchParts]:
    return open_watch(*listener, data, opened.store, clock, streams, opened.master, access)


async def _open_site(
    simulator: Path | None, data: Path, database: str
) -> tuple[SimulatedSite | None, WallClock]:
    """Return the simulated site, None for a real one, and the clock of the daemon."""
    site = None if simulator is None else open_simulated_site(simulator)
    return site, clock_of(database, await kept_clock(site, data))


def _works_by(
    chosen: Settings, pinned: Matrix, files: Mapping[str, Path | None], change_until: str
) -> WorksBy:
    """Return the digests that peers compare with theirs. Raises InputError."""
    texts = {name: read_text(path) for name, path in files.items() if path is not None}
    digests = digests_of(chosen, pinned, texts)
    return WorksBy(digests=digests, change_until=declared_end(change_until))


def _run_alone(
    place: tuple[Path, str],
    database: str,
    chosen: Settings,
    run: Callable[[], Coroutine[Any, Any, None]],
    *,
    observe: bool,
) -> None:
    """Run in an own event loop, alone in `place`: the directory, and the digest of this code."""
    data, program = place
    if observe:
        check_own_place(database)
    waits = watched_waits(database, chosen)
    gate = permit.observe() if observe else nullcontext()
    raise_open_files()
    runner = asyncio.Runner(loop_factory=new_event_loop)
    with held_data(data, database, program), waits, gate, runner as loop:
        loop.run(run())


@asynccontextmanager
async def _people(
    clock: WallClock, chosen: Settings, ca_file: Path | None
) -> AsyncIterator[tuple[WebhookPosts, TicketSystem | None, Sequence[AuditSink]]]:
    """Open the ways to people's own systems: webhooks, tickets and logs."""
    async with (
        open_posts(clock, chosen) as posts,
        open_tickets(chosen, clock, os.environ, ca_file) as tickets,
        open_audit_sinks(chosen, clock, os.environ) as sinks,
    ):
        yield posts, tickets, sinks


@asynccontextmanager
async def _seated(
    where: tuple[Path, str],
    opened: Data,
    chosen: Settings,
    clock: WallClock,
    works: WorksBy,
    restored: bool,
) -> AsyncIterator[tuple[CountedWrites, tuple[Cluster, WorkQueue] | None]]:
    """Judge the database, take our place among peers, begin what needs no device."""
    data, database = where
    store = opened.store
    async with (
        counted_writes(data, store, clock.now(), end_at_once, requested=restored) as counted,
        open_cluster(database, chosen, clock, works, opened.master.list_ids, data) as shared,
        scheduled_backups(data, database, chosen, clock, opened.master),
        open_log_intake(data, store, clock, chosen, opened.master, os.environ),
    ):
        if counted.key_withdrawn:  # it was opened before: nobody believes what it signs
            opened.signer.become(await exchange_signing_key(store, opened.master, clock.now()))
        yield counted, shared


@asynccontextmanager
async def _wires(
    data: Path, chosen: Settings, ca_file: Path | None, telemetry: Telemetry
) -> AsyncIterator[tuple[RedfishTransport, SwitchHttps, RedfishStreams]]:
    """Open connections to BMCs and switches; log out and close them at the end."""
    logins = LoginGovernor(memory=data / "failed-logins")
    transport = RedfishTransport(
        chosen.requests_max, ca_file, logins, telemetry, watch_basic=chosen.watch_basic
    )
    switches = SwitchHttps(ca_file=ca_file)
    streams = RedfishStreams(transport, ca_file)
    try:
        yield transport, switches, streams
    finally:
        for port in (streams, switches, transport):
            await port.close()


def _hosts(
    site: SimulatedSite | None,
    playbooks: Path,
    data: Path,
    remote: Remote,
    opened: Data,
    clock: Clock,
    chosen: Settings,
) -> AbstractAsyncContextManager[Hosts]:
    if site is not None:
        return simulated_hosts(site)
    return open_hosts(data, playbooks, remote, opened.store, clock, chosen)


def _agents(
    site: SimulatedSite | None,
    door: AgentDoor,
    data: Path,
    opened: Data,
    clock: Clock,
    chosen: Settings,
    files: artifact_files.Artifacts,
    observe: bool,
) -> AbstractAsyncContextManager[ServedAgents]:
    if observe:
        return nullcontext(SILENT)

    def make_images(url: str) -> OsImages:
        return OsImages(files, data / "images", url)

    if site is not None:
        agents = build_simulated_agents(site, opened.store, opened.vault, clock, chosen)
        return nullcontext(ServedAgents(agents, images=make_images(files.url)))
    check_hosts_apart(door, chosen)
    return serve_agents(door, data, opened.store, opened.vault, clock, chosen, make_images)


async def _drive(
    parts: Parts,
    data: Path,
    opened: Data,
    reached: tuple[FabricAccess, artifact_files.Artifacts],
    counts: tuple[Measured, CountedWrites],
    observe: bool,
    matrix: list[Path] | None,
) -> None:
    """Drive the site, or observe it; go on by each matrix that is read again."""
    fixed = observe or parts.shared is not None  # peers have to work by the same one
    reloads = None if fixed else MatrixReload(partial(read_pinned, matrix or []))
    while await _until_stopped(parts, data, opened, reached, counts, observe, reloads):
        parts = _reloaded(parts, reloads)


async def _until_stopped(
    parts: Parts,
    data: Path,
    opened: Data,
    reached: tuple[FabricAccess, artifact_files.Artifacts],
    counts: tuple[Measured, CountedWrites],
    observe: bool,
    reloads: MatrixReload | None,
) -> bool:
    """Drive the site, or observe it, with the API and metrics beside it.

    Returns whether it shall go on with another matrix, which `reloads` has.
    """
    daemon = ObservingDaemon(parts) if observe else Daemon(parts)
    parts = daemon.parts
    measured, counted = counts
    clock = parts.clock
    chosen = parts.settings
    acting = daemon.composed if isinstance(daemon, ObservingDaemon) else daemon

    def count_queues() -> Mapping[str, tuple[float, float]]:
        return {
            "operations": (acting.engine.running, chosen.operations_max),
            "writes": (opened.store.writer.waiting, 0),
            "reads": (opened.store.reader.waiting, 0),
        }

    access, files = reached
    observer = daemon.observer if isinstance(daemon, ObservingDaemon) else None
    trusts_first = chosen.agent_lookup_trusts == "first"
    if observer is None and (not parts.agents.lookup_gives_token or trusts_first):
        await warn_of_boot_token(files, parts.matrix.images.get(MAINTENANCE), chosen)
    beside = (parts.transport, parts.thresholds, observer, parts.matrix_texts, reloads)
    api = served_api(data, opened, daemon.context, access, parts.matrix, files, *beside)
    serving = (measured, data, opened.store, count_queues, opened.master)
    metrics = served_metrics(*serving)
    shared = parts.shared

    def leads() -> bool:
        return shared is None or shared[0].leads

    look_s = LOOK_S if shared is None else LOOK_SHARED_S
    async with api, metrics as url, tell_events(opened.store.journal, clock, look_s, leads):
        if url:
            log.info("metrics are at %s", url)
        if isinstance(daemon, ObservingDaemon):
            await run_observing(daemon)
            return False
        return await _driven(daemon, opened.store.recovery, counted, reloads)


def _reloaded(parts: Parts, reloads: MatrixReload | None) -> Parts:
    assert reloads is not None, "it asked for another turn"
    assert reloads.pinned is not None, "it was asked for a matrix"
    pinned = reloads.pinned
    reloads.begin()
    log.info("the matrix is read again: %s", pinned.matrix.digest()[:12])
    return dataclasses.replace(parts, matrix=pinned.matrix, matrix_texts=pinned.texts)


async def _driven(
    daemon: Daemon,
    book: SqlRecoveryRepository,
    counted: CountedWrites,
    reloads: MatrixReload | None,
) -> bool:
    """Drive the site until it is stopped, False, or until another matrix is asked for, True."""
    stopped = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stopped.set)
    if not counted.look_only:
        await _compare_descriptions(daemon, book, counted)
    if counted.look_only and not await _settled(daemon, book, counted, stopped):
        return False
    await daemon.start()
    log.info("serving")
    endings = [daemon.wait(), stopped.wait(), exempt_heap_daily()]
    if reloads is not None:
        hung_up = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
        kept = daemon.parts
        following = reloads.follow_signal(kept.store, kept.clock, hung_up)
        endings += [reloads.asked.wait(), following]
    ends = [asyncio.create_task(ending) for ending in endings]
    ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        if daemon.parts.shared is not None and isinstance(task.exception(), StoreFailed):
            end_at_once(str(task.exception()))  # as if the seat had ended it first
    await daemon.stop()
    for task in ends:
        task.cancel()
    for task in ended:
        task.result()
    return reloads is not None and reloads.asked.is_set() and not stopped.is_set()


async def _compare_descriptions(
    daemon: Daemon, book: SqlRecoveryRepository, counted: CountedWrites
) -> None:
    """Only look where a port's description is newer than the rows; else name ports from now on."""
    parts = daemon.parts
    mark = await book.get_database_mark()
    assert mark is not None, "the mark was settled when the database was judged"
    why = await find_lost_moves(parts.store, daemon.tenancy, mark)
    if why:
        counted.forbid_writes(why)
        await book.begin_look_only(why, parts.clock.now())
        return
    await _name_ports(daemon, book)


async def _name_ports(daemon: Daemon, book: SqlRecoveryRepository) -> None:
    """Have moved ports described by node, tenant and epoch, unless the site does not want it."""
    if daemon.parts.settings.port_descriptions:
        daemon.tenancy.name_ports(await book.get_database_mark())


async def _settled(
    daemon: Daemon, book: SqlRecoveryRepository, counted: CountedWrites, stopped: asyncio.Event
) -> bool:
    """Only look until a restore is settled; return False if the daemon was stopped before that."""
    log.warning("nothing is written to any device: %s", counted.look_only)
    log.warning("see `provisioner recovery list`, and docs/disaster-recovery.md")
    parts = daemon.parts
    plan = None if parts.fabrics is None else parts.fabrics.plan
    unowned = UnownedPorts(parts.settings, daemon.tenancy, plan)
    arguments = (parts.store, book, parts.clock, daemon.tenancy, parts.campaigns)
    recovery = Recovery(*arguments, unowned)
    ends = [asyncio.create_task(recovery.run()), asyncio.create_task(stopped.wait())]
    try:
        with permit.close_gate(counted.look_only):
            ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()
    for task in ended:
        task.result()
    if stopped.is_set():
        await daemon.stop()
        return False
    log.info("the restore is settled: this daemon acts")
    counted.allow_writes()
    await _name_ports(daemon, book)
    return True
