"""System logs of machines: rsyslog sends them here as switches and hosts do, within bounds."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.adapters.machine_logs import FOLDER, MachineLogs, MessageMeter, encode
from provisioner.daemon import event_supervisor
from provisioner.daemon.data import open_data
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.integrations.syslog_intake.log_intake import (
    LogSupervisor,
    list_switches,
    open_log_intake,
)
from provisioner.integrations.syslog_intake.logs_process import BURST_S, ByteMeter
from provisioner.integrations.syslog_intake.messages import (
    FrameReader,
    NotASyslogStream,
    read_message,
)
from provisioner.model.input_error import InputError
from provisioner.model.integrations.audit_export import SyslogLine, SyslogMessage
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.watch.log_text import scrub_text
from provisioner.runtime import permit as process_scope
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

RSYSLOG = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin")
OPENSSL_DRIVER = tuple(Path("/usr/lib").glob("*/rsyslog/lmnsd_ossl.so"))
needs_rsyslog = pytest.mark.skipif(
    RSYSLOG is None or not OPENSSL_DRIVER,
    reason="rsyslog is not installed: apt-get install rsyslog rsyslog-openssl",
)
Result = TypeVar("Result")
LEAF = "su0-leaf0"
HOST = "su0-n00"
LIMIT_S = 20.0
KEPT_S = 2.5  # a sender that is not known waits for the next look, a second at most


def run(story: Coroutine[Any, Any, Result]) -> Result:
    """Run it in the daemon's own kind of event loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as loop:
        return loop.run(story)


# --- messages

# source: RFC 5424, 6.5; RFC 3164, 5.4; Cumulus Linux 5 and SONiC write by rsyslog with its
# RSYSLOG_TraditionalForwardFormat or RSYSLOG_ForwardFormat (their /etc/rsyslog.conf and templates)
MESSAGES: tuple[tuple[bytes, tuple[str, str, float, str, str]], ...] = (
    (
        b'<165>1 2003-10-11T22:14:15.003Z h evntslog - I [x@3 a="\\"]b"] \xef\xbb\xbfAn event',
        ("local4", "notice", 1065910455.003, "evntslog", "An event"),
    ),
    (
        b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - 'su root' failed",
        ("auth", "crit", 1065910455.003, "su", "'su root' failed"),
    ),
    (
        b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
        ("auth", "crit", 0.0, "su", "'su root' failed for lonvick on /dev/pts/8"),
    ),
    (
        b"<6>Nov 28 10:00:00 su0-leaf0 kernel: [ 1211.301] swp1s0: link down",
        ("kern", "info", 0.0, "kernel", "[ 1211.301] swp1s0: link down"),
    ),
    (
        b"<189>2026-11-28T10:00:00.100000+01:00 sonic orchagent[41]: :- doPortTask: up",
        ("local7", "notice", 1795856400.1, "orchagent", ":- doPortTask: up"),
    ),
    (b"<13>no header at all", ("user", "notice", 0.0, "", "no header at all")),
    (
        b"<13>1 2003-10-11T22:14:15.003Z h p - - [open data",
        ("user", "notice", 0.0, "", "1 2003-10-11T22:14:15.003Z h p - - [open data"),
    ),
    (b"<14>Oct 11 22:14:15 h p: \x1b[2J\x07red\xff", ("user", "info", 0.0, "p", "red\ufffd")),
)


@pytest.mark.parametrize(("frame", "fields"), MESSAGES)
def test_a_message_is_read_in_either_form(frame: bytes, fields: tuple[Any, ...]) -> None:
    message = read_message(frame)

    assert message is not None
    assert tuple(message.model_dump().values()) == fields


@pytest.mark.parametrize("frame", [b"", b"text", b"<192>x", b"<01>x", b"<-1>x", b"<13x", b" <13>x"])
def test_bytes_without_a_priority_are_no_message(frame: bytes) -> None:
    assert read_message(frame) is None


def test_a_stream_is_cut_by_counts_or_lines_however_it_arrives() -> None:
    stream = b"6 <1>a\nb<2>c\r\n\n5 <3>de<4>f\n"
    frames = [b"<1>a\nb", b"<2>c\r", b"<3>de", b"<4>f"]

    for step in (1, 3, len(stream)):
        reader = FrameReader()
        pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
        assert [f for piece in pieces for f in reader.feed(piece)] == frames, step


@pytest.mark.parametrize("stream", [b"GET / HTTP/1.1\r\n", b"99999 <1>", b"<" * 70_000])
def test_a_stream_that_is_no_syslog_is_ended(stream: bytes) -> None:
    with pytest.raises(NotASyslogStream):
        FrameReader().feed(stream)


def test_a_flood_is_counted_in_a_line_of_its_own(tmp_path: Path) -> None:
    meter = MessageMeter(2)
    row = encode(SyslogMessage(facility="kern", severity="err", text="x"))

    rows = [r for at in (0.0, 0.0, 0.0, 61.0) for r in meter.admit(row, at)]
    book = MachineLogs(tmp_path, 10**6)
    asyncio.run(book.append(LEAF, rows, 1.0))
    (file,) = (tmp_path / FOLDER).rglob("*.jsonl")
    with file.open("a") as day:
        day.write('[4, 2.0, "{}"]\n')
    texts = [line.text for line in asyncio.run(book.list_lines(LEAF, -1, 9))]

    skipped = "[1 lines were skipped: more than 2 in a minute]"
    assert texts == ["x", "x", skipped, "x", "a stored line is damaged"]


# --- senders


def test_an_address_that_two_switches_have_is_of_neither() -> None:
    nodes = [Node(id=f"s{n}", kind=NodeKind.SWITCH, address=a) for n, a in enumerate(ADDRESSES)]

    assert list_switches([*nodes, Node(id="h", kind=NodeKind.HOST, address="10.0.0.3")]) == {
        "10.0.0.2": "s2"
    }


ADDRESSES = ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"log_intake_port": 0}, "log_intake_ca_file"),
        ({"log_intake_port": 0, "log_intake_ca_file": "/dev/null"}, "log_intake_ca_file"),
        ({"log_intake_udp_port": 0, "log_intake_host": "0.0.0.0"}, "log_intake_host"),
    ],
)
def test_settings_that_let_strangers_in_are_refused(
    tmp_path: Path, changed: Mapping[str, Any], field: str
) -> None:
    async def main() -> None:
        async with (
            open_data(tmp_path, 0.0) as data,
            open_log_intake(tmp_path, data.store, WallClock(), Settings(**changed), data.master),
        ):
            pass

    with pytest.raises(InputError) as refused:
        run(main())
    assert str(refused.value).startswith(field)


class Site:
    """An intake on loopback with one switch and one host, and what it stored."""

    def __init__(self, folder: Path, ports: Mapping[str, int], store: SqlStore) -> None:
        self.folder = folder
        self.ports = ports
        self.store = store
        self.book = MachineLogs(folder / "data", 10**6)

    async def wait_for(self, node: str, text: str) -> SyslogLine:
        """Return the first message of a node with a text."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                lines = await self.book.list_lines(node, -1, 999)
                for line in lines:
                    if text in line.text:
                        return line
                await asyncio.sleep(0.05)


def make_sender(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a self-signed certificate of a sender and its key."""
    certificate, key = make_certificate(name, "127.0.0.1")
    files = (folder / f"{name}.pem", folder / f"{name}.key")
    for file, content in zip(files, (certificate, key), strict=True):
        file.write_bytes(content)
    return files


@asynccontextmanager
async def receiving(folder: Path, **settings: Any) -> AsyncIterator[Site]:
    (folder / "data").mkdir()
    trusted = b"".join(make_sender(folder, n)[0].read_bytes() for n in (LEAF, HOST, "stranger"))
    (folder / "senders.pem").write_bytes(trusted)
    make_sender(folder, "unsigned")
    given: dict[str, Any] = {"log_lines_per_minute": 500, **settings}
    chosen = Settings(
        log_intake_port=0,
        log_intake_udp_port=0,
        log_intake_ca_file=str(folder / "senders.pem"),
        **given,
    )
    scope = process_scope.get_scope()
    scope.log_messages = Counter()
    async with open_data(folder / "data", 0.0) as data:
        for node in (
            Node(id=LEAF, kind=NodeKind.SWITCH, address="127.0.0.1", state=State.RELEASED),
            Node(id=HOST, kind=NodeKind.HOST, address="127.0.0.1"),
        ):
            await data.store.nodes.add(node)
        async with open_log_intake(
            folder / "data", data.store, WallClock(), chosen, data.master
        ) as ports:
            yield Site(folder, ports, data.store)


CONFIG = """
global(workDirectory="{folder}" defaultNetstreamDriver="ossl"
  defaultNetstreamDriverCAFile="{folder}/data/{authority}"
  defaultNetstreamDriverCertFile="{folder}/{sender}.pem"
  defaultNetstreamDriverKeyFile="{folder}/{sender}.key")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log" RateLimit.Interval="0")
action(type="omfwd" target="127.0.0.1" port="{tls}" protocol="tcp" TCP_Framing="octet-counted"
  StreamDriverMode="1" StreamDriverAuthMode="x509/certvalid" template="RSYSLOG_ForwardFormat")
if $programname == "bgpd" then action(type="omfwd" target="127.0.0.1" port="{udp}" protocol="udp"
  template="RSYSLOG_SyslogProtocol23Format")
"""


@contextmanager
def rsyslog(site: Site, sender: str) -> Iterator[socket.socket]:
    """Run Debian's rsyslog as a machine's own, and yield the socket of its programs."""
    assert RSYSLOG is not None
    words = {"folder": site.folder, "sender": sender, "authority": CERTIFICATE_FILE, **site.ports}
    (site.folder / "own.conf").write_text(CONFIG.format(**words))
    paths = ("-f", str(site.folder / "own.conf"), "-i", str(site.folder / "pid"))
    process = subprocess.Popen([RSYSLOG, "-n", *paths])
    programs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        yield programs
    finally:
        programs.close()
        process.terminate()
        process.wait(LIMIT_S)


async def connect(programs: socket.socket, site: Site) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                programs.connect(str(site.folder / "log"))
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


@needs_rsyslog
def test_rsyslog_of_a_switch_sends_here_over_tls_and_udp(tmp_path: Path) -> None:
    async def main() -> tuple[SyslogLine, list[SyslogLine], int]:
        async with receiving(tmp_path) as site:
            with rsyslog(site, LEAF) as programs:
                await connect(programs, site)
                programs.send(b"<6>Nov 28 10:00:00 kernel: swp1s0: link down")
                programs.send(
                    b"<187>Nov 28 10:00:00 bgpd[9]: neighbor 10.0.0.1 Down, password=hunter2"
                )
                kernel = await site.wait_for(LEAF, "link down")
                await site.wait_for(LEAF, "neighbor")
                async with asyncio.timeout(LIMIT_S):
                    while True:
                        lines = await site.book.list_lines(LEAF, -1, 99)
                        both = [line for line in lines if line.program == "bgpd"]
                        if len(both) == 2:
                            break
                        await asyncio.sleep(0.05)
            return kernel, both, len(await site.book.list_lines(HOST, -1, 99))

    kernel, both, of_the_host = run(main())

    assert (kernel.facility, kernel.severity, kernel.program) == ("kern", "info", "kernel")
    assert kernel.sent_at > 0
    assert {(line.facility, line.severity) for line in both} == {("local7", "err")}
    assert not any("hunter2" in line.text for line in both)
    assert of_the_host == 0  # it has the switch's address, and UDP is for switches alone


async def send(site: Site, sender: str, content: bytes) -> bool:
    """Return whether the stream stays open after some messages."""
    context = ssl.create_default_context(cafile=str(site.folder / "data" / CERTIFICATE_FILE))
    context.load_cert_chain(*(site.folder / f"{sender}.{end}" for end in ("pem", "key")))
    reader, writer = await asyncio.open_connection("127.0.0.1", site.ports["tls"], ssl=context)
    try:
        writer.write(content)
        await asyncio.wait_for(reader.read(), KEPT_S)
    except TimeoutError:
        return True
    except OSError:
        return False
    finally:
        writer.transport.abort()
    return False


def test_a_certificate_of_no_node_is_refused_and_counted(tmp_path: Path) -> None:
    async def main() -> tuple[list[bool], Counter[str], list[str]]:
        async with receiving(tmp_path) as site:
            kept = [
                await send(site, HOST, b"<13>Nov 28 10:00:00 h a: b\n<999>x\n"),
                await send(site, "stranger", b"<13>x\n"),
                await send(site, "unsigned", b"<13>x\n"),
                await send(site, HOST, b"POST / HTTP/1.1\r\n"),
                await send(site, HOST, b"<13>f\n" * 600),
            ]
            await site.wait_for(HOST, "f")
            folders = sorted(f.name for f in (tmp_path / "data" / FOLDER).iterdir())
        return kept, process_scope.get_scope().log_messages, folders

    kept, counts, folders = run(main())

    assert kept == [True, False, False, False, True]
    assert counts == {"stored": 500, "unknown_sender": 1, "malformed": 2, "over_limit": 101}
    assert folders == [HOST]


def test_what_a_node_that_came_since_sends_first_is_stored(tmp_path: Path) -> None:
    async def main() -> tuple[bool, SyslogLine]:
        async with receiving(tmp_path) as site:
            await site.store.nodes.add(Node(id="stranger", kind=NodeKind.HOST))
            kept = await send(site, "stranger", b"<13>Nov 28 10:00:00 h a: first\n")
            return kept, await site.wait_for("stranger", "first")

    kept, line = run(main())

    assert kept
    assert line.text == "first"
    assert not process_scope.get_scope().log_messages["unknown_sender"]


# --- floods: the daemon does none of the work, and a sender waits with what it has

LINES = 4000
LINE = b"<13>Nov 28 10:00:00 h app: " + b"a word of this length " * 10 + b"\n"


@asynccontextmanager
async def stream(
    site: Site, sender: str, source: str = "127.0.0.1"
) -> AsyncIterator[asyncio.StreamWriter]:
    context = ssl.create_default_context(cafile=str(site.folder / "data" / CERTIFICATE_FILE))
    context.load_cert_chain(*(site.folder / f"{sender}.{end}" for end in ("pem", "key")))
    _, writer = await asyncio.open_connection(
        "127.0.0.1", site.ports["tls"], ssl=context, local_addr=(source, 0)
    )
    try:
        yield writer
    finally:
        writer.transport.abort()


async def until(holds: Callable[[], Any]) -> None:
    while not holds():  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.05)


def test_a_flood_costs_the_daemon_a_small_part_of_what_its_lines_cost(tmp_path: Path) -> None:
    began = time.process_time()
    for _ in range(LINES):  # what the daemon did itself once
        message = read_message(LINE.rstrip())
        assert message is not None
        encode(message.model_copy(update={"text": scrub_text(message.text)[0]}))
    alone_s = time.process_time() - began

    async def main() -> float:
        wide = {"log_lines_per_minute": 600_000, "log_bytes_per_s": 64 * 1024 * 1024}
        async with receiving(tmp_path, **wide) as site, stream(site, HOST) as writer:
            begun = time.process_time()
            writer.write(LINE * LINES)  # with the sender's own part: TLS and a copy
            await writer.drain()
            await until(lambda: process_scope.get_scope().log_messages["stored"] >= LINES)
            return time.process_time() - begun

    spent_s = run(asyncio.wait_for(main(), 60.0))
    assert process_scope.get_scope().log_messages == {"stored": LINES}
    assert spent_s < alone_s / 2


def test_a_sender_beyond_its_bytes_waits_with_the_rest_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    async def main() -> tuple[int, SyslogLine, int]:
        async with (
            receiving(tmp_path, log_bytes_per_s=4096, log_lines_per_minute=60) as site,
            stream(site, HOST) as writer,
        ):
            taken = 0
            piece = LINE * 1000
            with suppress(TimeoutError):
                while taken < 400:  # 100 MB: nothing but a sender that waits ends this
                    writer.write(piece)
                    await asyncio.wait_for(writer.drain(), 2.0)
                    taken += 1
            assert await send(site, LEAF, b"<13>Nov 28 10:00:00 h a: beside it\n")
            line = await site.wait_for(LEAF, "beside it")
        return taken, line, process_scope.get_scope().log_messages.total()

    taken, line, counted = run(asyncio.wait_for(main(), 60.0))
    assert taken < 200  # what buffers on the way hold
    assert line.text == "beside it"
    assert counted < 20_000  # of all that was sent, what its bytes allow was looked into


SMALL = {
    "messages of one byte": b"1 <",
    "lines of one byte": b"<\n",
    "digits that are no count": b"0\n",
    "counts of a line end": b"1 \n",
    "a count, then a line end": b"4 <13>\n",
    "empty lines": b"\n",
    "empty lines of the other kind": b"\r",
    "an endless line": b"<13>" + b"x" * 60_000,
    "a count that never comes true": b"65535 <13>" + b"x" * 60_000,
}


@pytest.mark.parametrize("content", SMALL.values(), ids=SMALL)
def test_neither_small_messages_nor_new_connections_get_more_looks_than_bytes_allow(
    tmp_path: Path, content: bytes
) -> None:
    async def main() -> int:
        async with receiving(tmp_path, log_bytes_per_s=4096, log_lines_per_minute=60) as site:
            for _ in range(12):
                async with stream(site, HOST) as writer:
                    writer.write(content * max(1, 65_000 // len(content)))
                    with suppress(TimeoutError, ConnectionError):
                        await asyncio.wait_for(writer.drain(), 0.2)
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.1)
            assert await send(site, LEAF, b"<13>Nov 28 10:00:00 h a: beside it\n")
            await site.wait_for(LEAF, "beside it")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"<13>by datagram", ("127.0.0.1", site.ports["udp"]))
            await site.wait_for(LEAF, "by datagram")
        return process_scope.get_scope().log_messages.total()

    # all of the twelve connections: 130,000 and more of the smallest; one is read before its debt
    assert run(asyncio.wait_for(main(), 60.0)) <= 65_000 // min(3, len(content)) + 3


def test_connections_without_a_certificate_shut_out_no_sender(tmp_path: Path) -> None:
    async def main() -> SyslogLine:
        async with receiving(tmp_path, log_intake_connections_max=16) as site:
            held = [
                await asyncio.open_connection(
                    "127.0.0.1", site.ports["tls"], local_addr=(f"127.0.{n % 4 + 1}.7", 0)
                )
                for n in range(32)
            ]
            for _, silent in held[::2]:
                silent.write(b"\x16\x03\x01\x02")  # a part of a handshake
            for source in ("127.0.5.5", "127.0.5.5", "127.0.6.6"):
                async with stream(site, HOST, source) as writer:
                    writer.write(f"<13>Nov 28 10:00:00 h a: by {source}\n".encode())
                    await writer.drain()
                    line = await site.wait_for(HOST, f"by {source}")
            for _, silent in held:
                silent.close()
        return line

    assert run(asyncio.wait_for(main(), 60.0)).text == "by 127.0.6.6"


def test_a_full_minute_is_counted_before_a_message_is_parsed() -> None:
    meter = MessageMeter(2)
    row = encode(SyslogMessage(facility="kern", severity="err", text="x"))
    for _ in range(2):
        assert not meter.skips(0.0)
        assert meter.admit(row, 0.0) == [row]
    assert [meter.skips(at) for at in (0.0, 59.0, 60.0)] == [True, True, False]
    assert "[2 lines were skipped" in meter.admit(row, 60.0)[0]


@pytest.mark.parametrize("per_s", [4096.0, 262144.0])
def test_bytes_are_admitted_by_time_alone_however_they_are_cut(per_s: float) -> None:
    totals = []
    for size in (1, 100, 65_536, 262_144):
        meter, now, taken = ByteMeter(per_s, 0.0), 0.0, 0
        while now < 100.0:
            taken += size
            now += meter.charge(size, now) + 1e-3 * (size == 1)
        totals.append(taken)
    assert all(total <= per_s * (100.0 + BURST_S) + 262_144 for total in totals)
    assert totals[-1] >= per_s * 100.0


def test_datagrams_beyond_the_bytes_of_a_switch_are_dropped_unread(tmp_path: Path) -> None:
    async def main() -> Counter[str]:
        async with receiving(tmp_path, log_bytes_per_s=4096) as site:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(100):
                    sender.sendto(LINE.ljust(1000), ("127.0.0.1", site.ports["udp"]))
                await until(lambda: process_scope.get_scope().log_messages["over_limit"])
        return process_scope.get_scope().log_messages

    counts = run(asyncio.wait_for(main(), 60.0))
    assert 1 <= counts["stored"] <= 50
    assert counts["stored"] + counts["over_limit"] <= 100


def test_a_process_that_is_killed_is_started_again_at_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_supervisor, "AGAIN_FIRST_S", 0.05)
    made: list[LogSupervisor] = []
    begin = LogSupervisor.start

    async def start(self: LogSupervisor) -> None:
        made.append(self)
        await begin(self)

    monkeypatch.setattr(LogSupervisor, "start", start)

    async def main() -> SyslogLine:
        async with receiving(tmp_path) as site:
            first = made[0].pid
            os.kill(first, signal.SIGKILL)
            await until(lambda: made[0].pid != first and made[0].link is not None)
            while True:
                with suppress(OSError):
                    if await send(site, HOST, b"<13>Nov 28 10:00:00 h a: after it\n"):
                        return await site.wait_for(HOST, "after it")
                await asyncio.sleep(0.05)

    assert run(asyncio.wait_for(main(), 60.0)).text == "after it"


def test_it_ends_with_the_daemon_and_has_written_what_it_took(tmp_path: Path) -> None:
    async def main() -> int:
        async with receiving(tmp_path) as site:
            await send(site, HOST, b"<13>Nov 28 10:00:00 h a: at last\n")
        return len(await site.book.list_lines(HOST, -1, 9))

    assert run(main()) == 1


def test_a_port_that_is_taken_is_named_with_its_setting(tmp_path: Path) -> None:
    async def main(port: int) -> None:
        chosen = Settings(log_intake_udp_port=port)
        async with (
            open_data(tmp_path, 0.0) as data,
            open_log_intake(tmp_path, data.store, WallClock(), chosen, data.master),
        ):
            pass

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match=r"log_intake_udp_port.*cannot listen there"):
            run(main(taken.getsockname()[1]))
