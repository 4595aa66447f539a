"""The daemon: the one place where the parts are put together.

`Parts` names everything from outside, `Daemon` wires it, and `Daemon.start` begins its loops. A
simulated site differs only in the parts that are handed in.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from provisioner.checks import ALL as CHECKS
from provisioner.checks.threshold_data import Limits
from provisioner.control.campaigns.campaigns import Campaigns
from provisioner.control.context import Context
from provisioner.control.engine.engine import EmbeddedEngine, Engine, FirstFailure
from provisioner.control.engine.engine_shared import SharedEngine, WorkQueue
from provisioner.control.engine.overload import Overload
from provisioner.control.fabric.fabric_standing import Fabrics, keeper_of, tenancy_of
from provisioner.control.node.certifier import Certifier
from provisioner.control.node.observer import Observer
from provisioner.control.node.performer import Performer
from provisioner.control.node.reconciler import Engaged, Reconciler
from provisioner.control.node.scheduler import Scheduler
from provisioner.control.repairs.repair_shop import RepairParts, RepairShop
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.control.watch.membership_watch import MembershipWatch
from provisioner.control.watch.release_watch import ReleaseWatch
from provisioner.control.watch.shards import Shards
from provisioner.control.watch.watch_standing import DecidingClock, TimeStanding
from provisioner.control.watch.watcher import PortWatches, Watcher, WatchParts
from provisioner.daemon.granting import build_context, guard_parts
from provisioner.daemon.watches import (
    SHARED,
    Fold,
    Loops,
    build_attestation_watch,
    build_authority,
    build_console_watch,
    build_drivers,
    build_fabric_sessions,
    build_leaf_watch,
    build_login_loops,
    build_partition_watch,
    build_resting_looks,
    build_storage_watch,
    fold_journal,
    list_senders,
)
from provisioner.execution.actions.power import Feeds, LeakGate, Report
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import HostLogin, Site
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.execution.executor import Executor
from provisioner.execution.observe.collector import build_collector
from provisioner.execution.observe.identify import Identifier
from provisioner.execution.rewriting import build_eraser
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.validate.fabric_tests import FabricTests
from provisioner.execution.validate.validator import Validator
from provisioner.model.alert import Signal
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.planning.certification.host_settings import select_sets
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.machine_settings.pinned_sets import select_machine_sets
from provisioner.ports import (
    Agents,
    BmcTransport,
    Clock,
    Credentials,
    DamagedRow,
    HostShell,
    PlaybookRunner,
    Switches,
    SwitchPasswords,
)
from provisioner.ports.agents import ConsoleBook, Consoles
from provisioner.ports.alerts import AuditSink
from provisioner.ports.isolation import Pdu
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.ports.tickets import TicketSystem
from provisioner.ports.webhooks import WebhookPosts
from provisioner.runtime.event_loop import end_tasks
from provisioner.runtime.integrations import find_outlet_users, list_loops
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.campaigns import SqlCampaignRepository
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.repositories.journal_archives import SqlAuditExportRepository
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.repositories.webhooks import SqlWebhookRepository
from provisioner.store.signing import Signer
from provisioner.store.sql_store import SqlStore

if TYPE_CHECKING:
    from provisioner.control.engine.cluster import Cluster  # only with the extra "postgresql"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """Everything from outside that a daemon needs."""

    store: SqlStore
    credentials: Credentials
    clock: Clock
    settings: Settings
    transport: BmcTransport
    switches: Switches
    runner: PlaybookRunner
    shell: HostShell
    agents: Agents
    artifacts: Artifacts
    matrix: Matrix
    signer: Signer
    os_images: OsImages | None = None
    login: HostLogin | None = None
    thresholds: Mapping[str, Limits] = field(default_factory=dict)  # the site's own
    matrix_texts: Sequence[tuple[str, str]] = ()  # (path, text) that the matrix was read from
    campaigns: SqlCampaignRepository | None = None  # None: nothing is upgraded in waves
    cases: SqlCaseRepository | None = None  # None: faults are reported, and nothing is repaired
    tickets: TicketSystem | None = None  # None: work for people is listed here only
    passwords: SwitchPasswords | None = None  # None: factory passwords of switches are refused
    recovery: SqlRecoveryRepository | None = None  # None: a restore is never confirmed by a person
    fabrics: Fabrics | None = None  # None: the command line and the API make tenants' networks
    telemetry: Telemetry = SILENCE  # the receivers of measurements
    pdus: Mapping[str, Pdu] = field(default_factory=dict)  # power distribution units, by name
    consoles: tuple[Consoles, ConsoleBook] | None = None  # None: no console is collected
    watch: WatchParts | None = None  # None: released nodes are read only by operations
    webhooks: tuple[SqlWebhookRepository, WebhookPosts] | None = None  # None: no webhook is posted
    exports: tuple[SqlAuditExportRepository, Sequence[AuditSink]] | None = None  # as webhooks
    folds: Sequence[Fold] = ()  # of the journal: into the ledger of time, and the evidence log
    shared: tuple[Cluster, WorkQueue] | None = None  # with peers on one database; None: alone

    @property
    def alerts(self) -> SqlAlertRepository | None:
        """Return the store of alerts; None where no watch raises them."""
        return None if self.watch is None else self.watch.book


class Daemon:
    """The driver of a site. `start` returns at once; `stop` leaves devices as they are."""

    def __init__(self, parts: Parts) -> None:
        self.context = context = build_context(parts)
        self.parts = parts = guard_parts(parts, context.get_gate())
        reach = _reach(parts, self._report_leaks)
        self.site = _site(parts, reach)
        collector = build_collector(self.site, parts.matrix)
        self.tenancy = tenancy_of(self.site, parts.store, parts.fabrics)
        self.keeper = keeper_of(self.site, parts.store, parts.fabrics)
        self.observer = Observer(
            context, collector, self.tenancy, parts.matrix, parts.alerts, parts.cases
        )
        profiles = parts.matrix.nic_profiles
        executor = Executor(self.site, profiles, parts.telemetry, select_sets(parts.matrix))
        validator = Validator(self.site, parts.store, CHECKS, parts.matrix, parts.thresholds)
        self.shop = _shop(
            context,
            parts,
            self.site,
            observer=self.observer,
            executor=executor,
            validator=validator,
            tenancy=self.tenancy,
        )
        violations = IsolationViolations(parts.store, parts.clock, parts.alerts)
        self.performer = Performer(
            context,
            observer=self.observer,
            identifier=Identifier(self.site, collector, parts.matrix),
            executor=executor,
            tenancy=self.tenancy,
            eraser=build_eraser(self.site, policy_of(parts.settings), parts.matrix, executor),
            certifier=Certifier(
                context, observer=self.observer, validator=validator, signer=parts.signer
            ),
            repair_workflow=None if self.shop is None else self.shop.repair_workflow,
            rechecks=Rechecks(self.site, parts.store, parts.matrix, parts.thresholds),
            violations=violations,
        )
        self.time = TimeStanding(parts.store, parts.clock)
        deciding = context.with_clock(DecidingClock(parts.clock, self.time))
        authority = build_authority(context.settings, os.environ)
        self.reconciler = Reconciler(
            *(deciding, self.observer, self.performer, self.time.await_time),
            drivers=build_drivers(deciding, self.site, authority),
            end_look=lambda node: self.looks.end(node),
        )
        self.engine = _engine(parts, self.reconciler)
        self.logins = build_login_loops(deciding, self.engine, signs=authority is not None)
        self.overload = Overload(parts.store, parts.clock)
        self._failure = FirstFailure()  # of every loop, whenever it was started
        self.looks = build_resting_looks(deciding, self.observer, self.engine, self._failure)
        self.shards = Shards(parts.store, parts.clock, parts.shared and parts.shared[0])
        self.watcher = _watcher(context, parts, reach, self)
        keeper = None if self.watcher is None else self.watcher.keeper
        held = None if keeper is None else keeper.list_held_nodes
        self.scheduler = Scheduler(
            deciding, self.engine.submit, held, self.overload.may_begin, self.looks.begin
        )
        self.release_watch = ReleaseWatch(deciding, self.tenancy, self.engine.submit, keeper)
        watched = (self.tenancy, violations, self.release_watch)
        self.consoles = build_console_watch(context, reach, parts.matrix, parts.consoles)
        more = (parts.fabrics, parts.recovery, parts.alerts, self.shards)
        self.leaf_watch = build_leaf_watch(context, watched, *more)
        self.partition_watch = build_partition_watch(context, watched, parts.fabrics)
        self.storage_watch = build_storage_watch(context, self.tenancy, parts.alerts)
        tests = FabricTests(self.site, parts.store, parts.matrix, parts.thresholds)
        self.fabric = build_fabric_sessions(context, tests, self.engine, watched[0], parts.fabrics)
        self.campaigns = _campaigns(deciding, parts)
        self._ticking: list[asyncio.Task[None]] = []
        self._measuring: list[asyncio.Task[None]] = []

    @cached_property
    def senders(self) -> Loops:
        """The loops that send the journal elsewhere."""
        keeper = None if self.watcher is None else self.watcher.keeper
        to = (self.parts.credentials, self.parts.webhooks, self.parts.exports)
        return list_senders(self.context, *to, keeper, self.shards)

    async def _report_leaks(self, node: str, signals: Sequence[Signal]) -> None:
        if self.watcher is not None:
            await self.watcher.keeper.report(node, signals)

    async def start(self) -> None:
        """Resume operations that were under way, then look for work until stopped."""
        await self.context.get_gate().open()
        if isinstance(self.parts.clock, WallClock):  # in virtual time there is nothing to measure
            await self.time.begin()
            for run in (self.overload.run, self.time.run):
                measuring = asyncio.create_task(run(), name=run.__qualname__)
                self._measuring.append(measuring)
                self._failure.watch(measuring)
        if not self.time.why:
            await self._take_up()
            return
        self._ticking = [asyncio.create_task(self._when_sure(), name="waiting for the time")]

    async def _when_sure(self) -> None:
        """Resume operations as soon as the time can be trusted."""
        await self.time.await_time()
        self._ticking.clear()
        await self._take_up()

    async def _when_fit(self) -> None:
        """Take up operations as soon as this daemon reaches what its peers reach."""
        assert self.parts.shared is not None
        await self.parts.shared[0].wait_until_fit()
        self._ticking.clear()
        await self._take_up()

    async def _take_up(self) -> None:
        if self.parts.shared is not None and not self.parts.shared[0].fit:
            waiting = asyncio.create_task(self._when_fit(), name="waiting for its devices")
            self._ticking = [self._failure.watch(waiting, ends=True)]
            return
        await self.engine.start()
        self._look_after_shards()
        if self.parts.shared is None:
            self._lead()
        else:
            leading = asyncio.create_task(self._when_leading(), name="duties")
            self._ticking.append(self._failure.watch(leading))

    async def _when_leading(self) -> None:
        """Do the work of the leading daemon from when this one leads, which then lasts."""
        assert self.parts.shared is not None
        await self.parts.shared[0].wait_for_lead()
        before = len(self._ticking)
        self._lead()
        await asyncio.gather(*self._ticking[before:])

    def _look_after_shards(self) -> None:
        """Start the loops that each daemon runs for its own shards."""
        attach = None if self.parts.watch is None else self.parts.watch.attach
        if self.watcher is not None and attach is not None:
            attach(self.watcher, PortWatches(self.leaf_watch, self.partition_watch))
        if self.parts.shared is not None:
            self._begin(self.shards.run, "shards")
        self._begin(self.leaf_watch.run, "leaf watch")
        if SHARED in self.senders:
            self._begin(self.senders[SHARED], SHARED)
        if self.watcher is not None:
            self._begin(self.watcher.run, "watcher")

    def _lead(self) -> None:
        """Start the loops that look for work, which only one daemon runs."""
        self._begin(self.scheduler.run, "scheduler")
        self._begin(self.fabric.run, "fabric sessions")
        self._begin(self.release_watch.run, "release watch")
        if self.partition_watch is not None:
            self._begin(self.partition_watch.run, "partition watch")
        if self.parts.fabrics is not None and (beside := self.parts.fabrics.memberships):
            watch = MembershipWatch(self.context, beside, self.parts.alerts)
            self._begin(watch.run, "membership watch")
        if self.storage_watch is not None:
            self._begin(self.storage_watch.run, "storage watch")
        if self.campaigns is not None:
            self._begin(self.campaigns.run, "campaigns")
        if self.shop is not None:
            for name, loop in self.shop.list_loops(self.engine.submit).items():
                self._begin(loop, name)
        if self.keeper is not None:
            self._begin(partial(self.keeper.run, self.parts.settings.tenant_settle_s), "tenants")
        if self.watcher is not None:
            parts = (self.site, self.parts.matrix, self.watcher)
            self._begin(build_attestation_watch(self.context, *parts).run, "attestation watch")
        if self.consoles is not None:
            self._begin(self.consoles.run, "consoles")
        if self.parts.folds:
            self._begin(partial(fold_journal, self.parts.folds, self.parts.clock), "folds")
        alone = {name: loop for name, loop in self.senders.items() if name != SHARED}
        brought = list_loops(self.parts)
        for name, loop in {**self.logins, **alone, **brought}.items():
            self._begin(loop, name)

    def _begin(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        task = asyncio.create_task(self._past_damage(run), name=name)
        self._ticking.append(task)
        self._failure.watch(task)

    async def _past_damage(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop, and again after it met a damaged row of a node, which is then set aside.

        Each turn of a loop reads its work anew, so that a new start loses nothing.
        """
        while True:
            try:
                return await run()
            except DamagedRow as error:
                if not error.node:
                    raise
                await self.parts.clock.sleep(self.parts.settings.poll_s)

    async def wait(self) -> None:
        """Wait until a loop or the store fails; they never end by themselves."""
        ending = [self.engine.failed(), self._failure.wait()]
        if self.parts.shared is not None:
            ending.append(self.parts.shared[0].failed())
        await asyncio.gather(*self._ticking, *ending)

    async def stop(self) -> None:
        """Stop deciding; devices finish their actions and are read again at the next start.

        The parts that were handed in are closed by their owner.
        """
        await end_tasks(*self._ticking, *self._measuring)
        await self.looks.close()
        await self.engine.stop()
        await self.fabric.stop()
        await self.tenancy.close()
        self.context.get_gate().close()


def _reach(parts: Parts, report: Report) -> Reach:
    return Reach(
        parts.transport,
        parts.switches,
        parts.credentials,
        parts.passwords,
        pause=parts.clock.sleep,
        gate=LeakGate(parts.clock, parts.alerts, parts.store.evidence, report),
    )


def _site(parts: Parts, reach: Reach) -> Site:
    users = partial(find_outlet_users, parts.settings)
    return Site(
        parts.clock,
        parts.settings,
        reach,
        parts.runner,
        parts.shell,
        parts.agents,
        parts.artifacts,
        parts.matrix.images.get(MAINTENANCE),
        parts.os_images,
        parts.login,
        Feeds(parts.pdus, parts.store.nodes.list, reach.find_recorded_leak, users),
        None if parts.consoles is None else parts.consoles[1],
        select_machine_sets(parts.matrix),
    )


def _campaigns(context: Context, parts: Parts) -> Campaigns | None:
    if parts.campaigns is None:
        return None
    plan = None if parts.fabrics is None else parts.fabrics.plan
    return Campaigns(context, parts.campaigns, plan)


def _engine(parts: Parts, reconciler: Reconciler) -> Engine:
    most = parts.settings.operations_max
    if parts.shared is None:

        async def drive(operation: str) -> None:
            await reconciler.drive(operation, Engaged(away=embedded.away))

        embedded = EmbeddedEngine(parts.store, drive, most)
        return embedded
    cluster, queue = parts.shared

    async def drive_shared(operation: str) -> None:
        await reconciler.drive(operation, Engaged(leaves=engine.leaves))

    engine = SharedEngine(parts.store, drive_shared, most, cluster, queue)
    return engine


def _watcher(context: Context, parts: Parts, reach: Reach, daemon: Daemon) -> Watcher | None:
    if parts.watch is None:
        return None
    submit = daemon.engine.submit
    may_watch = daemon.overload.may_watch
    on_raised = None if daemon.shop is None else daemon.shop.calls.call
    return Watcher(context, parts.watch, reach, submit, may_watch, on_raised, daemon.shards)


def _shop(
    context: Context,
    parts: Parts,
    site: Site,
    *,
    observer: Observer,
    executor: Executor,
    validator: Validator,
    tenancy: Tenancy,
) -> RepairShop | None:
    if parts.cases is None:
        return None
    return RepairShop(
        context,
        RepairParts(parts.cases, parts.alerts, parts.credentials, parts.signer, parts.tickets),
        site,
        observer=observer,
        executor=executor,
        validator=validator,
        matrix=parts.matrix,
        tenancy=tenancy,
    )
