"""Consoles over IPMI: the real `ipmitool` against OpenIPMI's `ipmi_sim`, a BMC of its own."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import socket
import subprocess
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.adapters.consoles.ssh_consoles import open_consoles
from provisioner.integrations.ipmi_consoles.ipmitool import IpmiConsoles, SuiteRefused, read_failure
from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress, Busy, LoginRefused, Secret, Unreachable
from provisioner.ports.agents import ConsoleDoor
from provisioner.settings import Settings

PASSWORD = "sixteen-bytes-pw"
LAN = """\
name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  sol "{device}" 115200
  user 2 true "provisioner" "{password}" admin 10 none md2 md5 straight
"""
COMMANDS = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
"""
# IPMI 2.0, 13.2.4: presence ping and pong of RMCP (class ASF, IANA 4542)
PRESENCE_PING = bytes.fromhex("0600ff06 000011be 80000000")
PONG = b"\x40"
AGAIN = 20  # a login that was too slow is tried again, as the reader of consoles does
needs_programs = pytest.mark.skipif(
    shutil.which("ipmi_sim") is None or shutil.which("ipmitool") is None,
    reason="ipmi_sim and ipmitool are not installed: apt install openipmi ipmitool",
)


@dataclass
class Rig:
    """A BMC with the serial line of a host, at which the test is the host."""

    port: int
    host: int

    def print(self, text: bytes) -> None:
        os.write(self.host, text)

    def forget(self) -> None:
        """Drop what an earlier reader has left on the line."""
        termios.tcflush(self.host, termios.TCIOFLUSH)

    def read_typed(self) -> bytes:
        os.set_blocking(self.host, False)
        try:
            return os.read(self.host, 100)
        except BlockingIOError:
            return b""


@contextmanager
def serve_ipmi(folder: Path, port: int) -> Iterator[Rig]:
    host, line = pty.openpty()
    tty.setraw(line)
    lan = LAN.format(port=port, device=os.ttyname(line), password=PASSWORD)
    (folder / "lan.conf").write_text(lan)
    (folder / "commands").write_text(COMMANDS)
    (folder / "state").mkdir()
    files = ("-c", folder / "lan.conf", "-f", folder / "commands", "-s", folder / "state")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["ipmi_sim", "-n", *files], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_until_open(server, folder / "log", port)
        yield Rig(port, host)
    finally:
        server.terminate()
        server.wait()
        os.close(host)
        os.close(line)


def wait_until_open(server: subprocess.Popen[bytes], log: Path, port: int) -> None:
    """Wait for an answer: a port that is bound says nothing of a BMC that has no CPU time yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", port))
        asking.settimeout(0.1)
        while True:
            assert server.poll() is None, log.read_text()
            try:
                asking.send(PRESENCE_PING)
                if asking.recv(100)[8:9] == PONG:
                    assert "Error locking" not in log.read_text(), "/run/lock is not there"
                    return
            except TimeoutError:
                continue
            except ConnectionRefusedError:  # nobody listens yet
                time.sleep(0.05)


@pytest.fixture
def rig(tmp_path: Path, unused_udp_port: int) -> Iterator[Rig]:
    with serve_ipmi(tmp_path, unused_udp_port) as served:
        yield served


@pytest.fixture
def unused_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bmc_of(password: str = PASSWORD) -> BmcAddress:
    return BmcAddress("https://127.0.0.1:8443", "provisioner", Secret(password))


async def read_until(rig: Rig, prints: bytes, end: bytes, password: str = PASSWORD) -> bytes:
    door = ConsoleDoor(port=rig.port, protocol="ipmi")
    text = b""
    async with IpmiConsoles().open("su0-n00", bmc_of(password), door) as pieces:
        rig.print(prints)
        async for piece in pieces:
            text += piece
            if end in text:
                return text
    raise Unreachable(f"the session ended after {text!r}", maybe_executed=False)


async def patiently(rig: Rig, *words: bytes, password: str = PASSWORD) -> bytes:
    """Read as `read_until`, again where the machine was too slow for IPMI.

    A BMC without CPU time for 25 s costs ipmitool its login (`Unreachable`; 9 s do not), and one
    that takes no goodbye within 5 s of it holds the session for a while (`Busy`). A session whose
    packets it does not acknowledge in time is ended by ipmitool (no text, or a part of it).
    """
    for _ in range(AGAIN):
        try:
            return await read_until(rig, *words, password=password)
        except (Busy, Unreachable) as error:
            late = error
            await asyncio.sleep(0.5)
            rig.forget()
    raise late


@needs_programs
def test_a_console_is_read_twice_and_nothing_is_typed(rig: Rig) -> None:
    first = asyncio.run(patiently(rig, b"[ 0.0] Linux\r\nlogin: ", b"login: "))
    second = asyncio.run(patiently(rig, b"up\r\n", b"up\r\n"))

    assert (first, second) == (b"[ 0.0] Linux\r\nlogin: ", b"up\r\n")
    assert rig.read_typed() == b""


@asynccontextmanager
async def held(door: ConsoleDoor) -> AsyncIterator[None]:
    """Hold the console; a login that was too slow is tried again."""
    for attempt in range(AGAIN):
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(IpmiConsoles().open("su0-n00", bmc_of(), door))
            except Unreachable:
                assert attempt < AGAIN - 1
                continue
            yield
            return


async def find_obstacle(rig: Rig) -> str:
    """Return why a second reader gets no console."""
    for _ in range(AGAIN):
        try:
            await read_until(rig, b"", b"never")
        except Busy as error:
            return str(error)
        except Unreachable:
            continue
    return "none"


@needs_programs
def test_a_refused_password_is_told_apart_from_a_console_that_is_taken(rig: Rig) -> None:
    async def take_twice() -> None:
        door = ConsoleDoor(port=rig.port, protocol="ipmi")
        async with held(door):
            assert PASSWORD.encode() not in read_arguments()
            assert "another session" in await find_obstacle(rig)

    with pytest.raises(LoginRefused) as refused:
        asyncio.run(patiently(rig, b"", b"never", password="not-the-password"))
    asyncio.run(take_twice())

    assert "not-the-password" not in str(refused.value)


def read_arguments() -> bytes:
    """Return the arguments of all processes, as every user of a machine can read them."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes())
        except OSError:  # it has ended
            continue
    arguments = b"\n".join(lines)
    assert b"lanplus" in arguments
    return arguments


@pytest.mark.parametrize("password", ["", "x" * 21])
def test_a_login_that_ipmi_cannot_carry_is_refused_before_it_is_tried(password: str) -> None:
    async def read() -> None:
        door = ConsoleDoor(port=1, protocol="ipmi")
        async with IpmiConsoles().open("su0-n00", bmc_of(password), door):
            pass

    with pytest.raises(LoginRefused, match="20 bytes"):
        asyncio.run(read())


# source: ipmitool 1.8.19 with -v, against ipmi_sim 2.0.33 and a port where nobody listens
@pytest.mark.parametrize(
    ("output", "error"),
    [
        (
            b"Error in open session response message : invalid authentication algorithm",
            SuiteRefused,
        ),
        (b"> RAKP 2 HMAC is invalid", LoginRefused),
        (b"Info: SOL payload already active on another session", Busy),
        (b"Info: SOL payload disabled", LoginRefused),
        (b"Get Auth Capabilities error", Unreachable),
        (b"", Unreachable),
    ],
)
def test_the_programs_words_become_a_reason(output: bytes, error: type[Exception]) -> None:
    assert type(read_failure("su0-n00", output)) is error


def test_ipmi_without_its_program_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.integrations.ipmi_consoles.ipmitool.PATH", str(tmp_path))

    with pytest.raises(InputError, match="ipmitool is not installed"):
        open_consoles(tmp_path, Settings(consoles="ssh_or_ipmi"))
