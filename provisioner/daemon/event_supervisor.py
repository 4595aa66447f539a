"""Starts processes that read what strangers send, and starts them again when they end.

One takes events, and one logs: a flood of either stalls neither the daemon nor the other. Such a
process has no environment of ours, and its key comes over the socket alone. While the one for
events is down, and after it was, no subscription is relied on until something comes by it again
(`EventFeeds.doubt`): its BMC is polled at each look. The same holds for a subscription of which an
event was dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from provisioner.daemon.event_connections import OUTSTANDING_MAX, Frame, FrameKind, FrameReader
from provisioner.runtime import permit
from provisioner.runtime.bounded_listener import Limits
from provisioner.runtime.event_loop import end_tasks

log = logging.getLogger(__name__)

MODULE = "provisioner.daemon.events_process"
START_S = 180.0  # until it listens, on a loaded machine; half a second on another
STOP_S = 15.0  # for what is under way, after SIGTERM
LAST_S = 5.0  # for what it has sent before its end
AGAIN_FIRST_S = 1.0  # pause before it is started again, doubled each time
AGAIN_MAX_S = 60.0
LIVED_S = 600.0  # after so long a life the pause is short again
TAKEN_MAX = 4 * OUTSTANDING_MAX  # events being taken, with those that it no longer waits for
DROPPED = "events_dropped"  # of the process's counts
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL", "TMPDIR")

Deliver = Callable[[str, bytes], Awaitable[int]]
Doubt = Callable[[str], None]


class Link(asyncio.Protocol):
    """The daemon's end of the sockets. All input is hostile: the other end reads strangers."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._reader = FrameReader()
        self._transport: Any = None
        self.listens: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    def send(self, frame: Frame) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame.encode())

    def close(self) -> None:
        """Close the link, by which the other process ends."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take frames of the process; bytes that are none end it."""
        try:
            for frame in self._reader.feed(data):
                if frame.kind is FrameKind.LISTENS and not self.listens.done():
                    self.listens.set_result(frame)
                else:
                    self.take(frame)
        except ValueError as error:
            log.error("the %s sent bytes that are no frame: %s", self._what, error)
            self._transport.abort()

    def take(self, frame: Frame) -> None:
        """Take any other frame. Raises ValueError for one that is none."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.listens.done():
            self.listens.set_result(Frame(FrameKind.LISTENS, status=1, body=b"it ended at once"))
        self.ended.set()


class ProcessSupervisor:
    """One process of a module at a time. `what` names it in the log."""

    def __init__(self, module: str, what: str, link_to: Callable[[], Link]) -> None:
        self._module = module
        self._what = what
        self._link_to = link_to
        self.link: Link | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.pid

    def write_start(self) -> Sequence[Frame]:
        """Return what it is told at its start: its settings, and its key."""
        raise NotImplementedError

    def note_listening(self, frame: Frame) -> None:
        """Note where it listens; after another start it is to listen there again."""
        raise NotImplementedError

    def note_end(self) -> None:
        """It ended, and is started again."""

    async def start(self) -> None:
        """Start it for the first time, and keep it running. Raises OSError if it cannot listen."""
        await self._begin()
        self._running = asyncio.create_task(self._keep_running(), name=self._what)

    async def stop(self) -> None:
        """Have it end what is under way, and end."""
        await end_tasks(self._running)
        await self._end()

    async def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES}
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment,
            )
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(self._link_to, sock=ours)
        self.link = link
        for frame in self.write_start():
            link.send(frame)
        try:
            async with asyncio.timeout(START_S):
                listens = await link.listens
        except TimeoutError:
            await self._end()
            raise OSError(f"the {self._what} did not start in time") from None
        if listens.status:
            await self._end()
            raise OSError(listens.body.decode("utf-8", "replace"))
        self.note_listening(listens)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = AGAIN_FIRST_S
        while True:
            began = loop.time()
            if self.link is not None:
                await self.link.ended.wait()
            await self._end()
            self.note_end()
            if loop.time() - began > LIVED_S:
                pause_s = AGAIN_FIRST_S
            log.error("the %s ended; it is started in %.0f s", self._what, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(AGAIN_MAX_S, 2 * pause_s)
            try:
                await self._begin()
            except OSError as error:
                log.error("the %s cannot be started: %s", self._what, error)

    async def _end(self) -> None:
        """End the process, by force if it does not end by itself; take what it said at last."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self.link is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self.link.ended.wait()
            self.link.close()
            self.link = None


class EventSupervisor(ProcessSupervisor):
    """The process for events. `port` is where it listens, the same after each start."""

    def __init__(
        self,
        place: tuple[str, int],
        pem: bytes,
        limits: Limits,
        kept_max: int,
        deliver: Deliver,
        doubt: Doubt,
    ) -> None:
        """`pem`: the key and the certificate that BMCs see. `doubt` gets an id, or "" for all."""
        super().__init__(MODULE, "process that takes events", lambda: _EventLink(deliver, doubt))
        self._host = place[0]
        self.port = place[1]
        self._pem = pem
        self._limits = limits
        self._kept_max = kept_max
        self._doubt = doubt

    def write_start(self) -> Sequence[Frame]:
        chosen = {
            "host": self._host,
            "port": self.port,
            "kept_max": self._kept_max,
            "limits": asdict(self._limits),
        }
        return (Frame(FrameKind.START, body=json.dumps(chosen).encode() + b"\n" + self._pem),)

    def note_listening(self, frame: Frame) -> None:
        self.port = frame.number

    def note_end(self) -> None:
        """Rely on no subscription."""
        self._doubt("")


class _EventLink(Link):
    """Takes events, and answers them."""

    def __init__(self, deliver: Deliver, doubt: Doubt) -> None:
        super().__init__("process that takes events")
        self._deliver = deliver
        self._doubt = doubt
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, frame: Frame) -> None:
        """Take an event, or that one was dropped."""
        if frame.kind is FrameKind.DROPPED:
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
        counts = permit.get_scope().counts
        counts[DROPPED] = counts.get(DROPPED, 0) + 1
        self._doubt(frame.name.decode("ascii"))

    async def _answer(self, frame: Frame) -> None:
        try:
            status = await self._deliver(frame.name.decode("ascii"), frame.body)
        except Exception:  # ours: the sender gets a 500, and the listener goes on
            log.exception("an event could not be taken")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        self.send(Frame(FrameKind.ANSWER, frame.number, status))
