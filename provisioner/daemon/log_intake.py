"""The receiver of machines' system logs: syslog over TLS, and over UDP from switches.

A sender over TLS proves a node's name by its certificate; one over UDP is known by its management
address alone. A sender that is no node of the inventory is refused and counted. A message is data
and triggers no action.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from provisioner.adapters.agent.tls import open_authority
from provisioner.adapters.machine_logs import MachineLogs, MessageMeter, encode
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.repair.evidence_bundle import scrub_text
from provisioner.planning.watch.syslog_reader import FrameReader, NotASyslogStream, read_message
from provisioner.ports import Clock, DamagedRow, StoreFailed
from provisioner.runtime import permit as process_scope
from provisioner.runtime.bounded_listener import BoundedListener, Limits
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile, Sealing
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

PER_PEER_MAX = 8  # connections of one address: rsyslog opens one for each of its actions
IDLE_S = 3600.0  # a quiet switch is no failure
WRITE_S = 1.0  # how late a message is on disk
DIRECTORY_S = 30.0  # how late a node that left is known, and over UDP a switch that came
AGAIN_S = 1.0  # between two looks for a sender that is not known yet
PRUNE_S = 3600.0
DAY_S = 86400.0
PENDING_MAX = 20_000  # messages in memory, of all senders
REPORT_S = 60.0  # refused senders are logged at most this often


class LogIntake:
    """Takes messages of proved senders, bounds them, and stores them in batches."""

    def __init__(self, store: SqlStore, clock: Clock, settings: Settings, book: MachineLogs):
        self._store = store
        self._clock = clock
        self._settings = settings
        self._book = book
        self._names: frozenset[str] = frozenset()
        self._switches: Mapping[str, str] = {}  # management address -> name of a switch
        self._meters: dict[str, MessageMeter] = {}
        self._pending: dict[str, list[str]] = {}
        self._pending_count = 0
        self._reported_at = -REPORT_S
        self._looking = asyncio.Lock()
        self._looked_at = -DIRECTORY_S

    async def look_again(self) -> None:
        """Read the nodes that may send anew: one that is not known may have come since."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._looking:
            if self._looked_at > asked_at:
                return  # by a look for somebody else
            await asyncio.sleep(self._looked_at + AGAIN_S - loop.time())
            self._looked_at = loop.time()
            try:
                await self.read_directory()
            except (DamagedRow, StoreFailed) as error:  # the one before stays in force
                log.warning("the nodes that may send logs cannot be read: %s", error)

    async def read_directory(self) -> None:
        """Read the nodes that may send."""
        nodes = [n for n in await self._store.nodes.list() if n.state is not State.RETIRED]
        self._names = frozenset(node.id for node in nodes)
        self._switches = list_switches(nodes)
        self._meters = {name: m for name, m in self._meters.items() if name in self._names}

    def find_by_certificate(self, certificate: Mapping[str, Any]) -> str:
        """Return the node that a verified certificate names; "" if not exactly one."""
        named = {word for kind, word in certificate.get("subjectAltName", ()) if kind == "DNS"}
        for part in certificate.get("subject", ()):
            named |= {word for kind, word in part if kind == "commonName"}
        known = named & self._names
        return known.pop() if len(known) == 1 else ""

    def find_by_address(self, address: str) -> str:
        """Return the switch with a management address; "" if not exactly one has it."""
        return self._switches.get(_normal(address), "")

    def refuse(self, peer: str, why: str) -> None:
        """Count a sender that is no node, and log some of them."""
        self._count("unknown_sender")
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            log.warning("a sender of logs at %s is refused: %s", peer, why)

    def take(self, node: str, frame: bytes) -> None:
        """Take one message of a node, if it is one and within the bounds."""
        if node not in self._names:  # it was retired while its connection was open
            self._count("unknown_sender")
            return
        message = read_message(frame)
        if message is None:
            self._count("malformed")
            return
        clean = message.model_copy(update={"text": scrub_text(message.text)[0]})
        meter = self._meters.get(node)
        if meter is None:
            meter = self._meters[node] = MessageMeter(self._settings.log_lines_per_minute)
        rows = meter.admit(encode(clean), self._clock.now())
        if not rows or self._pending_count >= PENDING_MAX:
            self._count("over_limit")
            return
        self._pending.setdefault(node, []).extend(rows)
        self._pending_count += len(rows)
        self._count("stored")

    def note_broken(self, node: str, error: NotASyslogStream) -> None:
        """Count a stream that was ended because it is no syslog."""
        self._count("malformed")
        log.warning("the log stream of %s is ended: %s", node, error)

    async def run(self) -> None:
        """Store messages, and read the directory anew, until cancelled."""
        prune_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WRITE_S)
            await self.store_pending()
            if loop.time() - self._looked_at >= DIRECTORY_S:
                await self.look_again()
            if loop.time() - prune_at >= PRUNE_S:
                prune_at = loop.time()
                await self._book.prune(self._clock.now() - self._settings.log_days * DAY_S)

    async def store_pending(self) -> None:
        """Write the messages in memory to their files."""
        batches = self._pending
        self._pending = {}
        self._pending_count = 0
        for node, rows in batches.items():
            try:
                await self._book.append(node, rows, self._clock.now())
            except OSError as error:  # a full disk ends no decision
                self._count("lost", len(rows))
                log.warning("%d messages of %s are lost: %s", len(rows), node, error)

    def _count(self, outcome: str, by: int = 1) -> None:
        counter: Counter[str] = process_scope.get_scope().log_messages
        counter[outcome] += by


class _Stream(asyncio.Protocol):
    """One connection over TLS. Its certificate was verified in the handshake."""

    def __init__(self, intake: LogIntake) -> None:
        self._intake = intake
        self._reader = FrameReader()
        self._transport: Any = None  # of uvloop too, which has classes of its own
        self._node = ""
        self._idle: asyncio.TimerHandle | None = None
        self._admitting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        certificate = transport.get_extra_info("peercert") or {}
        self._node = self._intake.find_by_certificate(certificate)
        if self._node:
            self._wait()
            return
        self._transport.pause_reading()  # a sender that is refused loses what it has sent
        self._admitting = asyncio.create_task(self._admit(certificate))

    async def _admit(self, certificate: Mapping[str, Any]) -> None:
        await self._intake.look_again()
        self._node = self._intake.find_by_certificate(certificate)
        if self._node:
            self._wait()
            self._transport.resume_reading()
            return
        peer = str((self._transport.get_extra_info("peername") or ("?",))[0])
        self._intake.refuse(peer, "its certificate names no node of the inventory, or several")
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._node or self._transport is None:
            return
        self._wait()
        try:
            frames = self._reader.feed(data)
        except NotASyslogStream as error:
            self._intake.note_broken(self._node, error)
            self._node = ""
            self._transport.abort()
            return
        for frame in frames:
            self._intake.take(self._node, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._admitting is not None:
            self._admitting.cancel()

    def force_close(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.force_close)


class _Datagrams(asyncio.DatagramProtocol):
    """Messages over UDP: one in each datagram."""

    def __init__(self, intake: LogIntake) -> None:
        self._intake = intake

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        node = self._intake.find_by_address(str(addr[0]))
        if node:
            self._intake.take(node, data)
        else:
            self._intake.refuse(str(addr[0]), "no switch of the inventory has this address")


@asynccontextmanager
async def open_log_intake(
    data: Path, store: SqlStore, clock: Clock, settings: Settings, keys: Sealing
) -> AsyncIterator[Mapping[str, int]]:
    """Receive logs as the settings say; yield the ports that are open. Raises InputError."""
    check_settings(settings)
    host = settings.log_intake_host
    intake = LogIntake(store, clock, settings, MachineLogs(data, settings.log_bytes_max))
    ports: dict[str, int] = {}
    listener: BoundedListener | None = None
    datagrams: asyncio.DatagramTransport | None = None
    running: asyncio.Task[None] | None = None
    try:
        if settings.log_intake_port is not None:
            limits = Limits(settings.log_intake_connections_max, PER_PEER_MAX, IDLE_S)
            tls = _open_tls(data, settings, keys)
            listener = BoundedListener("logs", lambda: _Stream(intake), limits, tls)
            await _bound(
                settings, "log_intake_port", listener.start(host, settings.log_intake_port)
            )
            ports["tls"] = listener.port
        if settings.log_intake_udp_port is not None:
            place = (host, settings.log_intake_udp_port)
            opening = asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(intake), local_addr=place
            )
            datagrams, _ = await _bound(settings, "log_intake_udp_port", opening)
            ports["udp"] = datagrams.get_extra_info("sockname")[1]
        if ports:
            await intake.read_directory()
            running = asyncio.create_task(intake.run(), name="log intake")
            running.add_done_callback(_report_end)
            log.info("logs are received at %s: %s", host, ports)
        yield ports
    finally:
        if listener is not None:
            await listener.stop()
        if datagrams is not None:
            datagrams.close()
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await intake.store_pending()


def check_settings(settings: Settings) -> None:
    """Raise InputError for settings that would let strangers in."""
    if settings.log_intake_port is not None and not settings.log_intake_ca_file:
        problem = "senders of logs could not be proved"
        remedy = "Name the PEM file of the authority that signs their certificates."
        raise InputError("log_intake_ca_file", "", problem, remedy)
    if settings.log_intake_udp_port is not None and _is_everywhere(settings.log_intake_host):
        problem = "syslog over UDP would be received on every network"
        remedy = "Name the daemon's address on the management network."
        raise InputError("log_intake_host", settings.log_intake_host, problem, remedy)


def list_switches(nodes: list[Node]) -> dict[str, str]:
    """Return the switches by management address; one that several have is no one's."""
    pairs = [(_normal(n.address), n.id) for n in nodes if n.kind is NodeKind.SWITCH and n.address]
    uses = Counter(address for address, _ in pairs)
    return {address: name for address, name in pairs if uses[address] == 1}


def _normal(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _is_everywhere(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _open_tls(data: Path, settings: Settings, keys: Sealing) -> ssl.SSLContext:
    """Return TLS for our side that takes no sender without a certificate of the authorities."""
    context = open_authority(data, SealedFile(data, keys)).server_context(
        (settings.log_intake_host,)
    )
    context.verify_mode = ssl.CERT_REQUIRED
    file = settings.log_intake_ca_file
    try:
        context.load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        problem = f"it holds no certificate ({error})"
        remedy = "Name a PEM file with the authorities of the senders' certificates."
        raise InputError("log_intake_ca_file", file, problem, remedy) from None
    return context


async def _bound(settings: Settings, name: str, opening: Any) -> Any:
    try:
        return await opening
    except OSError as error:
        place = f"{settings.log_intake_host}:{getattr(settings, name)}"
        problem = f"cannot listen there ({error.strerror or error})"
        remedy = "Name a free port at an address of this machine."
        raise InputError(name, place, problem, remedy) from None


def _report_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the intake of logs has ended", exc_info=task.exception())
