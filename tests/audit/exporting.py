"""A journal with rows, what exports it, and rsyslog as a receiver: for tests of the export."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from given_events import event_of
from postgres_server import free_port

from provisioner.control.watch.outbox import AuditExport
from provisioner.daemon.data import Data, open_data
from provisioner.integrations.audit_export.opening import open_audit_sinks
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.ports.alerts import AuditSink
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

RSYSLOG = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin")
DRIVERS = tuple(Path("/usr/lib").glob("*/rsyslog/lmnsd_[og]*.so"))
CONFIG = """
main_queue(queue.type="Direct")
global(workDirectory="{folder}" maxMessageSize="64k"
  defaultNetstreamDriverCAFile="{folder}/cert.pem"
  defaultNetstreamDriverCertFile="{folder}/cert.pem"
  defaultNetstreamDriverKeyFile="{folder}/key.pem")
module(load="imtcp" StreamDriver.Name="{driver}" StreamDriver.Mode="1" StreamDriver.AuthMode="anon")
template(name="fields" type="string"
  string="%pri%\t%timereported:::date-rfc3339%\t%app-name%\t%msgid%\t%msg%\n")
input(type="imtcp" port="{port}" address="127.0.0.1")
action(type="omfile" file="{folder}/got.log" template="fields")
"""


class Rsyslog:
    """A syslog server that others wrote, as a process of its own on loopback."""

    def __init__(self, folder: Path, driver: str = "ossl") -> None:
        folder.mkdir()
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        cert, key = make_certificate("syslog", "127.0.0.1")
        (folder / "cert.pem").write_bytes(cert)
        (folder / "key.pem").write_bytes(key)
        text = CONFIG.format(folder=folder, port=self.port, driver=driver)
        (folder / "own.conf").write_text(text)

    async def start(self) -> None:
        """Wait until it listens, without a connection: it may break the next ones after that."""
        self._process = self._launch()
        async with asyncio.timeout(20):
            while not _is_listening(self.port):  # noqa: ASYNC110 (of another process)
                await asyncio.sleep(0.05)

    def _launch(self) -> subprocess.Popen[bytes]:
        assert RSYSLOG is not None
        paths = ("-f", str(self.folder / "own.conf"), "-i", str(self.folder / "pid"))
        return subprocess.Popen([RSYSLOG, "-n", *paths])

    async def receive(self, count: int) -> None:
        """Wait until so many different rows are in its file."""
        async with asyncio.timeout(60):
            while len(self._arrived()) < count:  # noqa: ASYNC110 (of another process)
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def _arrived(self) -> set[int]:
        return {row["seq"] for _, row in self.read()}

    def read(self) -> list[tuple[list[str], dict[str, Any]]]:
        """Return what arrived: the header's fields as rsyslog parsed them, and the content."""
        path = self.folder / "got.log"
        text = path.read_text() if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # it may be writing the next one
        parts = [line.split("\t") for line in lines]
        return [(each[:-1], json.loads(each[-1])) for each in parts]


def _is_listening(port: int) -> bool:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


class Site:
    """A journal, and the export of it."""

    def __init__(self, data: Data, export: AuditExport, sinks: Sequence[AuditSink]) -> None:
        self.data, self.export, self.sinks = data, export, sinks
        self.book = data.store.audit_exports

    async def happens(self, count: int, detail: dict[str, Any] | None = None) -> None:
        for number in range(count):
            event = event_of("state", f"n{number}", detail or {"to": "certified"})
            await self.data.store.journal.append(event, 1000.5)

    async def hand_over(self, failures: int = 0) -> None:
        """Try until all rows are taken, as a daemon does: rsyslog ends some connections early."""
        (sink,) = self.sinks
        async with asyncio.timeout(60):
            while failures := await self.export.export(sink, failures):  # noqa: ASYNC110 (a try)
                await asyncio.sleep(0.05)

    async def sequence(self) -> list[int]:
        """Return the numbers of the journal's rows."""
        return [row["seq"] for row in await self.data.store.journal.list()]


@asynccontextmanager
async def exporting(folder: Path, **settings: Any) -> AsyncIterator[Site]:
    """Yield a site whose receivers the settings name."""
    chosen = Settings.model_validate({"site": "here", "audit_export_s": 0.05} | settings)
    clock = WallClock()
    async with (
        open_data(folder / "data", 0.0) as data,
        open_audit_sinks(chosen, clock) as sinks,
    ):
        book = data.store.audit_exports
        await book.set_receivers([sink.receiver for sink in sinks])
        yield Site(data, AuditExport(book, sinks, clock, chosen), sinks)


@asynccontextmanager
async def tls_server(
    folder: Path, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]
) -> AsyncIterator[dict[str, Any]]:
    """Yield settings of a syslog receiver that is `serve`."""
    cert, key = make_certificate("syslog", "127.0.0.1")
    (folder / "own.pem").write_bytes(cert)
    (folder / "both.pem").write_bytes(key + cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield {"audit_syslog": f"127.0.0.1:{port}", "audit_syslog_ca_file": str(folder / "own.pem")}
