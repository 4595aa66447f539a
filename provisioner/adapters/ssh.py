"""Commands on hosts over SSH: one cached connection per host, for reads too small for a play.

A host's key is pinned under the node's name at its first connection, in the same file that Ansible
reads; another key is refused afterwards until a person removes the old one. A host's output is
hostile: sizes and times are bounded, and nothing of our own is forwarded to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.ports import (
    CertificateChanged,
    HostKeyUnknown,
    LoginRefused,
    PortError,
    Remote,
    ShellCommand,
    ShellOutput,
    Unreachable,
)
from provisioner.runtime import permit
from provisioner.runtime.late_module import LateModule
from provisioner.runtime.whole_files import replace_file

if TYPE_CHECKING:
    import asyncssh

    from provisioner.adapters import ssh_client
else:  # loaded by the first connection
    asyncssh = LateModule("asyncssh")
    ssh_client = LateModule("provisioner.adapters.ssh_client")

OUTPUT_MAX = 4 * 1024 * 1024  # bytes kept of each stream; dmesg after a month is below 1 MB
DISCARD_MAX = 64 * 1024 * 1024  # bytes after which a command that does not stop is cut off
CONNECT_S = 10.0  # to a TCP connection; a host in the same rack takes milliseconds
LOGIN_S = 30.0  # key exchange and login, on a host under a load test
FRESH_S = 2.0  # a connection that was used within this is not tried first
IDLE_S = 120.0  # longer than the poll of a booting host, short enough for a host that went away
GRACE_S = 30.0  # beyond a command's own limit, for `timeout` to kill it there
ENDED = (124, 137)  # of timeout(1): at its limit, or by the KILL ten seconds later


@dataclass
class _Host:
    """One host's connection; the lock keeps its commands one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: asyncssh.SSHClientConnection | None = None
    address: str = ""
    used_at: float = 0.0  # monotonic


class SshShell:
    """`HostShell` over asyncssh. At most `connections_max` connections are open."""

    def __init__(self, remote: Remote, connections_max: int) -> None:
        self._remote = remote
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._slots = asyncio.Semaphore(connections_max)
        self._connections_max = connections_max

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        """Run the commands in order. See the port for the errors."""
        entry = self._hosts.setdefault(host, _Host())
        async with entry.lock, self._slots:
            self._hosts.move_to_end(host)
            await self._make_room(entry)
            connection = await self._connection(entry, host, address)
            outputs = []
            async with _dropping(entry):
                for command in commands:
                    outputs.append(await self._one(connection, command))
                    entry.used_at = time.monotonic()
            return outputs

    async def forget(self, host: str, known: str = "") -> None:
        """Drop the connection and the pin of the host; pin the key that is given instead."""
        entry = self._hosts.setdefault(host, _Host())
        async with entry.lock:
            _drop(entry)
            if self._remote.learn and self._remote.known_hosts is not None:
                await asyncio.to_thread(_unpin, self._remote.known_hosts, host)
                if known:
                    key = asyncssh.import_public_key(known)
                    await asyncio.to_thread(_pin, self._remote.known_hosts, host, key)

    async def close(self) -> None:
        """Close every connection; running commands are cut off here, and end there in time."""
        for entry in self._hosts.values():
            _drop(entry)
        self._hosts.clear()

    async def _make_room(self, mine: _Host) -> None:
        """Close connections that are idle for long, and the longest idle if there are too many."""
        now = time.monotonic()
        idle = [h for h in self._hosts.values() if h.connection is not None and h is not mine]
        unused = [h for h in idle if not h.lock.locked()]
        over = len(idle) + 1 - self._connections_max
        for place, entry in enumerate(unused):  # oldest first
            if place < over or now - entry.used_at > IDLE_S:
                _drop(entry)

    async def _connection(
        self, entry: _Host, host: str, address: str
    ) -> asyncssh.SSHClientConnection:
        if entry.connection is not None:
            if entry.address == address and await self._lives(entry):
                return entry.connection
            _drop(entry)
        entry.connection = await self._connect(host, address)
        entry.address = address
        return entry.connection

    async def _lives(self, entry: _Host) -> bool:
        """Return whether a cached connection still leads to a host: it may have been restarted."""
        assert entry.connection is not None
        if entry.connection.is_closed():
            return False
        if time.monotonic() - entry.used_at <= FRESH_S:
            return True
        with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                await entry.connection.run("true", stdin=asyncssh.DEVNULL)
                return True
        return False

    async def _connect(self, host: str, address: str) -> asyncssh.SSHClientConnection:
        if not address:  # asyncssh would take it for this machine, or for a name that is unknown
            detail = (
                f"the hardware list names no address of {host}'s system: `address` of its entry"
            )
            raise Unreachable(detail, maybe_executed=False)
        remote = self._remote
        keys = await asyncio.to_thread(_known, remote.known_hosts)
        pinned = remote.learn and any(keys.match(host, "", None)[:3])
        learns = remote.learn and not pinned  # the first key of its host
        client = ssh_client.KeyDecider(lambda _key: learns)
        try:
            async with asyncio.timeout(CONNECT_S + LOGIN_S):
                connection, _ = await asyncssh.create_connection(
                    lambda: client, address, remote.port, options=self._options(host, keys)
                )
        except asyncssh.HostKeyNotVerifiable as error:
            if not any(keys.match(host, "", None)[:3]):
                detail = f"no SSH host key of {host} at {address} is given, and none is learned"
                raise HostKeyUnknown(detail) from None
            detail = f"the SSH host key of {host} at {address} is not the pinned one"
            raise CertificateChanged(f"{detail}: {error.reason}") from None
        except (asyncssh.PermissionDenied, asyncssh.KeyImportError) as error:
            raise LoginRefused(f"{remote.user}@{address}: {error}") from None
        except (OSError, asyncssh.Error, TimeoutError) as error:
            detail = f"ssh {address}: {str(error) or 'no answer'}"
            raise Unreachable(detail, maybe_executed=False) from None
        if client.accepted is not None and remote.known_hosts is not None:
            await asyncio.to_thread(_pin, remote.known_hosts, host, client.accepted)
        return connection

    def _options(
        self, host: str, known: asyncssh.SSHKnownHosts
    ) -> asyncssh.SSHClientConnectionOptions:
        remote = self._remote
        keys: dict[str, object] = {}
        if remote.private_key is not None:
            keys = {"client_keys": [str(remote.private_key)], "agent_path": None}
        return asyncssh.SSHClientConnectionOptions(
            config=None,  # a person's ~/.ssh/config is not for the daemon
            username=remote.user,
            known_hosts=known,
            host_key_alias=host if remote.learn else None,
            connect_timeout=CONNECT_S,
            login_timeout=LOGIN_S,
            keepalive_interval=10,
            keepalive_count_max=3,
            preferred_auth="publickey",
            compression_algs=None,
            agent_forwarding=False,
            **keys,
        )

    async def _one(
        self, connection: asyncssh.SSHClientConnection, command: ShellCommand
    ) -> ShellOutput:
        """Run one command. It is ended on the host at its limit, also if we are gone by then.

        A daemon that may no longer act ends here, before the command leaves.
        """
        line = f"timeout --kill-after=10 {command.timeout_s:g} sh -c {shlex.quote(command.line)}"
        if self._remote.user != "root":
            line = f"sudo -n -- {line}"
        permit.ask()
        try:
            async with asyncio.timeout(command.timeout_s + GRACE_S):
                sent = command.sent
                process = await connection.create_process(
                    line, encoding=None, stdin=asyncssh.DEVNULL if sent is None else asyncssh.PIPE
                )
                async with process:
                    if sent is not None:
                        # A command that ends without reading closes the channel first. That is no
                        # fault of the connection: its exit status and its stderr are there.
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.write(sent.reveal().encode())
                            process.stdin.write_eof()
                    (out, cut_out), (err, cut_err) = await asyncio.gather(
                        _read(process.stdout, process), _read(process.stderr, process)
                    )
                    await process.wait_closed()
        except (OSError, asyncssh.Error, TimeoutError) as error:
            detail = f"{command.name}: {str(error) or 'no answer in time'}"
            raise Unreachable(detail, maybe_executed=True) from None
        code = process.exit_status
        if code is not None and (code < 0 or code in ENDED):
            code = None
        if process.exit_status is None and process.exit_signal is None and connection.is_closed():
            detail = f"{command.name}: the connection was lost"
            raise Unreachable(detail, maybe_executed=True)
        return ShellOutput(
            exit_code=code,
            stdout=out.decode("utf-8", "replace"),
            stderr=err.decode("utf-8", "replace"),
            # asyncssh drops what it has not handed on if the host ends the connection in good order
            truncated=cut_out or cut_err or connection.is_closed(),
        )


async def _read(
    stream: asyncssh.SSHReader[bytes], process: asyncssh.SSHClientProcess[bytes]
) -> tuple[bytes, bool]:
    """Return a stream's stored part, and whether it was longer; an endless one is cut off."""
    content = bytearray()
    size = 0
    while data := await stream.read(65536):
        size += len(data)
        content += data[: OUTPUT_MAX - len(content)]
        if size > DISCARD_MAX:
            process.close()
            break
    return bytes(content), size > len(content)


@contextlib.asynccontextmanager
async def _dropping(entry: _Host) -> AsyncIterator[None]:
    """Drop a connection that failed, or whose caller gave up in the middle."""
    try:
        yield
    except (PortError, asyncio.CancelledError):
        _drop(entry)
        raise


def _drop(entry: _Host) -> None:
    if entry.connection is not None:
        entry.connection.abort()
        entry.connection = None


def _known(path: Path | None) -> asyncssh.SSHKnownHosts:
    """Return the present file: a person may take a line out of it."""
    text = ""
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            text = path.read_text(encoding="utf-8")
    return asyncssh.import_known_hosts(text)


def _pin(path: Path, host: str, key: asyncssh.SSHKey) -> None:
    """Write one whole line by one write, for ssh(1) appends to the same file."""
    line = f"{host} {key.export_public_key('openssh').decode().strip()}\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _unpin(path: Path, host: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        remaining = [line for line in lines if line.split(" ", 1)[0] != host]
        replace_file(path, "".join(remaining))
