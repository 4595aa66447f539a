"""Several daemons on one PostgreSQL, driving a site that is served over HTTPS: all real processes.

Each daemon is `provisioner serve` as a person starts it; a supervisor starts one that ended again,
as systemd would. What was done is asked of the simulator, which logs what it was asked to do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from postgres_server import Server, free_port

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.data import open_data, read_expected, read_secrets
from provisioner.execution.observe.intake import find_nodes, take_in
from provisioner.integrations.demo import running
from provisioner.integrations.demo.site import DemoFiles, choose_settings, prepare_files
from provisioner.integrations.simulated_site.simulated_agents import SimulatedRunner
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus
from provisioner.runtime.wall_clock import WallClock
from provisioner.store import SqlStore, open_store

MATRIX = Path(__file__).parents[3] / "firmware_matrix.yaml"
HOSTS = int(os.environ.get("HA_HOSTS", "0"))  # 0: as small as it can be
# Short, so that a test sees a seat lost within seconds; but two cores full of daemons, devices and
# a database keep an event loop waiting for some themselves.
LEASE_S = 4.0 if HOSTS <= 32 else 15.0
# A device's hour in half a minute; of hundreds of hosts two cores would not keep up with that.
SPEED = 120.0 if HOSTS <= 96 else 60.0
# Whoever waits looks again after so much of a device's time: each half second or few seconds.
POLL_S = 30.0 if HOSTS <= 96 else 240.0


@dataclass
class Daemon:
    """One daemon and its supervisor's memory."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    ends: list[int] = field(default_factory=list)  # exit codes, the oldest first
    began: int = 0  # where in its log its present life begins

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.began = out.tell()
            self.process = subprocess.Popen(
                self.command, stdout=out, stderr=out, env=self.environment
            )

    def send(self, sign: int) -> None:
        assert self.process is not None
        self.process.send_signal(sign)

    def kill(self) -> None:
        """kill -9, now."""
        self.send(signal.SIGKILL)
        self._ended()

    def stop(self, limit_s: float = 30.0) -> None:
        """As systemd stops it: SIGTERM, and its end is waited for."""
        self.send(signal.SIGTERM)
        assert self.process is not None
        self.process.wait(timeout=limit_s)
        self._ended()

    def look_after(self) -> None:
        """Start it again if it ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            self._ended()
            self.start()

    def _ended(self) -> None:
        assert self.process is not None
        self.ends.append(self.process.wait())
        self.process = None

    def leads(self) -> bool:
        """Whether it is alive and has said in this life that it leads: a lead ends with a life."""
        alive = self.process is not None and self.process.poll() is None
        return alive and b"this daemon leads" in self.log.read_bytes()[self.began :]

    def said(self, words: str) -> int:
        """How often its log says so."""
        return self.log.read_text(errors="replace").count(words) if self.log.exists() else 0


@dataclass
class Fleet:
    """The site, its database, and the daemons on it."""

    site: SimulatedRunner
    store: SqlStore
    server: Server
    database: str
    daemons: list[Daemon]
    clock: WallClock
    files: DemoFiles
    used: bool = False  # DBOS' tables are there

    async def reconnect(self) -> None:
        """The test's own connections, after the server was restarted."""
        await self.store.close()
        self.store = open_store(self.server.url(self.database))

    def move_to(self, database: str) -> None:
        """Everything goes on with another database of the same server; the old store is closed."""
        for daemon in self.daemons:
            old, new = self.server.url(self.database), self.server.url(database)
            daemon.command = [new if word == old else word for word in daemon.command]
        self.database, self.used = database, False
        self.store = open_store(self.server.url(database))

    async def truth(self) -> dict[str, Any]:
        """What was done to each node, and how many of its updates the ledger knows as failed."""
        told: dict[str, Any] = await self.site.get("/truth")
        for name, node in told["nodes"].items():
            rows = await self.store.operations.list_entries(name)
            updates = [r for r in rows if r.action.startswith("update ")]
            node["failed"] = sum(r.status is ActionStatus.FAILED for r in updates)
        return told

    async def nodes(self) -> list[Node]:
        """The hosts, as the store has them."""
        return [n for n in await self.store.nodes.list() if n.kind is NodeKind.HOST]

    async def until(self, reached: Callable[[], Any], limit_s: float, what: str) -> None:
        """Look after the daemons until something is so."""
        ends = time.monotonic() + limit_s
        while not await reached():
            assert time.monotonic() < ends, f"{what}: not within {limit_s} s\n{await self.tell()}"
            for daemon in self.daemons:
                daemon.look_after()
            await asyncio.sleep(0.5)  # each look starts a psql

    async def owners(self) -> Counter[str]:
        """Which daemon drives how many operations now, as DBOS' rows say."""
        return self._counted(
            "SELECT executor_id, count(*) FROM dbos.workflow_status "
            "WHERE status = 'PENDING' AND name = 'operation' GROUP BY 1"
        )

    async def pushing(self) -> Counter[str]:
        """Nodes with a push or reset that is intended or under way, by the executor of each."""
        return self._counted(
            "SELECT w.executor_id, count(*) FROM ledger l JOIN dbos.workflow_status w "
            "ON w.workflow_uuid LIKE l.operation || '@%' AND w.status = 'PENDING' "
            "WHERE l.status IN ('intended', 'sent') AND l.node LIKE '%-n%' GROUP BY 1"
        )

    def _counted(self, query: str) -> Counter[str]:
        there = "SELECT to_regclass('dbos.workflow_status') IS NOT NULL"
        if not self.used and self.server.sql(self.database, there) != ["t"]:
            return Counter()  # no daemon was there yet
        self.used = True
        rows = [line.split("|") for line in self.server.sql(self.database, query)]
        return Counter({executor: int(count) for executor, count in rows if executor})

    def owner(self, executor: str) -> Daemon | None:
        """The living daemon of an executor's id, which holds its process id; None if it is gone."""
        pid = int(executor.split("-")[-2])
        living = (d for d in self.daemons if d.process is not None and d.process.poll() is None)
        return next((d for d in living if d.process is not None and d.process.pid == pid), None)

    async def tell(self) -> str:
        """Where everything stands, for a test that failed."""
        nodes = await self.nodes()
        states = Counter(str(n.state) for n in nodes)
        notes = [f"{n.id} {n.state}: {n.blockers or n.note}" for n in nodes][:6]
        logs = [
            f"--- {d.name} {d.ends}\n{d.log.read_text(errors='replace')[-1500:]}"
            for d in self.daemons
        ]
        return "\n".join([str(dict(states)), str(dict(await self.owners())), *notes, *logs])


@asynccontextmanager
async def fleet(
    server: Server, folder: Path, *, hosts: int, daemons: int = 3, speed: float = SPEED,
    ports: dict[int, int] | None = None, offer: Callable[[DemoFiles], None] | None = None,
    ahead_s: Sequence[float] = (),
) -> AsyncIterator[Fleet]:  # fmt: skip
    """`ports`: daemon -> the port by which it reaches the database, if not the server's own.
    `offer`: adds to the site's files, say a release; hosts' systems are deployed then, too.
    `ahead_s`: of each daemon's wall clock.
    """
    database = server.make()
    asked = running.Asked(nodes=hosts, speed=speed)
    async with running.run_simulator(asked, folder / "site") as site:
        files = prepare_files(folder / "site", await site.get("/expected"), hosts)
        if offer is not None:
            offer(files)
        told = await site.get("/clock")
        clock = WallClock(told["speed"], told["epoch"])
        first = folder / "d0"
        await _take_in(site, files, clock, first, server.url(database))
        settings = folder / "settings.yaml"
        settings.write_text(yaml.safe_dump(_settings(asked)))
        made = []
        for number in range(daemons):
            data = folder / f"d{number}"
            if number:  # as docs/high-availability.md says: one key for all
                data.mkdir(mode=0o700)
                shutil.copy(first / "master.key", data / "master.key")
            url = server.url(database, (ports or {}).get(number, 0))
            command = [
                *_program(ahead_s[number] if ahead_s else 0.0), "serve", "--data", str(data),
                "--database", url, "--matrix", str(MATRIX), "--matrix", str(files.overlay),
                "--artifacts", str(files.artifacts), "--artifact-port", str(free_port()),
                "--settings", str(settings), "--simulator", str(folder / "site" / "control.sock"),
            ]  # fmt: skip
            if offer is not None:
                command += ["--ssh-key", str(_make_key(folder)), "--agent-port", str(free_port())]
            log = folder / f"d{number}.log"
            made.append(Daemon(f"d{number}", command, server.environment, log))
        store = open_store(server.url(database))
        there = Fleet(site, store, server, database, made, clock, files)
        try:
            for daemon in made:
                daemon.start()
            yield there
        finally:
            for daemon in made:
                if daemon.process is not None:
                    daemon.process.kill()
                    daemon.process.wait()
            await there.store.close()


def _make_key(folder: Path) -> Path:
    key = folder / "host-key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def _program(ahead_s: float) -> list[str]:
    """The program, on a machine whose wall clock is ahead: as it reads it, since a container has
    the machine's clock.
    """
    if not ahead_s:
        return [sys.executable, "-m", "provisioner"]
    words = (
        "import runpy, time; real = time.time; "
        f"time.time = lambda: real() + {ahead_s}; "
        "runpy.run_module('provisioner', run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", words]


def _settings(asked: running.Asked) -> dict[str, Any]:
    chosen = choose_settings(asked.nodes, asked.speed).model_copy(
        update={
            "api_serve": False,
            "lease_s": LEASE_S,
            "poll_s": POLL_S,
            "switch_poll_s": max(10.0, POLL_S / 4),
        }
    )
    told = chosen.model_dump(mode="json", exclude_defaults=True)
    # a daemon that was replaced is waited out for the window and the longest request
    return told | {"request_max_s": 10.0 * asked.speed, "send_window_s": 2.0 * asked.speed}


async def _take_in(
    site: SimulatedRunner, files: DemoFiles, clock: WallClock, data: Path, database: str
) -> None:
    expected = read_expected(files.expected)
    secrets = read_secrets(expected, os.environ)
    transport = RedfishTransport()
    endpoints: dict[str, str] = await site.get("/endpoints")
    urls = sorted(url for name, url in endpoints.items() if "/" in name)
    try:
        async with open_data(data, clock.now(), database) as opened:
            probes = await probe_all(transport, urls)
            assembly, found, silent = await find_nodes(
                transport, opened.store, opened.vault, expected, secrets, probes, clock.now()
            )
            assert not silent, silent[0]
            await take_in(
                opened.store, opened.vault, expected, secrets, assembly, found, clock.now()
            )
    finally:
        await transport.close()
