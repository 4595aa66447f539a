"""The receiver of machines' system logs: who may send, and the process that takes what they send.

A sender over TLS proves a node's name by its certificate; one over UDP is known by its management
address alone. A sender that is no node of the inventory is refused and counted. What they send is
read by a process of its own (`logs_process.py`), so that no flood of it holds up a decision: the
daemon tells it who may send, and adds up what it counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from provisioner.adapters.agent.tls import open_authority
from provisioner.daemon.event_connections import Frame, FrameKind
from provisioner.daemon.event_supervisor import Link, ProcessSupervisor
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, State
from provisioner.ports import Clock, DamagedRow, StoreFailed
from provisioner.runtime import permit as process_scope
from provisioner.runtime.admission import name_address
from provisioner.runtime.bounded_listener import HANDSHAKE_S, Limits
from provisioner.runtime.event_loop import end_tasks
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile, Sealing
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

MODULE = "provisioner.integrations.syslog_intake.logs_process"
WHAT = "process that takes logs"
PER_PEER_MAX = 8  # connections of one address: rsyslog opens one for each of its actions
IDLE_S = 3600.0  # a quiet switch is no failure
FIRST_S = 2 * HANDSHAKE_S  # for its certificate, and for a look whether its node came since
DIRECTORY_S = 30.0  # how late a node that left is known, and over UDP a switch that came
AGAIN_S = 1.0  # between two looks for a sender that is not known yet
OUTCOMES = frozenset({"stored", "over_limit", "malformed", "unknown_sender", "lost"})
COUNT_MAX = 10**9  # of one report
_CERTIFICATE = re.compile(
    r"-----BEGIN [A-Z ]*CERTIFICATE-----[^-]*-----END [A-Z ]*CERTIFICATE-----"
)


class LogSupervisor(ProcessSupervisor):
    """The process for logs. `ports` are where it listens, the same after each start."""

    def __init__(
        self, data: Path, pem: bytes, authorities: str, settings: Settings, clock: Clock
    ) -> None:
        super().__init__(MODULE, WHAT, lambda: _LogLink(self._ask))
        self._wanted = asyncio.Event()
        self._asked = 0
        self._pem = pem
        self._clock = clock
        self._senders: Mapping[str, object] = {"names": [], "switches": {}}
        limits = Limits(settings.log_intake_connections_max, PER_PEER_MAX, IDLE_S, first_s=FIRST_S)
        self.ports: dict[str, int] = {}
        self._chosen = {
            "data": str(data.absolute()),
            "host": settings.log_intake_host,
            "tls": settings.log_intake_port,
            "udp": settings.log_intake_udp_port,
            "authorities": authorities,
            "limits": asdict(limits),
            "bytes_per_s": settings.log_bytes_per_s,
            "bytes_max": settings.log_bytes_max,
            "lines_per_minute": settings.log_lines_per_minute,
            "days": settings.log_days,
        }

    def write_start(self) -> Sequence[Frame]:
        """Return its settings, its key, and who may send."""
        body = json.dumps(self._chosen | self.ports).encode() + b"\n" + self._pem
        return (self._write_senders(self._senders), Frame(FrameKind.START, body=body))

    def _write_senders(self, senders: Mapping[str, object], number: int = 0) -> Frame:
        speed = self._clock.speed if isinstance(self._clock, WallClock) else 1.0
        time: dict[str, object] = {"now": self._clock.now(), "speed": speed}
        return Frame(FrameKind.SENDERS, number, body=json.dumps({**time, **senders}).encode())

    def note_listening(self, frame: Frame) -> None:
        try:
            self.ports = read_ports(frame.body)
        except ValueError as error:
            raise OSError(f"it says no ports: {error}") from None

    def note_end(self) -> None:
        """Its numbers of questions begin anew."""
        self._asked = 0

    def _ask(self, number: int) -> None:
        self._asked = number
        self._wanted.set()

    def tell_senders(self, nodes: Sequence[Node], number: int = 0) -> None:
        """Tell it the time, and who may send; `number`: of the question that this answers."""
        known = [n for n in nodes if n.state is not State.RETIRED]
        given: Mapping[str, object] = {
            "names": sorted(n.id for n in known),
            "switches": list_switches(known),
        }
        changed: Mapping[str, object] = {} if given == self._senders else given
        self._senders = given
        if self.link is not None:
            self.link.send(self._write_senders(changed, number))

    async def follow(self, store: SqlStore) -> None:
        """Read who may send, every while and when it asks, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DIRECTORY_S):
                    await self._wanted.wait()
            self._wanted.clear()
            number = self._asked
            try:
                self.tell_senders(await store.nodes.list(), number)
            except (DamagedRow, StoreFailed) as error:  # the one before stays in force
                log.warning("the nodes that may send logs cannot be read: %s", error)
            await asyncio.sleep(AGAIN_S)


class _LogLink(Link):
    """Takes counts and questions."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        super().__init__(WHAT)
        self._ask = ask

    def take(self, frame: Frame) -> None:
        """Add up what was counted; note that a sender is not known."""
        if frame.kind is FrameKind.LOOK:
            self._ask(frame.number)
        elif frame.kind is FrameKind.COUNTS:
            counter: Counter[str] = process_scope.get_scope().log_messages
            counter.update(read_counts(frame.body))


def read_counts(body: bytes) -> dict[str, int]:
    """Return numbers of messages by their outcome. Raises ValueError."""
    given = _read_object(body)
    counts: dict[str, int] = {}
    for outcome in OUTCOMES & set(given):
        count = given[outcome]
        if type(count) is not int or not 0 <= count <= COUNT_MAX:
            raise ValueError("a count is none")
        counts[outcome] = count
    return counts


def read_ports(body: bytes) -> dict[str, int]:
    """Return the ports that are open. Raises ValueError."""
    given = _read_object(body)
    ports: dict[str, int] = {}
    for name in {"tls", "udp"} & set(given):
        port = given[name]
        if type(port) is not int or not 0 < port < 65536:
            raise ValueError("a port is none")
        ports[name] = port
    return ports


def _read_object(body: bytes) -> dict[str, object]:
    try:
        given = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(given, dict):
        raise ValueError("it is no object")
    return given


@asynccontextmanager
async def open_log_intake(
    data: Path, store: SqlStore, clock: Clock, settings: Settings, keys: Sealing
) -> AsyncIterator[Mapping[str, int]]:
    """Receive logs as the settings say; yield the ports that are open. Raises InputError."""
    check_settings(settings)
    if settings.log_intake_port is None and settings.log_intake_udp_port is None:
        yield {}
        return
    authority = open_authority(data, SealedFile(data, keys))
    pem = authority.make_server_pem((settings.log_intake_host,))
    supervisor = LogSupervisor(data, pem, _read_authorities(settings), settings, clock)
    supervisor.tell_senders(await store.nodes.list())
    following: asyncio.Task[None] | None = None
    try:
        try:
            await supervisor.start()
        except OSError as error:
            raise _cannot_listen(settings, str(error)) from None
        following = asyncio.create_task(supervisor.follow(store), name="senders of logs")
        following.add_done_callback(_report_end)
        log.info("logs are received at %s: %s", settings.log_intake_host, supervisor.ports)
        yield supervisor.ports
    finally:
        await end_tasks(following)
        await supervisor.stop()


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


def list_switches(nodes: Sequence[Node]) -> dict[str, str]:
    """Return the switches by management address; one that several have is no one's."""
    switches = [n for n in nodes if n.kind is NodeKind.SWITCH and n.address]
    pairs = [(name_address(n.address), n.id) for n in switches]
    uses = Counter(address for address, _ in pairs)
    return {address: name for address, name in pairs if uses[address] == 1}


def _is_everywhere(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _read_authorities(settings: Settings) -> str:
    """Return the certificates of the authorities that sign senders'. Raises InputError."""
    file = settings.log_intake_ca_file
    if settings.log_intake_port is None:
        return ""
    try:
        text = "\n".join(_CERTIFICATE.findall(Path(file).read_text(encoding="utf-8")))
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (OSError, ValueError, ssl.SSLError) as error:
        problem = f"it holds no certificate ({error})"
        remedy = "Name a PEM file with the authorities of the senders' certificates."
        raise InputError("log_intake_ca_file", file, problem, remedy) from None
    return text


def _cannot_listen(settings: Settings, told: str) -> InputError:
    """Return the error for what the process told of its ports, or for a start that failed."""
    name, _, why = told.rpartition(": ")
    if name not in ("log_intake_port", "log_intake_udp_port"):
        name = "log_intake_port"
    place = f"{settings.log_intake_host}:{getattr(settings, name)}"
    remedy = "Name a free port at an address of this machine."
    return InputError(name, place, f"cannot listen there ({why})", remedy)


def _report_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the directory of log senders has ended", exc_info=task.exception())
