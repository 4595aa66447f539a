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

from provisioner.ports import Unreachable

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
