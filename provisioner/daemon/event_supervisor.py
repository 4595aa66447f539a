"""Starts the process that takes events, answers it, and starts it again when it ends.

While it is down, and after it was, no subscription is relied on until something comes by it again
(`EventFeeds.doubt`): its BMC is polled at each look. The same holds for a subscription of which an
event was dropped. It has no environment of ours, and its key comes over the socket alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from provisioner.daemon.event_connections import OUTSTANDING_MAX, Frame, FrameKind, FrameReader
from provisioner.runtime import permit as process_scope
from provisioner.runtime.bounded_listener import Limits

log = logging.getLogger(__name__)

MODULE = "provisioner.daemon.events_process"
START_S = 60.0  # until it listens, on a loaded machine; half a second on another
STOP_S = 15.0  # for its events under way, after SIGTERM
AGAIN_FIRST_S = 1.0  # pause before it is started again, doubled each time
AGAIN_MAX_S = 60.0
LIVED_S = 600.0  # after so long a life the pause is short again
TAKEN_MAX = 4 * OUTSTANDING_MAX  # events being taken, with those that it no longer waits for
DROPPED = "events_dropped"  # of the process's counts
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL", "TMPDIR")

Deliver = Callable[[str, bytes], Awaitable[int]]
Doubt = Callable[[str], None]


class EventSupervisor:
    """One process at a time. `port` is where it listens, the same after each start."""

    def __init__(
        self, place: tuple[str, int], pem: bytes, limits: Limits, kept_max: int, deliver: Deliver,
        doubt: Doubt,
    ) -> None:  # fmt: skip
        """`pem`: the key and the certificate that BMCs see. `doubt` gets an id, or "" for all."""
        self._host = place[0]
        self.port = place[1]
        self._pem = pem
        self._limits = limits
        self._kept_max = kept_max
        self._deliver = deliver
        self._doubt = doubt
        self._link: _Link | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None, "it was started"
        return self._process.pid

    async def start(self) -> None:
        """Start it for the first time, and keep it running. Raises OSError if it cannot listen."""
        await self._begin()
        self._running = asyncio.create_task(self._keep_running(), name="process for events")

    async def stop(self) -> None:
        """Have it answer the events under way, and end."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._end()

    async def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES}
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", MODULE, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment,
            )
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(
            lambda: _Link(self._deliver, self._doubt), sock=ours
        )
        self._link = link
        chosen = {
            "host": self._host, "port": self.port, "kept_max": self._kept_max,
            "limits": asdict(self._limits),
        }  # fmt: skip
        link.send(Frame(FrameKind.START, body=json.dumps(chosen).encode() + b"\n" + self._pem))
        try:
            async with asyncio.timeout(START_S):
                listens = await link.listens
        except TimeoutError:
            await self._end()
            raise OSError("the process for events did not start in time") from None
        if listens.status:
            await self._end()
            raise OSError(listens.body.decode("utf-8", "replace"))
        self.port = listens.number

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = AGAIN_FIRST_S
        while True:
            began = loop.time()
            if self._link is not None:
                await self._link.ended.wait()
            await self._end()
            self._doubt("")
            if loop.time() - began > LIVED_S:
                pause_s = AGAIN_FIRST_S
            log.error("the process that takes events ended; it is started in %.0f s", pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(AGAIN_MAX_S, 2 * pause_s)
            try:
                await self._begin()
            except OSError as error:
                log.error("the process that takes events cannot be started: %s", error)

    async def _end(self) -> None:
        """End the process, by force if it does not end by itself."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._link is not None:
            self._link.close()
            self._link = None


class _Link(asyncio.Protocol):
    """The daemon's end of the sockets. All input is hostile: the other end reads strangers."""

    def __init__(self, deliver: Deliver, doubt: Doubt) -> None:
        self._deliver = deliver
        self._doubt = doubt
        self._reader = FrameReader()
        self._transport: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.listens: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        if not self._transport.is_closing():
            self._transport.write(frame.encode())

    def close(self) -> None:
        """Close the link, by which the other process ends."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The sockets are connected from the beginning."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take frames of the process; bytes that are none end it."""
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except (ValueError, UnicodeDecodeError) as error:
            log.error("the process that takes events sent bytes that are no frame: %s", error)
            self._transport.abort()

    def _take(self, frame: Frame) -> None:
        if frame.kind is FrameKind.LISTENS and not self.listens.done():
            self.listens.set_result(frame)
        elif frame.kind is FrameKind.DROPPED:
            self._drop(frame)
        elif frame.kind is FrameKind.EVENT:
            if len(self._tasks) >= TAKEN_MAX:  # it gave up waiting for some of them
                self.send(Frame(FrameKind.ANSWER, frame.number, HTTPStatus.SERVICE_UNAVAILABLE))
                self._drop(frame)
                return
            task = asyncio.get_running_loop().create_task(self._answer(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _drop(self, frame: Frame) -> None:
        counts = process_scope.get_scope().counts
        counts[DROPPED] = counts.get(DROPPED, 0) + 1
        self._doubt(frame.name.decode("ascii"))

    async def _answer(self, frame: Frame) -> None:
        try:
            status = await self._deliver(frame.name.decode("ascii"), frame.body)
        except Exception:  # ours: the sender gets a 500, and the listener goes on
            log.exception("an event could not be taken")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        self.send(Frame(FrameKind.ANSWER, frame.number, status))

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended."""
        if not self.listens.done():
            self.listens.set_result(Frame(FrameKind.LISTENS, status=1, body=b"it ended at once"))
        self.ended.set()
