"""Consoles over SSH to BMCs. A BMC's host key is pinned at its first connection.

Nothing is typed: the stream is read only. A BMC's output is hostile, and goes on as bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from provisioner.ports import BmcAddress, CertificateChanged, LoginRefused, Unreachable
from provisioner.ports.agents import ConsoleDoor, Consoles
from provisioner.runtime import permit
from provisioner.runtime.integrations import open_more_consoles
from provisioner.runtime.late_module import LateModule
from provisioner.settings import Settings

if TYPE_CHECKING:
    import asyncssh

    from provisioner.adapters import ssh_client
else:  # loaded by the first connection
    asyncssh = LateModule("asyncssh")
    ssh_client = LateModule("provisioner.adapters.ssh_client")

CONNECT_S = 10.0  # to a TCP connection, as for hosts
LOGIN_S = 60.0  # BMCs exchange keys slowly; most need under ten seconds
READ_MAX = 65536


def open_consoles(pins: Path, settings: Settings) -> Consoles:
    """Return the consoles that the settings allow. Raises InputError."""
    ssh = SshConsoles(pins)
    more = open_more_consoles(settings, os.environ)
    return ConsolesByProtocol({"ssh": ssh, **more}) if more else ssh


class ConsolesByProtocol:
    """`Consoles` by the protocol that their door names."""

    def __init__(self, parts: Mapping[str, Consoles]) -> None:
        self._parts = parts

    def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the console. See the port for the errors."""
        return self._parts[door.protocol].open(name, bmc, door)


class SshConsoles:
    """`Consoles` over asyncssh; `pins` is the folder of host keys, one file for each console."""

    def __init__(self, pins: Path, private_key: Path | None = None) -> None:
        self._pins = pins
        self._private_key = private_key

    @asynccontextmanager
    async def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Log in and read. See the port for the errors."""
        connection = await self._connect(name, bmc, door.port)
        try:
            try:
                process = await connection.create_process(
                    door.command or None, encoding=None, term_type="dumb", stderr=asyncssh.STDOUT
                )
            except (OSError, asyncssh.Error) as error:
                raise Unreachable(f"console of {name}: {error}", maybe_executed=False) from None
            yield _pieces(name, process.stdout)
        finally:
            connection.abort()
            with contextlib.suppress(OSError, asyncssh.Error):
                await connection.wait_closed()

    async def _connect(self, name: str, bmc: BmcAddress, port: int) -> asyncssh.SSHClientConnection:
        address = urlsplit(bmc.url).hostname or ""
        file = self._pins / name.replace("/", "_")
        pin = await asyncio.to_thread(_read_pin, file)
        client = ssh_client.KeyDecider(lambda key: pin in ("", _write_out(key)))
        options = asyncssh.SSHClientConnectionOptions(
            config=None,
            username=bmc.username,
            password=bmc.secret.reveal() if bmc.secret is not None else None,
            client_keys=[str(self._private_key)] if self._private_key is not None else None,
            agent_path=None,
            agent_forwarding=False,
            known_hosts=b"",  # none: the client decides
            connect_timeout=CONNECT_S,
            login_timeout=LOGIN_S,
            keepalive_interval=60,  # a quiet console is no failure; a dead BMC is noticed
            keepalive_count_max=3,
        )
        permit.ask(writes=False)
        try:
            async with asyncio.timeout(CONNECT_S + LOGIN_S):
                connection, _ = await asyncssh.create_connection(
                    lambda: client, address, port, options=options
                )
        except asyncssh.HostKeyNotVerifiable:
            raise CertificateChanged(
                f"the SSH host key of the BMC of {name} is not the pinned one"
            ) from None
        except (asyncssh.PermissionDenied, asyncssh.KeyImportError) as error:
            raise LoginRefused(f"console of {name}: {error}") from None
        except (OSError, asyncssh.Error, TimeoutError) as error:
            detail = f"console of {name} at {address}:{port}: {str(error) or 'no answer'}"
            raise Unreachable(detail, maybe_executed=False) from None
        if not pin and client.accepted is not None:
            await asyncio.to_thread(_write_pin, file, _write_out(client.accepted))
        return connection


def _write_out(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


async def _pieces(name: str, stream: asyncssh.SSHReader[bytes]) -> AsyncIterator[bytes]:
    while True:
        try:
            piece = await stream.read(READ_MAX)
        except (OSError, asyncssh.Error) as error:
            raise Unreachable(f"console of {name}: {error}", maybe_executed=False) from None
        if not piece:
            return
        yield piece


def _read_pin(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def _write_pin(file: Path, key: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(f"{key}\n", encoding="utf-8")
