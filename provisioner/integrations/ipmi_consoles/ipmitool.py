"""Consoles over IPMI: Serial over LAN, by the machine's own `ipmitool`.

Nothing is typed: the program's input is a pipe that stays empty. The password goes through another
pipe, and is in no argument. Both sides prove that they know it (RAKP), so a stranger cannot pose as
the BMC. The cipher suite is chosen here, the strongest first; those without authentication or
encryption are never offered, because whoever answers first could pick one.

source: IPMI 2.0 rev. 1.1, 13.20 to 13.24 (RAKP, limits of names and passwords), 22.15.2 (suites 3
and 17); the messages are those of ipmitool 1.8.19 against OpenIPMI's `ipmi_sim` 2.0.33.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress, Busy, LoginRefused, PortError, Unreachable
from provisioner.ports.agents import ConsoleDoor, Consoles
from provisioner.runtime import permit
from provisioner.settings import Settings

PROGRAM = "ipmitool"
SUITES = ("17", "3")  # HMAC-SHA256, then HMAC-SHA1, both with AES
USERNAME_MAX = 16  # bytes
PASSWORD_MAX = 20  # bytes
LOGIN_S = 60.0
ENDED_S = 5.0
READ_MAX = 65536
GREETING = b"[SOL Session operational."
LINE_BUFFERED = ("stdbuf", "-oL")  # else its greeting waits for the host's first output
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def open_consoles(settings: Settings) -> Mapping[str, Consoles]:
    """Return the consoles by their protocol. Raises InputError without `ipmitool`."""
    if shutil.which(PROGRAM, path=PATH) is None:
        problem = f"{PROGRAM} is not installed"
        remedy = f"Install {PROGRAM}, or choose `ssh`."
        raise InputError("consoles", settings.consoles, problem, remedy)
    return {"ipmi": IpmiConsoles()}


class IpmiConsoles:
    """`Consoles` over Serial over LAN, one process for each console that is open."""

    @asynccontextmanager
    async def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Log in and read. See the port for the errors."""
        password = bmc.secret.reveal() if bmc.secret is not None else ""
        _check_login(name, bmc.username, password)
        refusal: PortError | None = None
        for suite in SUITES:
            permit.ask(writes=False)
            async with _running(name, _arguments(bmc, door, suite), password) as stream:
                first = await _await_greeting(name, stream)
                if first is not None:
                    yield _read_pieces(first, stream.out)
                    return
                refusal = read_failure(name, bytes(stream.messages))
            if not isinstance(refusal, SuiteRefused):
                break
        assert refusal is not None
        raise refusal


class SuiteRefused(Unreachable):
    """The BMC does not know the cipher suite that was offered."""


def read_failure(name: str, output: bytes) -> PortError:
    """Return the error that the program's output tells of, after it ended without a session."""
    text = output.decode(errors="replace").lower()
    console = f"console of {name} over IPMI"
    if "open session response" in text and ("algorithm" in text or "cipher suite" in text):
        return SuiteRefused(
            f"{console}: the BMC has neither cipher suite 17 nor 3", maybe_executed=False
        )
    if "rakp" in text:
        return LoginRefused(f"{console}: the login is refused")
    if "already active" in text:
        return Busy(f"{console}: another session reads it; a BMC has one such stream")
    if "sol payload" in text or "insufficient privilege" in text:
        return LoginRefused(f"{console}: the account may not open it, or it is off in the BMC")
    return Unreachable(f"{console}: no session", maybe_executed=False)


def _check_login(name: str, username: str, password: str) -> None:
    for label, value, most in (
        ("user name", username, USERNAME_MAX),
        ("password", password, PASSWORD_MAX),
    ):
        if not 0 < len(value.encode()) <= most:
            detail = f"IPMI takes a {label} of 1 to {most} bytes"
            raise LoginRefused(f"console of {name} over IPMI: {detail}")


def _arguments(bmc: BmcAddress, door: ConsoleDoor, suite: str) -> Sequence[str]:
    address = urlsplit(bmc.url).hostname or ""
    target = ("-H", address, "-p", str(door.port), "-U", bmc.username)
    return (
        *("-v", "-I", "lanplus", *target, "-C", suite, "-L", "OPERATOR"),
        *("sol", "activate", "usesolkeepalive"),
    )


@dataclass(frozen=True)
class _Stream:
    """The console of a process, and what the program itself says, up to a bound."""

    out: asyncio.StreamReader
    messages: bytearray


@asynccontextmanager
async def _running(name: str, arguments: Sequence[str], password: str) -> AsyncIterator[_Stream]:
    """Run the program with the password in a pipe; afterwards it is gone."""
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, password.encode() + b"\n")
        process = await asyncio.create_subprocess_exec(
            *LINE_BUFFERED,
            PROGRAM,
            *("-f", f"/dev/fd/{read_end}"),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(read_end,),
            env={"PATH": PATH, "LC_ALL": "C"},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        detail = f"console of {name}: {PROGRAM}: {error.strerror}"
        raise Unreachable(detail, maybe_executed=False) from None
    finally:
        os.close(read_end)
        os.close(write_end)
    assert process.stdout is not None
    assert process.stderr is not None
    messages = bytearray()
    listening = asyncio.create_task(_collect(process.stderr, messages))
    try:
        yield _Stream(process.stdout, messages)
    finally:
        await _end(process)
        await listening


async def _collect(source: asyncio.StreamReader, into: bytearray) -> None:
    while piece := await source.read(READ_MAX):
        into += piece[: READ_MAX - len(into)]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the program's input: it gives the console back to the BMC, and ends; else kill it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDED_S):
            while await process.stdout.read(READ_MAX):
                pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _await_greeting(name: str, stream: _Stream) -> bytes | None:
    """Return the bytes after the greeting of a session; None if the program ended without one."""
    output = b""
    try:
        async with asyncio.timeout(LOGIN_S):
            while len(output) < READ_MAX:
                piece = await stream.out.read(READ_MAX)
                if not piece:
                    stream.messages.extend(output)
                    return None
                output += piece
                _, greeting, after = output.partition(GREETING)
                if greeting and b"\n" in after:
                    return after.partition(b"\n")[2]
    except TimeoutError:
        pass
    raise Unreachable(f"console of {name} over IPMI: no answer", maybe_executed=False)


async def _read_pieces(first: bytes, out: asyncio.StreamReader) -> AsyncIterator[bytes]:
    piece = first or await out.read(READ_MAX)
    while piece:
        yield piece
        piece = await out.read(READ_MAX)
