"""A small site that two or three whole daemons drive together, under virtual time.

Each daemon is the real one, in a context of its own: its seat, its engine and its store's memory
are its own, the rows and the devices are shared. What happens to daemons is `history_trouble.py`'s:
they are killed, stopped and continued, cut off from the database or from all devices, asked to end;
the database fails over; their machines' clocks differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import psycopg
from history_log import (
    WRITER,
    Certified,
    Entered,
    History,
    Intent,
    LoggedOperations,
    Look,
    Undriven,
    Write,
    bmc_act,
    switch_act,
)
from linear_log import CallLog, LoggedStore, LoggedSwitches
from rig import MATRIX, World
from shared_memory import Gate, MemoryQueue, MemorySeat, MemoryThreads, Server
from sqlalchemy import select
from virtual_time import EPOCH

from provisioner.control.engine.cluster import Cluster, SharedTime
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.data import read_matrix
from provisioner.execution.actions import reach
from provisioner.execution.actions.work import HostLogin
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.integrations.sim.site.truth import NOBODYS
from provisioner.integrations.simulated_site.simulated_agents import SiteSide, simulated_agents
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.model.operation import LedgerEntry
from provisioner.planning.watch.shards import find_shard
from provisioner.ports import StoreFailed, Unreachable
from provisioner.runtime import permit
from provisioner.runtime import permit as process_scope
from provisioner.runtime.database_clock import DatabaseClock
from provisioner.runtime.switch_systems import make_switches
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.repositories.vault import Vault
from provisioner.store.rows.operation_rows import SETTLED
from provisioner.store.schema.schema import certificates

PROGRESS_S = 1.0  # between two looks at who drives what
RESTART_S = 2.0  # RestartSec of the unit
APART_MAX_S = 90.0  # of clocks, in a history; the setting's limit is 30
REAL_PINS = ("leaf-su0-r0", "spine-0")  # these switches are upgraded; the others run their pin
PINNED = "5.12.1.100"
SENT_WITHIN_S = 15.0  # from an intent until its request has arrived: window and wire, generously
SETTLED_S = 0.05  # from a write until its settling is on disk, at least


class MemberClock:
    """A daemon's clock: the database's, by the daemon's own count; it waits while it is stopped."""

    speed = 1.0

    def __init__(self, gate: Gate) -> None:
        self.database = DatabaseClock(1.0, EPOCH, gate.steady_s)
        self._gate = gate

    def now(self) -> float:
        return self.database.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))
        await self._gate.passes()


class Gated:
    """A port of one daemon: what passes asks for its permit, and is held while it is stopped."""

    def __init__(
        self,
        inner: Any,
        gate: Gate,
        methods: tuple[str, ...],
        leaving: Callable[[], None] = lambda: None,
    ) -> None:
        """`leaving` is told of each request that may change something, before it leaves."""
        self._inner, self._gate, self._methods = inner, gate, methods
        self._leaving = leaving
        self.reaches = True  # False: nothing gets to any device

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._methods:
            return found

        async def passed(*given: Any, **named: Any) -> Any:
            if getattr(given[1] if len(given) > 1 else None, "method", "") != "GET":
                self._leaving()
            await self._gate.passes()
            permit.ask()
            url = getattr(given[0], "url", "") if given else ""
            at = self._gate.steady_s()
            if not self.reaches:
                await asyncio.sleep(5.0)
                permit.note_heard(url, at, answered=False)
                raise Unreachable("no route to host", maybe_executed=False)
            told = await found(*given, **named)
            permit.note_heard(url, at, answered=True)
            await self._gate.passes()
            return told

        return passed


@dataclass
class Member:
    """One life of one daemon."""

    name: str
    gate: Gate
    wires: list[Gated]
    wall: Callable[[], float]
    seat: MemorySeat | None = None
    threads: MemoryThreads | None = None
    cluster: Cluster | None = None
    daemon: Daemon | None = None
    seat_stays: bool = False  # its session is over when the server has not heard it for too long


class ClusterWorld(World):
    """`members`: how many daemons. `live` drives the site until it rests."""

    def __init__(self, directory: Path, seed: int, members: int, lost: float, **more: Any) -> None:
        super().__init__(directory, 1, seed, lost, **{"watch_ports_s": 60.0, **more})
        self.chance = random.Random(f"{seed}/chance")
        self.history = History()
        self.calls = CallLog()
        self.server = Server(self.clock.now, self._session_over)
        self.members: dict[int, Member] = {}
        self.count = members
        self.lives = 0
        self.unlooked: dict[str, float] = {}  # switch -> since its last look, while one could look
        self.over = False
        self.on_write: Callable[[Write], None] = lambda _write: None
        self.on_intent: Callable[[str], None] = lambda _writer: None
        self.on_request: Callable[[str], None] = lambda _writer: None
        self._watching: asyncio.Task[None] | None = None
        self._living: list[asyncio.Task[None]] = []
        self._parsed = read_matrix([MATRIX, self.files.overlay])
        self.skews = [self.chance.uniform(-45.0, 45.0) for _ in range(members)]
        for name, switch in self.site.switches.items():
            if name not in REAL_PINS:
                switch.partitions[switch.current] = PINNED
        self._listen()

    # --- the devices' own log

    def _listen(self) -> None:
        for url, service in self.services.items():
            service.handle = self._logged_bmc(url, service.handle)  # type: ignore[method-assign]
        for name, nvue in self.site.nvue.items():
            nvue.handle = self._logged_switch(name, nvue.handle)  # type: ignore[method-assign]
        for name, switch in self.site.switches.items():
            switch.log_event = self._noted(name, switch.log_event)  # type: ignore[method-assign]
        run = self.site.inband.run

        async def play(name: str, host: str, variables: Any) -> Any:
            if name != "run_commands":
                self._wrote(host, "play", name)
            return await run(name, host, variables)

        self.site.inband.run = play  # type: ignore[method-assign]

    def _wrote(self, device: str, act: str, what: str, **more: Any) -> None:
        write = Write(self.clock.now(), device, act, WRITER.get(), what, **more)
        self.history.writes.append(write)
        self.on_write(write)

    def _logged_bmc(self, url: str, handle: Any) -> Any:
        node, _, bmc = (urlsplit(url).hostname or "").partition(".")
        bmc = bmc.partition(".")[0].upper().replace("-", "_")

        def logged(method: str, path: str, query: Any, headers: Any, body: bytes, peer: str) -> Any:
            told = handle(method, path, query, headers, body, peer)
            if method != "GET" and 200 <= told.status < 300:
                act, what = bmc_act(path, body)
                if act:
                    slot = bmc if act == "push" and bmc.startswith("DPU") else ""
                    self._wrote(node, act, what, slot=slot)
            return told

        return logged

    def _logged_switch(self, name: str, handle: Any) -> Any:
        switch = self.site.switches[name]

        def logged(method: str, path: str, query: Any, headers: Any, body: bytes) -> Any:
            busy = tuple(r.id for r in switch.revisions.values() if r in switch._applying)
            told = handle(method, path, query, headers, body)
            if method != "GET" and 200 <= told.status < 300:
                act, what = switch_act(method, path, body)
                more = {"holder": self.server.holder(name), "in_turn": name in reach._held.get()}
                self._wrote(name, act, what, under_way=busy, **more)
            return told

        return logged

    def _noted(self, leaf: str, note: Any) -> Any:
        def noted(now: float, kind: str, subject: str, detail: str = "") -> None:
            note(now, kind, subject, detail)
            if kind == "vrf":
                self._moved(now, leaf, subject)
            if kind == "reset":
                self.calls.note_restart(leaf, self.site.switches[leaf].startup)

        return noted

    def _moved(self, now: float, leaf: str, subject: str) -> None:
        interface = subject.rpartition("/")[2]
        vrf = self.site.switches[leaf].get_vrf(interface)
        if vrf not in NOBODYS:
            node = next((n for n, p in self.site.places.items() if p.interface == interface), "")
            self.history.entered.append(Entered(now, node, f"{leaf}/{interface}", vrf))

    def _session_over(self, name: str, at: float) -> None:
        self.history.ended[name] = at

    # --- daemons

    async def start_members(self) -> None:
        """Start all daemons; each is started again whenever it ends."""
        self.key = MasterKey.generate()
        self.history.writes.clear()  # those of the intake, which is a command of its own
        self._living = [asyncio.create_task(self._seated(n)) for n in range(self.count)]
        self._watching = asyncio.create_task(self._watch_progress())

    async def run(self, limit_s: float) -> bool:
        """Let time pass until everything rests, or the limit; whether it rests."""
        until = self.clock.now() + limit_s
        while self.clock.now() < until:
            if await self.rests():
                return True
            await self.clock.sleep(10.0)
        return await self.rests()

    async def end(self) -> None:
        """End all daemons, and complete what the checker is given."""
        self.over = True
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        for member in list(self.members.values()):
            member.gate.end("the history is over")
        await asyncio.gather(*self._living)
        await self._complete()

    async def rests(self) -> bool:
        """Whether every node is released or in quarantine, and nothing is driven."""
        active = await self.store.operations.list_active()
        nodes = await self.store.nodes.list()
        return not active and all(str(n.state) in ("released", "quarantined") for n in nodes)

    async def _seated(self, number: int) -> None:
        """One daemon's unit: started, and started again whenever it has ended."""
        while not self.over:
            member = self._member(number)
            self.members[number] = member
            context = copy_context()
            context.run(process_scope.set_simulated_scope, process_scope.Scope())
            context.run(WRITER.set, member.name)
            life = asyncio.create_task(self._life(member), context=context)
            died = asyncio.create_task(member.gate.dead.wait())
            await asyncio.wait((life, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            member.gate.end("it ended")
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            await self._gone(member)
            if not self.over:
                await self.clock.sleep(RESTART_S + self.chance.choice((0.0, 3.0, 30.0)))

    def _member(self, number: int) -> Member:
        self.lives += 1
        return Member(
            f"d{number}-{self.lives}",
            Gate(self.clock.now),
            [],
            lambda: self.clock.now() + self.skews[number],
        )

    async def _life(self, member: Member) -> None:
        try:
            parts = await self._parts(member)
            member.daemon = Daemon(parts)
            self._log_looks(member.name, member.daemon)
            await member.daemon.start()
            await member.daemon.wait()
        except (StoreFailed, psycopg.Error) as error:
            member.gate.end(str(error))
        except Exception as error:  # a fault of ours: the history says so
            self.history.violations = (*self.history.violations, f"{member.name}: {error!r}")
            member.gate.end(repr(error))

    def _log_looks(self, writer: str, daemon: Daemon) -> None:
        """Log which daemon's watch looks at which switch, and who held its shard then."""
        check_leaf = daemon.leaf_watch.check_leaf

        async def logged(leaf: str) -> None:
            node = await self.store.nodes.get(leaf)
            assert node is not None
            shard = find_shard(node)
            look = Look(self.clock.now(), leaf, writer, self.server.owner(shard))
            self.history.looks.append(look)
            self.unlooked[leaf] = 0.0
            try:
                await check_leaf(leaf)
            finally:
                look.until, look.held_last = self.clock.now(), self.server.owner(shard)

        daemon.leaf_watch.check_leaf = logged  # type: ignore[method-assign]

    async def _gone(self, member: Member) -> None:
        """The kernel closes what a process had open; its tasks do nothing more."""
        if member.seat is not None and not member.seat_stays:
            member.seat.leave()
        for part in (member.daemon, member.cluster):
            if part is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await part.stop()
        if member.threads is not None:
            member.threads.close()

    async def _parts(self, member: Member) -> Parts:
        gate = member.gate

        def lost(why: str) -> NoReturn:
            gate.end(why)
            raise asyncio.CancelledError

        place = member.name.partition("-")[0]
        lease_s = self.settings.lease_s
        member.seat = MemorySeat(self.server, member.name, lease_s, gate, member.wall, place)
        clock = MemberClock(gate)
        member.threads = MemoryThreads(gate)
        seat: Any = member.seat
        time = SharedTime(clock.database, APART_MAX_S)
        member.cluster = Cluster(seat, lost, time, member.threads, self._probe_of(member))
        store = LoggedStore(self.store, self.server, gate, self.calls, member.name)
        store.operations = LoggedOperations(
            store, self.history, member.name, self.clock.now, lambda name: self.on_intent(name)
        )
        await member.cluster.start()
        vault = Vault(store, self.vault._key)

        def leaving() -> None:
            self.on_request(member.name)

        wires = [
            Gated(self.transport, gate, ("request", "fingerprint"), leaving),
            Gated(self.switches, gate, ("request",), leaving),
            Gated(MemoryRunner(self.site, self.runs), gate, ("run", "recall", "ask"), leaving),
            Gated(MemoryShell(self.site), gate, ("run",)),
        ]
        transport, switches, runner, shell = member.wires = wires
        agents = simulated_agents(
            SiteSide(self.site),
            store.agents,
            vault,
            clock,
            self.settings,
            store.journal.append,
            lambda: f"{self.tokens.getrandbits(256):064x}",
            self.wire.delay_request,
        )
        artifacts = Artifacts(self.files.artifacts, "http://artifacts.test")
        return Parts(
            store=store,
            credentials=vault,
            clock=clock,
            settings=self.settings,
            transport=transport,
            switches=LoggedSwitches(make_switches(switches), self.calls, member.name),
            runner=runner,
            shell=shell,
            agents=Gated(agents, gate, ("request",)),
            artifacts=artifacts,
            matrix=self._parsed,
            signer=await open_signer(store, self.key, clock.now()),
            campaigns=store.campaigns,
            os_images=OsImages(artifacts, self.files.artifacts / "raw", "https://images.test"),
            login=HostLogin("provisioner", "ssh-ed25519 AAAA provisioner"),
            shared=(member.cluster, MemoryQueue(self.server, gate)),
        )

    def _probe_of(self, member: Member) -> Callable[[str, float], Any]:
        """How a daemon tries a device: a connection is made where it has a way, and it is there."""

        async def probe(where: str, limit_s: float) -> bool:
            reaches = all(wire.reaches for wire in member.wires)
            host = where.rpartition(":")[0]
            bmcs = {urlsplit(url).hostname for url in self.services}
            there = host in bmcs or host.removesuffix(".sim") in self.site.switches
            await asyncio.sleep(0.05 if reaches and there else limit_s)
            return reaches and there

        return probe

    # --- what the checker needs besides

    async def _watch_progress(self) -> None:
        """Note for how long active operations have no driver while a daemon could drive them."""
        since: dict[str, tuple[str, float]] = {}
        try:
            while True:
                await asyncio.sleep(PROGRESS_S)
                now = self.clock.now()
                able = {m.name for m in self.members.values() if self._could_drive(m)}
                driver = {t.node: t.writer for t in self.history.taken}
                for leaf, seconds in self.unlooked.items():
                    self.unlooked[leaf] = seconds + PROGRESS_S if able else 0.0
                    longest = max(self.history.unlooked.get(leaf, 0.0), self.unlooked[leaf])
                    self.history.unlooked[leaf] = longest
                active = await self.store.operations.list_active()
                idle = {o.id: o.node for o in active if driver.get(o.node) not in able}
                for gone in [o for o in since if o not in idle or not able]:
                    node, from_at = since.pop(gone)
                    self.history.undriven.append(Undriven(node, gone, from_at, now))
                for operation, node in idle.items() if able else ():
                    since.setdefault(operation, (node, now))
        finally:
            end = self.clock.now()
            for operation, (node, from_at) in since.items():
                self.history.undriven.append(Undriven(node, operation, from_at, end))

    def _could_drive(self, member: Member) -> bool:
        """Whether a daemon runs, is seated, and has a way to the database and to devices."""
        seated = member.seat is not None and member.seat.living
        reaches = bool(member.wires) and all(wire.reaches for wire in member.wires)
        return seated and reaches and member.gate.runs and self.server.is_up

    async def _complete(self) -> None:
        """Ledger rows with their ends, certificates with theirs, and the simulator's truth."""
        rows: dict[tuple[str, str, int], LedgerEntry] = {}
        for node in await self.store.nodes.list():
            for entry in await self.store.operations.list_entries(node.id):
                rows[entry.operation, entry.action, entry.attempt] = entry
        intents: Any = self.history.intents
        done = []
        for at, told, slots, writer in intents:
            entry = rows[told.operation, told.action, told.attempt]
            until = entry.settled_at if entry.status in SETTLED else float("inf")
            done.append(Intent(at, until + SETTLED_S, told.node, told.action, slots, writer))
        self.history.intents = done
        issued = await self.store.read(lambda c: c.execute(select(certificates)).all())
        for row in issued:
            expires = json.loads(row.body)["expires_at"]
            until = min(expires, row.revoked_at or float("inf"))
            self.history.certified.append(Certified(row.node, row.issued_at - 1.0, until))
        self.history.calls = self.calls.calls
        self.history.violations = (*self.history.violations, *await self.violations())
