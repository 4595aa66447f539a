"""The parts of a daemon, from what `serve` holds open and from the options of a site."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.adapters.consoles.any_consoles import open_consoles
from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.simulated.simulated_runner import SimulatedRunner
from provisioner.adapters.switches import make_switches
from provisioner.adapters.switches.cumulus.factory_password import SshPasswords
from provisioner.checks.threshold_data import Limits
from provisioner.cli.options.matrix_files import Pinned
from provisioner.control.engine.engine_shared import WorkQueue
from provisioner.control.fabric.isolating import Fabrics
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.agents import ServedAgents
from provisioner.daemon.daemon import Parts
from provisioner.daemon.data import Data, read_thresholds
from provisioner.daemon.hosts import Hosts
from provisioner.execution.actions.host_keys import HostLogin, login_of
from provisioner.execution.artifacts import artifacts as artifact_files
from provisioner.ports import Clock, SwitchPasswords, SwitchTransport
from provisioner.ports.audit_exports import AuditSink
from provisioner.ports.consoles import ConsoleBook, Consoles
from provisioner.ports.telemetry import Telemetry
from provisioner.ports.tickets import TicketSystem
from provisioner.ports.webhooks import WebhookPosts
from provisioner.runtime.integrations import build_pdus
from provisioner.settings import Settings

if TYPE_CHECKING:
    from provisioner.control.engine.cluster import Cluster  # only with the extra "postgresql"

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
    site: SimulatedRunner | None,
    data: Path,
    chosen: Settings,
    user: str,
    key: Path | None,
    thresholds: Path | None,
) -> SiteParts:
    """Return the login on new hosts, the changer of switches' passwords, thresholds, consoles."""
    passwords = None if site else SshPasswords(data / SWITCH_KEYS)
    consoles = None
    if site is None and chosen.consoles != "off":
        files = ConsoleFiles(data, chosen.console_bytes_max)
        consoles = (open_consoles(data / "console-keys", chosen.consoles), files)
    return SiteParts(login_of(user, key), passwords, read_thresholds(thresholds), consoles)


def build_parts(
    kept: tuple[Data, Clock, Settings, Pinned, Telemetry],
    reached: tuple[Hosts, ServedAgents, artifact_files.Artifacts],
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
