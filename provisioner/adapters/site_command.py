"""A command of the site, run without a shell: bounded in time and output, ended with its children.

Its environment has only what the caller gives it: secrets are given there or in a file, never as an
argument, which every user of the machine can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Unreachable
from provisioner.runtime import permit

KILLED_S = 5.0  # until a killed command is gone; one that left its session may hold the pipe
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PIPE = asyncio.subprocess.PIPE
NOTHING = asyncio.subprocess.DEVNULL


async def run_command(
    argv: Sequence[str],
    environment: Mapping[str, str],
    limit_s: float,
    output_max: int,
    text: bytes = b"",
) -> tuple[int, bytes]:
    """Return exit code and output (its first `output_max` bytes); `text` is the input.

    `text` fits into a pipe (64 KiB). Raises `Unreachable` for a command that cannot be run or does
    not end in time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE if text else NOTHING,
            stdout=PIPE,
            stderr=NOTHING,
            env={"PATH": PATH, **environment},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        detail = f"{argv[0]}: {error.strerror}"
        raise Unreachable(detail, maybe_executed=False) from None
    assert process.stdout is not None
    if process.stdin is not None:
        with contextlib.suppress(RuntimeError, OSError):  # uvloop's, for a command that has ended
            process.stdin.write(text)
            process.stdin.close()
    try:
        async with asyncio.timeout(limit_s):
            output = await _read_bounded(process.stdout, output_max)
            return await process.wait(), output
    except TimeoutError:
        detail = f"{argv[0]} did not end within {limit_s:g} s"
        raise Unreachable(detail, maybe_executed=True) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILLED_S):
                # asyncio reports the end of a process only once its pipe was read to the end
                await _read_bounded(process.stdout, output_max)
                await process.wait()


async def _read_bounded(stream: asyncio.StreamReader, output_max: int) -> bytes:
    """Read to the end, and keep the first bytes."""
    first = b""
    while piece := await stream.read(4096):
        first = (first + piece)[:output_max]
    return first


# ------------------------------------------------------------------------------
# The site's certificate authority behind a command: `step ca sign`, `openssl x509 -req`, a script.
#
# The command reads the request from its input and prints the certificate. PROVISIONER_BMC has the
# node and the BMC, PROVISIONER_BMC_HOST the name or address of the BMC, for subject alternative
# names and for the authority's own policy.


OUTPUT_MAX = 65_536  # bytes; a chain of three certificates has some 6,000


class CertificateCommand:
    """`ports.certificates.CertificateAuthority`; `environment` is all that it inherits."""

    def __init__(self, argv: Sequence[str], limit_s: float, environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._limit_s = limit_s
        self._environment = dict(environment)

    async def sign(self, bmc: str, host: str, request: str) -> str | Blocker:
        """Run the command for one request; anything but exit code 0 is a refusal."""
        permit.ask(writes=True)
        environment = {**self._environment, "PROVISIONER_BMC": bmc, "PROVISIONER_BMC_HOST": host}
        code, output = await run_command(
            self._argv, environment, self._limit_s, OUTPUT_MAX, request.encode()
        )
        if code == 0:
            return output.decode("ascii", "replace")
        return Blocker(
            reason=Reason.REFUSED,
            subject=bmc,
            detail=f"the authority's command {self._argv[0]} ended with exit code {code}",
            unblock="Run it by hand as the daemon's user with a request of `openssl req -new`, and "
            "correct it or `bmc_ca_command`.",
        )
