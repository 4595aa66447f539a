"""Builds the watches that run beside the reconciler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from provisioner.adapters.site_command import CertificateCommand
from provisioner.control.context import Context
from provisioner.control.engine.engine import Engine, FirstFailure
from provisioner.control.fabric.fabric import FabricSessions
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.control.node.credential_rotator import (
    CertificateExchanger,
    CredentialRotator,
    LockdownBracket,
)
from provisioner.control.node.observer import Observer
from provisioner.control.node.observing import RestingLooks
from provisioner.control.node.reconciler import Drivers
from provisioner.control.node.requested_acts import RequestedActs
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.attestation_watch import AttestationWatch, ReportQuestions
from provisioner.control.watch.console_watch import ConsoleWatch
from provisioner.control.watch.credential_keeper import CertificateKeeper, CredentialKeeper
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.control.watch.leaf_watch import ApartWatch, LeafWatch
from provisioner.control.watch.outbox import AuditExport, Outbox
from provisioner.control.watch.partition_watch import PartitionWatch
from provisioner.control.watch.release_watch import ReleaseWatch
from provisioner.control.watch.shards import Shards
from provisioner.control.watch.storage_watch import StorageWatch
from provisioner.control.watch.watcher import Watcher
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.tenancy.release_sequence import HostsApart
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.validate.fabric_tests import FabricTests
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.ports import Clock, Credentials, DamagedRow
from provisioner.ports.agents import ConsoleBook, Consoles
from provisioner.ports.alerts import AuditSink
from provisioner.ports.certificates import CertificateAuthority
from provisioner.ports.webhooks import WebhookPosts
from provisioner.runtime import permit
from provisioner.settings import Settings
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.journal_archives import SqlAuditExportRepository
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.repositories.webhooks import SqlWebhookRepository

SHARED = "webhooks"
Loops = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]  # by name
Watched = tuple[Tenancy, IsolationViolations, ReleaseWatch]


def build_leaf_watch(
    context: Context,
    watched: Watched,
    fabrics: Fabrics | None,
    recovery: SqlRecoveryRepository | None,
    alerts: SqlAlertRepository | None,
    shards: Shards,
) -> LeafWatch:
    tenancy, violations, released = watched
    apart = HostsApart(tenancy.site, context.store, tenancy)
    watch = ApartWatch(context.store, context.clock, apart, alerts)
    given = (None if fabrics is None else fabrics.plan, recovery, watch, shards)
    return LeafWatch(context, tenancy, violations, released.take_back, *given)


def build_partition_watch(
    context: Context, watched: Watched, fabrics: Fabrics | None
) -> PartitionWatch | None:
    """Return the watch of InfiniBand partitions; None where there are none."""
    partitions = None if fabrics is None else fabrics.partitions
    if partitions is None or context.settings.isolation == "vrf":
        return None
    tenancy, violations, released = watched
    return PartitionWatch(context, tenancy, partitions, violations, released.take_back)


def build_storage_watch(
    context: Context, tenancy: Tenancy, alerts: SqlAlertRepository | None
) -> StorageWatch | None:
    """Return the watch of shared storage; None where the site has none."""
    return None if tenancy.spaces is None else StorageWatch(context, tenancy.spaces, alerts)


def build_console_watch(
    context: Context, reach: Reach, matrix: Matrix, consoles: tuple[Consoles, ConsoleBook] | None
) -> ConsoleWatch | None:
    return None if consoles is None else ConsoleWatch(context, reach, matrix, *consoles)


def build_attestation_watch(
    context: Context, site: Site, matrix: Matrix, watcher: Watcher
) -> AttestationWatch:
    """Return the watch that asks devices again, BMCs within the requests of the other watch."""
    hosts = ReportQuestions(context, site, matrix)
    return AttestationWatch(context, matrix, watcher.eyes, hosts, watcher.keeper, watcher.may_watch)


def build_resting_looks(
    context: Context, observer: Observer, engine: Engine, failure: FirstFailure
) -> RestingLooks:
    """Return the looks at nodes that rest, whose failures end the daemon."""
    watch = partial(failure.watch, ends=True)
    return RestingLooks(context, observer, engine.submit, watch)


def build_fabric_sessions(
    context: Context,
    tests: FabricTests,
    engine: Engine,
    tenancy: Tenancy,
    fabrics: Fabrics | None,
) -> FabricSessions:
    """Return the keeper of tests among nodes, which sets hosts apart while they are tested."""
    apart = HostsApart(tenancy.site, context.store, tenancy)
    plan = None if fabrics is None else fabrics.plan
    return FabricSessions(context, tests, engine.submit, apart, plan)


def build_drivers(context: Context, site: Site, authority: CertificateAuthority | None) -> Drivers:
    """Return what drives the operations that are no journey."""
    return Drivers(
        requested=RequestedActs(context, site),
        rotator=CredentialRotator(context, site),
        exchanger=CertificateExchanger(context, site, authority),
        lockdown=LockdownBracket(context, site)
        if context.settings.bmc_lockdown == "lift"
        else None,
    )


def build_login_loops(context: Context, engine: Engine, *, signs: bool) -> Loops:
    """Return the loops that keep passwords and certificates of BMCs young.

    Their operations are driven by the reconciler. `signs`: the site has an authority.
    """
    certificates = CertificateKeeper(context, engine.submit, signs=signs)
    return {
        "credentials": CredentialKeeper(context, engine.submit).run,
        "certificates": certificates.run,
    }


def build_authority(settings: Settings, environ: Mapping[str, str]) -> CertificateAuthority | None:
    """Return the site's certificate authority; None where it has none. Raises InputError."""
    if not settings.bmc_ca_command:
        return None
    missing = [name for name in settings.bmc_ca_environment if name not in environ]
    if missing:
        problem = f"{missing[0]} is not set"
        raise InputError("settings", "bmc_ca_environment", problem, "Export it.")
    inherited = {name: environ[name] for name in settings.bmc_ca_environment}
    return CertificateCommand(settings.bmc_ca_command, settings.bmc_ca_limit_s, inherited)


def list_senders(
    context: Context,
    credentials: Credentials,
    webhooks: tuple[SqlWebhookRepository, WebhookPosts] | None,
    exports: tuple[SqlAuditExportRepository, Sequence[AuditSink]] | None,
    keeper: AlertKeeper | None,
    shards: Shards,
) -> Loops:
    """Return the loops that send the journal elsewhere: to webhooks, and to log systems.

    Several daemons share the one called `SHARED`; the others are the leader's.
    """
    loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
    given = (context.clock, context.settings)
    if webhooks is not None:
        loops[SHARED] = Outbox(*webhooks, credentials, *given, keeper, shards).run
    if exports is not None:
        loops["audit export"] = AuditExport(*exports, *given).run
    return loops


log = logging.getLogger(__name__)

FOLDS = "folds"  # the subject of its notice
FOLD_S = 60.0  # between two looks at the journal
Fold = Callable[[], Awaitable[bool]]  # takes the next rows; returns whether there are more


async def fold_journal(folds: Sequence[Fold], clock: Clock) -> None:
    """Fold the journal into the ledger of time and the evidence log, for ever.

    A damaged row stops its own fold alone, and is told: no decision on a node reads either.
    """
    while True:
        told = []
        for advance in folds:
            try:
                while await advance():
                    pass
            except DamagedRow as error:
                told.append(f"the journal is not folded on: {error}")
        notices = permit.get_scope().notices
        if told and notices.get(FOLDS) != tuple(told):
            log.error("; ".join(told))
        notices[FOLDS] = tuple(told)
        await clock.sleep(FOLD_S)
