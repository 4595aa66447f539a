"""The process that takes machines' logs: TLS, framing, meters, parsing, scrubbing and their files.

The daemon starts it with one end of a pair of sockets (`log_intake.py`), and sends it addresses,
limits, the key, and who may send. It sends back how many messages it took, and asks to look again
for a sender that is not known. A sender that sends more than its bytes is read more slowly, so that
what it has waits with it; datagrams beyond are dropped. A message is data and triggers no action.

The rule that a reader would otherwise break: bytes are counted before anything looks into them, and
a message of a node whose minute is full is not parsed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from provisioner.adapters.machine_logs import MachineLogs, MessageMeter, encode
from provisioner.daemon.event_connections import Frame, FrameKind
from provisioner.daemon.event_connections import FrameReader as LinkReader
from provisioner.integrations.syslog_intake.messages import (
    FrameReader,
    NotASyslogStream,
    read_message,
)
from provisioner.planning.watch.log_text import scrub_text
from provisioner.runtime import undumpable
from provisioner.runtime.admission import name_address
from provisioner.runtime.bounded_listener import BoundedListener, Limits, prove
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.server_tls import open_server_context

log = logging.getLogger(__name__)

IDLE_S = 3600.0  # a quiet switch is no failure
WRITE_S = 1.0  # how late a message is on disk, and counted
LOOK_S = 10.0  # for the daemon's answer to a question for a sender that is not known
PRUNE_S = 3600.0
DAY_S = 86400.0
PENDING_MAX = 20_000  # messages in memory, of all senders
REPORT_S = 60.0  # refused senders are logged at most this often
BURST_S = 8.0  # a sender may send the bytes of so many seconds at once
TOTAL_BYTES_PER_S = 4 * 1024 * 1024  # of all senders together: some 13,000 messages
# What a message, and each piece of a stream, costs beside its bytes: 256 KiB of messages of two
# bytes alone took this process half a second.
EACH_BYTES = 64


class ByteMeter:
    """The bytes of one sender: so many a second, and those of `BURST_S` at once."""

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._left = per_s * BURST_S
        self._at = now

    def charge(self, count: int, now: float) -> float:
        """Take bytes that came; return the seconds until more of them may be read."""
        most = self._per_s * BURST_S
        self._left = min(most, self._left + (now - self._at) * self._per_s) - count
        self._at = now
        return max(0.0, -self._left / self._per_s)


class LogIntake:
    """Takes messages of proved senders, bounds them, and stores them in batches."""

    def __init__(self, chosen: Mapping[str, Any], book: MachineLogs, tell: Callable[[Frame], None]):
        self._chosen = chosen
        self._book = book
        self._tell = tell
        self._time = (0.0, 0.0, 1.0)  # the daemon's, when it said so by our clock, and its speed
        self._names: frozenset[str] = frozenset()
        self._switches: Mapping[str, str] = {}  # management address -> name of a switch
        self._meters: dict[str, MessageMeter] = {}
        self._bytes: dict[str, ByteMeter] = {}
        self._total = ByteMeter(TOTAL_BYTES_PER_S, time.monotonic())
        self._pending: dict[str, list[str]] = {}
        self._pending_count = 0
        self._counts: Counter[str] = Counter()
        self._reported_at = -REPORT_S
        self._asked = 0
        self._answered = 0
        self._news = asyncio.Event()

    def learn(self, frame: Frame) -> None:
        """Take the daemon's time, and who may send where that is another than before."""
        given = json.loads(frame.body)
        self._time = (given["now"], time.monotonic(), given["speed"])
        if "names" in given:
            self._learn_names(given)
        self._answered = max(self._answered, frame.number)
        self._news.set()
        self._news = asyncio.Event()

    def _learn_names(self, given: Mapping[str, Any]) -> None:
        self._names = frozenset(given["names"])
        self._switches = given["switches"]
        self._meters = {name: m for name, m in self._meters.items() if name in self._names}
        self._bytes = {name: m for name, m in self._bytes.items() if name in self._names}

    def now(self) -> float:
        """Return the time by the daemon's clock, which may be a simulated site's."""
        told, at, speed = self._time
        return told + (time.monotonic() - at) * speed

    async def look_again(self) -> None:
        """Have the daemon look for nodes that came since; return when it did, or does not."""
        self._asked += 1
        mine = self._asked
        self._tell(Frame(FrameKind.LOOK, mine))
        try:
            async with asyncio.timeout(LOOK_S):
                while self._answered < mine:
                    await self._news.wait()
        except TimeoutError:
            pass  # it is refused now, and comes again

    def find_by_certificate(self, certificate: Mapping[str, Any]) -> str:
        """Return the node that a verified certificate names; "" if not exactly one."""
        named = {word for kind, word in certificate.get("subjectAltName", ()) if kind == "DNS"}
        for part in certificate.get("subject", ()):
            named |= {word for kind, word in part if kind == "commonName"}
        known = named & self._names
        return known.pop() if len(known) == 1 else ""

    def find_by_address(self, address: str) -> str:
        """Return the switch with a management address; "" if not exactly one has it."""
        return self._switches.get(address) or self._switches.get(name_address(address), "")

    def refuse(self, peer: str, why: str) -> None:
        """Count a sender that is no node, and log some of them."""
        self._counts["unknown_sender"] += 1
        now = time.monotonic()
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            log.warning("a sender of logs at %s is refused: %s", peer, why)

    def charge(self, node: str, count: int) -> float:
        """Count the bytes of a node; return the seconds until more of them may be read."""
        now = time.monotonic()
        meter = self._bytes.get(node)
        if meter is None:
            meter = self._bytes[node] = ByteMeter(self._chosen["bytes_per_s"], now)
        return max(meter.charge(count, now), self._total.charge(count, now))

    def take(self, node: str, frame: bytes) -> None:
        """Take one message of a node, if it is one and within the bounds."""
        if node not in self._names:  # it was retired while its connection was open
            self._counts["unknown_sender"] += 1
            return
        meter = self._meters.get(node)
        if meter is None:
            meter = self._meters[node] = MessageMeter(self._chosen["lines_per_minute"])
        now = self.now()
        if self._pending_count >= PENDING_MAX or meter.skips(now):
            self._counts["over_limit"] += 1
            return
        message = read_message(frame)
        if message is None:
            self._counts["malformed"] += 1
            return
        clean = message.model_copy(update={"text": scrub_text(message.text)[0]})
        rows = meter.admit(encode(clean), now)
        self._pending.setdefault(node, []).extend(rows)
        self._pending_count += len(rows)
        self._counts["stored"] += 1

    def note_dropped(self) -> None:
        """Count a datagram beyond its sender's bytes."""
        self._counts["over_limit"] += 1

    def note_broken(self, node: str, error: NotASyslogStream) -> None:
        """Count a stream that was ended because it is no syslog."""
        self._counts["malformed"] += 1
        log.warning("the log stream of %s is ended: %s", node, error)

    async def run(self) -> None:
        """Store and count messages until cancelled."""
        prune_at = 0.0
        while True:
            await asyncio.sleep(WRITE_S)
            await self.store_pending()
            if time.monotonic() - prune_at >= PRUNE_S:
                prune_at = time.monotonic()
                await self._book.prune(self.now() - self._chosen["days"] * DAY_S)

    async def store_pending(self) -> None:
        """Write the messages in memory to their files, and tell the daemon of their number."""
        batches = self._pending
        self._pending = {}
        self._pending_count = 0
        for node, rows in batches.items():
            try:
                await self._book.append(node, rows, self.now())
            except OSError as error:  # a full disk ends no decision
                self._counts["lost"] += len(rows)
                log.warning("%d messages of %s are lost: %s", len(rows), node, error)
        if self._counts:
            self._tell(Frame(FrameKind.COUNTS, body=json.dumps(self._counts).encode()))
            self._counts = Counter()


class LogStream(asyncio.Protocol):
    """One connection over TLS. Its certificate was verified in the handshake."""

    def __init__(self, intake: LogIntake) -> None:
        self._intake = intake
        self._reader = FrameReader()
        self._transport: Any = None  # of uvloop too, which has classes of its own
        self._node = ""
        self._idle: asyncio.TimerHandle | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._admitting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out who sends."""
        self._transport = transport
        certificate = transport.get_extra_info("peercert") or {}
        self._node = self._intake.find_by_certificate(certificate)
        if self._node:
            self._begin()
            return
        self._transport.pause_reading()  # a sender that is refused loses what it has sent
        self._admitting = asyncio.create_task(self._admit(certificate))

    async def _admit(self, certificate: Mapping[str, Any]) -> None:
        await self._intake.look_again()
        self._node = self._intake.find_by_certificate(certificate)
        if self._node:
            self._transport.resume_reading()
            self._begin()
            return
        peer = str((self._transport.get_extra_info("peername") or ("?",))[0])
        self._intake.refuse(peer, "its certificate names no node of the inventory, or several")
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count the bytes, then cut them into messages."""
        if not self._node or self._transport is None:
            return
        self._wait()
        self._pay(len(data) + EACH_BYTES)
        try:
            frames = self._reader.feed(data)
        except NotASyslogStream as error:
            self._intake.note_broken(self._node, error)
            self._node = ""
            self._transport.abort()
            return
        self._pay(EACH_BYTES * len(frames))
        for frame in frames:
            self._intake.take(self._node, frame)

    def _begin(self) -> None:
        """Read what it sends, once its node has paid for what came on its other connections."""
        prove(self)
        self._wait()
        self._pay(0)

    def _pay(self, count: int) -> None:
        """Take bytes from what its node has; without any left, read on when it has some again."""
        wait_s = self._intake.charge(self._node, count)
        if wait_s > 0.0 and self._paused is None:
            self._transport.pause_reading()
            self._paused = asyncio.get_running_loop().call_later(wait_s, self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        for timer in (self._idle, self._paused, self._admitting):
            if timer is not None:
                timer.cancel()

    def force_close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _go_on(self) -> None:
        self._paused = None
        wait_s = self._intake.charge(self._node, 0)  # its other connections may have used more
        if wait_s > 0.0:
            self._paused = asyncio.get_running_loop().call_later(wait_s, self._go_on)
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.force_close)


class Datagrams(asyncio.DatagramProtocol):
    """Messages over UDP: one in each datagram."""

    def __init__(self, intake: LogIntake) -> None:
        self._intake = intake

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Count the bytes; take the message if the sender has some left."""
        node = self._intake.find_by_address(str(addr[0]))
        if not node:
            self._intake.refuse(str(addr[0]), "no switch of the inventory has this address")
        elif self._intake.charge(node, len(data) + EACH_BYTES) > 0.0:
            self._intake.note_dropped()
        else:
            self._intake.take(node, data)


class LogDoor(asyncio.Protocol):
    """The connection to the daemon."""

    def __init__(self) -> None:
        self._reader = LinkReader()
        self._transport: Any = None
        self.learn: Callable[[Frame], None] = self._keep
        self.senders: Frame | None = None
        self.start: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    def _keep(self, frame: Frame) -> None:
        self.senders = frame

    def send(self, frame: Frame) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame.encode())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Settings at first, then who may send."""
        for frame in self._reader.feed(data):
            if frame.kind is FrameKind.START and not self.start.done():
                self.start.set_result(frame)
            elif frame.kind is FrameKind.SENDERS:
                self.learn(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """The daemon has ended, or wants this to end."""
        self.ended.set()


def _open_tls(pem: bytes, authorities: str) -> ssl.SSLContext:
    """Return TLS for our side that takes no sender without a certificate of the authorities."""
    context = open_server_context(pem)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authorities)
    return context


async def _listen(
    chosen: Mapping[str, Any], pem: bytes, intake: LogIntake
) -> tuple[BoundedListener | None, asyncio.DatagramTransport | None, dict[str, int]]:
    """Return what listens, and its ports. Raises OSError, whose file is the setting."""
    loop = asyncio.get_running_loop()
    listener: BoundedListener | None = None
    datagrams: asyncio.DatagramTransport | None = None
    ports: dict[str, int] = {}
    setting = "log_intake_port"
    try:
        if chosen["tls"] is not None:
            tls = _open_tls(pem, chosen["authorities"])
            limits = Limits(**chosen["limits"])
            listener = BoundedListener("logs", partial(LogStream, intake), limits, tls)
            await listener.start(chosen["host"], chosen["tls"])
            ports["tls"] = listener.port
        setting = "log_intake_udp_port"
        if chosen["udp"] is not None:
            datagrams, _ = await loop.create_datagram_endpoint(
                lambda: Datagrams(intake), local_addr=(chosen["host"], chosen["udp"])
            )
            ports["udp"] = datagrams.get_extra_info("sockname")[1]
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), setting) from None
    return listener, datagrams, ports


async def run(link: socket.socket) -> int:
    """Take logs until the daemon ends, or SIGTERM; return the exit status."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is the daemon's, which ends this
    _, door = await loop.create_unix_connection(LogDoor, sock=link)
    ending = asyncio.create_task(door.ended.wait())
    await asyncio.wait((door.start, ending), return_when=asyncio.FIRST_COMPLETED)
    if not door.start.done():
        return 1
    settings, _, pem = door.start.result().body.partition(b"\n")
    chosen = json.loads(settings)
    book = MachineLogs(Path(chosen["data"]), chosen["bytes_max"])
    intake = LogIntake(chosen, book, door.send)
    if door.senders is not None:
        intake.learn(door.senders)
    door.learn = intake.learn
    try:
        listener, datagrams, ports = await _listen(chosen, pem, intake)
    except OSError as error:
        body = f"{error.filename}: {error.strerror}".encode()
        door.send(Frame(FrameKind.LISTENS, status=1, body=body))
        await asyncio.wait((ending,), timeout=LOOK_S)
        return 1
    door.send(Frame(FrameKind.LISTENS, body=json.dumps(ports).encode()))
    running = asyncio.create_task(intake.run())
    ends = (ending, running, asyncio.create_task(stopped.wait()))
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    failed = running.done()
    running.cancel()
    if listener is not None:
        await listener.stop()
    if datagrams is not None:
        datagrams.close()
    await asyncio.gather(running, return_exceptions=True)
    await intake.store_pending()
    return int(failed)


def main() -> int:
    """Run with the number of the inherited socket as the only argument."""
    undumpable.forbid_core_files()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    sys.exit(main())
