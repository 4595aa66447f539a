"""The process that takes the events of BMCs: TLS, HTTP and their bounds; the daemon has the rest.

The daemon starts it with one end of a pair of sockets (`event_supervisor.py`), and sends it the
address, the limits and the key. Each event goes to the daemon with the id of its path, and the
daemon's answer to the BMC. It imports neither the store nor a framework: 20 MB instead of 120.

The rule that a reader would otherwise break: it decides nothing. Who may send, and the meaning of
an event, are known by the daemon; if that one ends, this process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from http import HTTPStatus
from typing import Any

from provisioner.daemon.event_connections import (
    OUTSTANDING_MAX,
    Bars,
    EventConnection,
    Frame,
    FrameKind,
    FrameReader,
)
from provisioner.runtime import undumpable
from provisioner.runtime.bounded_listener import BoundedListener, KeptConnections, Limits
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.server_tls import open_server_context

ROOM_S = 5.0  # an event waits for so long until the daemon can take it
ANSWER_S = 30.0  # for the daemon's answer, which writes it to its database
DRAIN_S = 10.0  # after SIGTERM, for the answers to events that were sent on
FLUSH_S = 0.05  # for an answer to leave through TLS


class _NotHere:
    """The protocol of connections that ask for another path: they are closed."""

    def connection_made(self, transport: Any) -> None:
        transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        transport.close()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None  # whatever comes afterwards


class EventDoor(asyncio.Protocol):
    """The connection to the daemon, and the admission of all that come from BMCs."""

    def __init__(self) -> None:
        self._bars = Bars(lambda: asyncio.get_running_loop().time())
        self._reader = FrameReader()
        self._transport: Any = None
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._number = 0
        self._draining = False
        self._room = asyncio.Semaphore(OUTSTANDING_MAX)
        self._writable = asyncio.Event()
        self._writable.set()
        self.start: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    # the side of the BMCs

    async def deliver(self, name: str, body: bytes) -> int:
        """Have the daemon take an event; 503 if it cannot in time, which it learns of."""
        if self._draining:
            return self._drop(name)
        try:
            async with asyncio.timeout(ROOM_S):
                await self._writable.wait()
                await self._room.acquire()
        except TimeoutError:
            return self._drop(name)
        try:
            return await self._ask(name, body)
        finally:
            self._room.release()

    async def _ask(self, name: str, body: bytes) -> int:
        self._number = (self._number + 1) % 2**32
        number = self._number
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self.send(Frame(FrameKind.EVENT, number, name=name.encode("ascii"), body=body))
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return self._drop(name)
        finally:
            del self._answers[number]

    def _drop(self, name: str) -> int:
        self.send(Frame(FrameKind.DROPPED, name=name.encode("ascii")))
        return HTTPStatus.SERVICE_UNAVAILABLE

    def bars(self, peer: str) -> bool:
        """Return whether an address is refused for a while."""
        return self._bars.bars(peer)

    def count(self, peer: str, status: int) -> None:
        """Count an answer, which may bar the address."""
        self._bars.count(peer, status)

    def doubt(self, name: str) -> None:
        """An event was not taken: the daemon learns of it."""
        self._drop(name)

    # the side of the daemon

    def send(self, frame: Frame) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame.encode())

    async def drain(self) -> None:
        """Take no more; return when no event is without its answer, after `DRAIN_S` at most."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while self._answers:
                    await asyncio.wait(list(self._answers.values()))
                    await asyncio.sleep(FLUSH_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Settings at first, then answers."""
        for frame in self._reader.feed(data):
            if frame.kind is FrameKind.START and not self.start.done():
                self.start.set_result(frame)
            elif frame.kind is FrameKind.ANSWER:
                answer = self._answers.get(frame.number)
                if answer is not None and not answer.done():
                    answer.set_result(frame.status)

    def pause_writing(self) -> None:
        """The daemon reads slower than events come."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The daemon reads again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The daemon has ended, or wants this to end."""
        self._writable.set()
        self.ended.set()


async def run(link: socket.socket) -> int:
    """Take events until the daemon ends, or SIGTERM; return the exit status."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is the daemon's, which ends this
    _, door = await loop.create_unix_connection(EventDoor, sock=link)
    ending = asyncio.create_task(door.ended.wait())
    await asyncio.wait((door.start, ending), return_when=asyncio.FIRST_COMPLETED)
    if not door.start.done():
        return 1
    frame = door.start.result()
    chosen = json.loads(frame.body.partition(b"\n")[0])
    tls = open_server_context(frame.body.partition(b"\n")[2])
    tls.num_tickets = 0  # no sender resumes a session
    limits = Limits(**chosen["limits"])

    def make_connection() -> EventConnection:
        return EventConnection(door, kept, _NotHere, limits.idle_s)

    listener = BoundedListener("events", make_connection, limits, tls)
    # half of the places are for those who come anew
    most = min(chosen["kept_max"], listener.limits.connections_max // 2)
    kept = KeptConnections(most, listener.prove)
    try:
        await listener.start(chosen["host"], chosen["port"])
    except OSError as error:
        why = (error.strerror or str(error)).encode()
        door.send(Frame(FrameKind.LISTENS, status=1, body=why))
        await asyncio.wait((ending,), timeout=ROOM_S)
        return 1
    door.send(Frame(FrameKind.LISTENS, listener.port))
    ends = (ending, asyncio.create_task(stopped.wait()))
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if not door.ended.is_set():
        await door.drain()
    await listener.stop()
    kept.close()
    return 0


def main() -> int:
    """Run with the number of the inherited socket as the only argument."""
    undumpable.forbid_core_files()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    sys.exit(main())
