"""Serves a simulated site: every BMC and every switch is an HTTPS endpoint of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import asyncssh

from provisioner.integrations.sim.hardware.clock import FastClock, Schedule, SimClock
from provisioner.integrations.sim.hardware.parts import Host
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import Replay
from provisioner.integrations.sim.site.serve import Addresses, Front, Server, SharedListener
from provisioner.integrations.sim.site.site import Site

# ------------------------------------------------------------------------------
# Serves the serial console of each simulated host over SSH, as its BMC does.
#
# What the host prints goes to every client from then on, and nothing is typed. The login is the
# BMC's own account. A BMC that restarts, or whose SSH is off, cuts its clients and refuses others.
#
# source: OpenBMC's obmc-console, whose clients of SSH get the line as it comes; its port is 2200 of
# each BMC, here a free one of the site's address, which ComputerSystem.SerialConsole.SSH shows
# (DMTF schema ComputerSystem 1.13; a BlueField-3's tree).


LINE_END = b"\r\n"


class Session(asyncssh.SSHServerSession[bytes]):
    """One client at a console: it gets each line that the host prints."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Keep the channel to write to."""
        self._channel = chan

    def pty_requested(self, *_: object) -> bool:
        """Take any terminal."""
        return True

    def shell_requested(self) -> bool:
        """Lead to the console, as the port of a console does."""
        return True

    def session_started(self) -> None:
        """Write from now on."""
        self._host.on_print.append(self._write)

    def connection_lost(self, exc: Exception | None) -> None:
        """Write no more."""
        if self._write in self._host.on_print:
            self._host.on_print.remove(self._write)

    def _write(self, line: str) -> None:
        assert self._channel is not None
        if not self._channel.is_closing():
            self._channel.write(line.encode() + LINE_END)


class Door(asyncssh.SSHServer):
    """One connection to a console, with the login of the BMC's accounts."""

    def __init__(self, service: RedfishService, host: Host, clock: SimClock) -> None:
        self._service = service
        self._host = host
        self._clock = clock
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Cut a client of a BMC that is gone or offers no SSH."""
        bmc = self._service.bmc
        self._connection = conn
        bmc.on_reset.append(self._cut)
        if bmc.get_phase(self._clock.now()) == "gone" or not bmc.protocols["SSH"]:
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._cut in self._service.bmc.on_reset:
            self._service.bmc.on_reset.remove(self._cut)

    def password_auth_supported(self) -> bool:
        """Take passwords, as BMCs do."""
        return True

    def validate_password(self, username: str, password: str) -> bool:
        """Judge a login by the accounts of the BMC, which lock after wrong ones."""
        return self._service.accounts.check(username, password, self._clock.now()) is not None

    def session_requested(self) -> Session:
        """Open the console."""
        return Session(self._host)

    def _cut(self, _at: float) -> None:
        if self._connection is not None:
            self._connection.abort()


async def serve_consoles(
    services: Sequence[RedfishService], clock: SimClock, listen: str
) -> list[asyncssh.SSHAcceptor]:
    """Listen for the console of each host's BMC, at a free port each, and show it in its tree."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    servers = []
    for service in services:

        def make_door(service: RedfishService = service) -> Door:
            return Door(service, service.machine.host, clock)

        server = await asyncssh.listen(
            listen, 0, server_host_keys=[key], server_factory=make_door, encoding=None
        )
        service.bmc.console_port = server.get_port()
        servers.append(server)
    return servers


async def close_consoles(servers: Sequence[asyncssh.SSHAcceptor]) -> None:
    """Stop listening."""
    for server in servers:
        server.close()
    await asyncio.gather(*(server.wait_closed() for server in servers))


# ------------------------------------------------------------------------------
# Serves recorded BMCs: each is an HTTPS endpoint of its own.


async def serve_recordings(
    trees: Mapping[str, Mapping[str, Mapping[str, Any]]], listen: str = "127.0.0.1", port: int = 0
) -> tuple[Server, dict[str, str]]:
    """Start listening for each tree; return the server and the URLs by the trees' names.

    Raises `OSError` if an address is taken.
    """
    server = Server(FastClock(1.0), Schedule(), Addresses(listen, port))
    urls = {name: await server.add(name, Replay(tree).handle) for name, tree in trees.items()}
    return server, urls


async def serve_site(
    site: Site,
    listen: str = "127.0.0.1",
    port: int = 0,
    *,
    consoles: bool = False,
    one_listener: bool = False,
) -> Server:
    """Start listening for everything in the site; fills `site.urls` and `site.redfish`.

    `consoles`: the hosts' serial consoles over SSH, too. `one_listener`: each endpoint has an
    address in 127/8, and all of them one socket. Raises `OSError` if an address is taken.
    """
    shared = SharedListener(port) if one_listener else None
    addresses = Addresses(listen, shared.port if shared else port)
    server = Server(site.clock, site.schedule, addresses, shared)
    server.wired = lambda: bool(site.faults.rules)
    front = Front(site, server.fetch_file, server.deliver_event)
    for name in front.list_names():
        service = front.redfish.get(name)
        bmc = service.bmc if service else None
        site.urls[name] = await server.add(name, partial(front.handle, name), bmc)
    if consoles:
        hosts = [front.redfish[f"{node}/host"] for node in site.machines]
        servers = await serve_consoles(hosts, site.clock, listen)
        server.on_close.append(partial(close_consoles, servers))
    return server
