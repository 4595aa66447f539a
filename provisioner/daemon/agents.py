"""Builds the agents' side: the HTTPS API that agents call, and the port for commands to them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from provisioner.adapters.agent.client import AgentClient, AgentRegistry, HttpsWire
from provisioner.adapters.agent.service import FILES, AgentService, application
from provisioner.adapters.agent.sessions import Sessions
from provisioner.adapters.agent.tls import names_of_ours, open_authority
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.model.input_error import InputError
from provisioner.ports import Agents, Clock
from provisioner.ports.agents import SimulatedSite
from provisioner.runtime.bounded_listener import Limits, bind, serve_bound
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentDoor:
    """The address for agents. `url` is the one that ramdisks call ("": made from host and port)."""

    host: str = "127.0.0.1"
    port: int = 6385
    url: str = ""


@dataclass(frozen=True)
class ServedAgents:
    """The port to the agents, and the address and certificate that a ramdisk needs to call."""

    agents: Agents
    url: str = ""
    ca_pem: str = ""
    images: OsImages | None = None


def check_hosts_apart(door: AgentDoor, settings: Settings) -> None:
    """Raise InputError where agents are looked up and nothing isolates their hosts from each other.

    An address that no other machine reaches serves no agents.
    """
    if settings.keeps_hosts_apart or settings.lookup_isolation == "site":
        return
    named = urlsplit(door.url).hostname or ""
    if named in _LOCAL or (not named and door.host in _LOCAL):
        return
    remedy = (
        "Set lookup_networks to the networks in which hosts are then, and lookup_reached to what "
        "they may reach there (this daemon, gateways, DHCP); or lookup_isolation: site, if the "
        "site's own switches keep hosts apart."
    )
    problem = "agents are looked up there, and nothing keeps hosts apart on that network"
    raise InputError("--agent-host", named or door.host, problem, remedy)


_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


def new_token() -> str:
    """Return 43 characters of 256 random bits; agents require at least 32."""
    return secrets.token_urlsafe(32)


@asynccontextmanager
async def serve_agents(
    door: AgentDoor,
    data: Path,
    store: SqlStore,
    vault: Vault,
    clock: Clock,
    settings: Settings,
    make_images: Callable[[str], OsImages] | None = None,
) -> AsyncIterator[ServedAgents]:
    """Serve the lookup and heartbeat API, and the images that `make_images` gives for its address.

    Raises `InputError` if it cannot be served there.
    """
    authority = open_authority(data, SealedFile(data, vault.keys))
    named = urlsplit(door.url).hostname or ""
    hosts = names_of_ours((named, door.host))
    if not hosts or (door.url and not named):
        remedy = "Say how ramdisks reach us: --agent-url https://ADDRESS:PORT."
        raise InputError("--agent-url", door.url, "names no address of ours", remedy)
    try:
        bound = await bind(door.host, door.port)
    except OSError as error:
        problem = f"cannot serve maintenance agents there ({error.strerror or error})"
        remedy = "Name a free port at an address of this machine that hosts reach."
        where = f"{door.host}:{door.port}"
        raise InputError("--agent-host", where, problem, remedy) from None
    sessions = Sessions(store.agents, vault, new_token, shared=store.shared)
    service = AgentService(sessions, clock, settings, store.journal.append)
    url = door.url.rstrip("/") or f"https://{_bracketed(door.host)}:{bound.port}"
    images = None if make_images is None else make_images(url + FILES)
    files = images.build_application() if images is not None else None
    context = authority.server_context(hosts)
    limits = Limits(
        settings.agents_connections_max,
        settings.agents_connections_per_peer,
        settings.api_idle_s,
        first_s=settings.api_first_s,
    )
    with bound:
        served = web.AppRunner(
            application(service, files), access_log=None, keepalive_timeout=limits.idle_s
        )
        async with serve_bound("agents", served, bound, limits, context):
            log.info("maintenance agents call %s; they trust %s", url, data / "agent-ca.pem")
            wire = HttpsWire()
            registry = AgentRegistry(sessions, AgentClient(wire, clock), clock, settings)
            try:
                yield ServedAgents(registry, url, authority.ca_pem(), images)
            finally:
                await wire.close()


def build_simulated_agents(
    site: SimulatedSite, store: SqlStore, vault: Vault, clock: Clock, settings: Settings
) -> Agents:
    """Return the agents of a simulated site."""
    report = store.journal.append
    return site.build_agents(
        store.agents, vault, clock, settings, report, new_token, shared=store.shared
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
