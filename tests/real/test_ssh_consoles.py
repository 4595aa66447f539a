"""Consoles over SSH: against asyncssh's server as a BMC with a password, and against real sshd."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from hosts import hosts, why_not

from provisioner.adapters.consoles.ssh_consoles import SshConsoles
from provisioner.ports import BmcAddress, CertificateChanged, LoginRefused, Secret, Unreachable
from provisioner.ports.agents import ConsoleDoor

BOOT = b"\x1b[2J[    0.000000] Linux version 6.8.0\r\nlogin: "


class OneUser(asyncssh.SSHServer):
    """Lets `root` in with a password, as a BMC does."""

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("root", "right")


async def print_boot(process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.stdout.write(BOOT + (process.command or "").encode())
    process.exit(0)


def with_server(work: Callable[[int], Awaitable[Any]]) -> Any:
    """Serve a console on loopback, with a new host key, while `work` runs."""

    async def main() -> Any:
        key = asyncssh.generate_private_key("ssh-ed25519")
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[key],
            server_factory=OneUser,
            process_factory=print_boot,
            encoding=None,
        )
        try:
            return await work(server.get_port())
        finally:
            server.close()
            await server.wait_closed()

    return asyncio.run(main())


async def read_all(pins: Path, door: ConsoleDoor, password: str = "right") -> bytes:
    bmc = BmcAddress("https://127.0.0.1:8443", "root", Secret(password))
    async with SshConsoles(pins).open("su0-n00", bmc, door) as pieces:
        return b"".join([piece async for piece in pieces])


def test_a_console_is_read_with_the_bmcs_own_password(tmp_path: Path) -> None:
    text = with_server(lambda port: read_all(tmp_path, ConsoleDoor(port=port)))

    assert text == BOOT


def test_a_console_behind_a_command_is_entered_by_it(tmp_path: Path) -> None:
    door = "console com2"
    text = with_server(lambda port: read_all(tmp_path, ConsoleDoor(port=port, command=door)))

    assert text.endswith(b"console com2")


def test_a_refused_password_is_told_apart_from_silence(tmp_path: Path) -> None:
    with pytest.raises(LoginRefused) as refused:
        with_server(lambda port: read_all(tmp_path, ConsoleDoor(port=port), "wrong"))

    assert "wrong" not in str(refused.value)
    with pytest.raises(Unreachable):
        asyncio.run(read_all(tmp_path, ConsoleDoor(port=1)))


def test_another_host_key_is_refused_afterwards(tmp_path: Path) -> None:
    with_server(lambda port: read_all(tmp_path, ConsoleDoor(port=port)))

    with pytest.raises(CertificateChanged):
        with_server(lambda port: read_all(tmp_path, ConsoleDoor(port=port)))


def test_the_console_of_a_real_sshd_is_read(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path / "hosts") as (host,):

        async def read() -> bytes:
            door = ConsoleDoor(port=host.port, command="printf 'boot\\r\\nup\\n'")
            consoles = SshConsoles(tmp_path / "pins", host.key)
            bmc = BmcAddress(f"https://{host.address}", "root")
            async with consoles.open(host.name, bmc, door) as pieces:
                return b"".join([piece async for piece in pieces])

        text = asyncio.run(read())

    assert text.replace(b"\r", b"") == b"boot\nup\n"
