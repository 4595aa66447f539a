"""The parts of a daemon, from what `serve` holds open and from the options of a site."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.consoles.ssh_consoles import SshConsoles
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.simulated.simulated_runner import SimulatedRunner
from provisioner.adapters.switches import make_switches
from provisioner.adapters.switches.cumulus.factory_password import SshPasswords
from provisioner.adapters.switches.https_wire import SwitchHttps
from provisioner.daemon.agents import (
    ServedAgents,
)
from provisioner.daemon.daemon import Parts
from provisioner.daemon.data import Data, read_thresholds
from provisioner.daemon.hosts import Hosts
from provisioner.daemon.power import build_pdus
from provisioner.execution.actions.host_keys import login_of
from provisioner.execution.artifacts import artifacts as artifact_files
from provisioner.model.matrix import Matrix
from provisioner.ports import Clock
from provisioner.ports.telemetry import Telemetry
from provisioner.settings import Settings

SWITCH_KEYS = "switch_keys"  # SSH host keys of switches, pinned when their password is changed


def list_site_parts(
    site: SimulatedRunner | None,
    data: Path,
    chosen: Settings,
    user: str,
    key: Path | None,
    thresholds: Path | None,
) -> dict[str, Any]:
    """Return the login on new hosts, the changer of switches' passwords, thresholds, consoles."""
    passwords = None if site else SshPasswords(data / SWITCH_KEYS)
    limits = read_thresholds(thresholds)
    consoles = None
    if site is None and chosen.consoles == "ssh":
        book = ConsoleFiles(data, chosen.console_bytes_max)
        consoles = (SshConsoles(data / "console-keys"), book)
    return {
        "login": login_of(user, key),
        "passwords": passwords,
        "thresholds": limits,
        "consoles": consoles,
    }


def build_parts(
    kept: tuple[Data, Clock, Settings, Matrix, Telemetry],
    reached: tuple[Hosts, ServedAgents, artifact_files.Artifacts],
    wires: tuple[RedfishTransport, SwitchHttps],
    told: tuple[Any, ...],  # the receivers and sources: watch, webhooks, tickets, peers, fabrics
    **more: Any,
) -> Parts:
    """Return the parts of a daemon: the store's, the access to hosts, and the rest by name."""
    opened, clock, chosen, pinned, telemetry = kept
    hosts, served, files = reached
    transport, switches = wires
    watch, posts, tickets, shared, fabrics = told
    return Parts(
        store=opened.store,
        credentials=opened.vault,
        clock=clock,
        settings=chosen,
        transport=transport,
        switches=make_switches(switches, hosts.shell),
        watch=watch,
        webhooks=(opened.store.webhooks, posts),
        tickets=tickets,
        shared=shared,
        fabrics=fabrics,
        runner=hosts.runner,
        shell=hosts.shell,
        agents=served.agents,
        os_images=served.images,
        signer=opened.signer,
        artifacts=files,
        matrix=pinned,
        campaigns=opened.store.campaigns,
        cases=opened.store.cases,
        recovery=opened.store.recovery,
        telemetry=telemetry,
        pdus=build_pdus(chosen.pdus, transport, os.environ),
        **more,
    )
