"""Records the journal of two daemons on one database, in the words of the model.

Seats, leases, engines, reconcilers, performers, tenancies and watches are the product's own, one
set of each daemon; they share the rows, the leaves and the database's server (`shared_memory`). A
daemon is killed, vanishes with its machine, is stopped for a while and goes on, or is cut off from
the database; its unit starts it again. The journal has the writer of each row besides, and the
daemon that takes an operation, leads, starts, loses its lease, or ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, NoReturn

import psycopg
from handover_journal import ACTS, Recorder, _ignore
from handover_state import NOBODY
from handover_trace import Journal
from history_world import APART_MAX_S, RESTART_S, Gated, MemberClock
from port_world import build_parts
from shared_memory import Gate, MemberStore, MemoryQueue, MemorySeat, MemoryThreads, Server
from sqlalchemy import bindparam, select

from provisioner.control.engine.cluster import Cluster, SharedTime
from provisioner.control.engine.engine_shared import SharedEngine
from provisioner.control.node.reconciler import Engaged
from provisioner.model.node import Node
from provisioner.model.operation import Operation, OperationStatus
from provisioner.ports import StoreFailed
from provisioner.runtime import permit as process_scope
from provisioner.store.rows import operation_rows
from provisioner.store.rows.records import parse_node
from provisioner.store.schema.schema import certificates, nodes

DAEMONS = 2
OPERATIONS_MAX = 8
BLOWS = {"kill": 4, "vanish": 2, "stop": 6, "cut": 3}
FOR_S = (1.0, 4.0, 9.0, 15.0, 60.0)  # until one that is stopped or cut off goes on
_CHANGED = (
    select(nodes.c.body).where(nodes.c.changed > bindparam("since")).order_by(nodes.c.changed)
)
_LAST = select(nodes.c.changed).order_by(nodes.c.changed.desc()).limit(1)
_REVOKED = select(certificates.c.id).where(certificates.c.revoked_at.is_not(None))


class HeardStore(MemberStore):
    """One daemon's store; whatever it commits is heard in the moment of the commit."""

    def __init__(self, world: PairRecorder, gate: Gate, number: int) -> None:
        super().__init__(world.store, world.server, gate)
        self._world = world
        self._number = number
        self.operations.take = self._take  # type: ignore[method-assign]
        self.operations.end = self._end  # type: ignore[method-assign]

    async def write(self, work: Any) -> Any:
        """Commit as the product's store does; its answer comes when the daemon can hear it."""
        world, changed = self._world, list[Any]()

        def heard(connection: Any) -> Any:
            answer = work(connection)
            changed[:] = connection.scalars(_CHANGED, {"since": world.change}).all()
            world.change = connection.scalar(_LAST) or 0
            changed.append(connection.scalars(_REVOKED).all())
            return answer

        await self._reached()
        answer = await super(MemberStore, self).write(heard)
        *bodies, revoked = changed
        for body in bodies:
            world.hear_row(parse_node(body), self._number)
        world.hear_revoked(revoked)
        await self._gate.database()
        return answer

    async def _take(self, operation_id: str) -> Operation:
        def work(connection: Any) -> Operation:
            taken = operation_rows.take(connection, operation_id)
            self._world.hear_taken(taken.node, self._number)
            return taken

        return await self.write(work)  # type: ignore[no-any-return]

    async def _end(self, operation: Operation, status: OperationStatus, note: str) -> Operation:
        def work(connection: Any) -> Operation:
            changes = {"status": status, "note": note}
            ended = operation_rows.fence(connection, operation.model_copy(update=changes))
            self._world.hear_left(ended.node)
            return ended

        return await self.write(work)  # type: ignore[no-any-return]


class Side:
    """The site as one daemon has it: hosts and truth are the world's, store and clock its own."""

    def __init__(self, world: PairRecorder, store: HeardStore, clock: MemberClock) -> None:
        self._world = world
        self.store = store
        self.clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    @property
    def issued(self) -> int:
        """Certificates so far, of both daemons: each has a name of its own."""
        return self._world.issued

    @issued.setter
    def issued(self, count: int) -> None:
        self._world.issued = count


class Member:
    """One life of one daemon."""

    def __init__(self, world: PairRecorder, number: int) -> None:
        world.lives += 1
        self.number = number
        self.gate = gate = Gate(world.clock.now)
        self.vanished = False
        lease_s = world.settings.lease_s
        name = f"{number}-{world.lives}"
        self.seat = MemorySeat(world.server, name, lease_s, gate, world.clock.now)
        clock = MemberClock(gate)
        self.threads = MemoryThreads(gate)
        time = SharedTime(clock.database, APART_MAX_S)
        seat: Any = self.seat
        self.cluster = Cluster(seat, self._lose, time, self.threads)
        self.store = HeardStore(world, gate, number)
        self.wire = Gated(world.wire, gate, ("request",))
        side = Side(world, self.store, clock)
        self.parts = build_parts(side, self.store, clock, self.wire, self._submit)
        queue = MemoryQueue(world.server, gate)
        reconciler = self.parts.reconciler

        async def drive(operation: str) -> None:
            await reconciler.drive(operation, Engaged(leaves=self._leaves))

        self.engine = SharedEngine(self.store, drive, OPERATIONS_MAX, self.cluster, queue)
        self._world = world
        self._leading: asyncio.Task[None] | None = None

    async def live(self) -> None:
        """Drive operations, and watch from when it leads; returns when its work fails."""
        await self.cluster.start()
        self._world.note("started", self.number)
        await self.engine.start()
        self._leading = asyncio.create_task(self._lead(), name="duties")
        await asyncio.gather(self._leading, self.engine.failed(), self.cluster.failed())

    async def _lead(self) -> None:
        await self.cluster.wait_for_lead()
        self._world.note("leads", self.number)
        await asyncio.gather(self.parts.release_watch.run(), self.parts.leaf_watch.run())

    async def _submit(self, operation: str) -> None:
        await self.engine.submit(operation)

    def _leaves(self, operation: str) -> bool:
        leaves = self.engine.leaves(operation)
        if leaves:
            self._world.hear_left(operation.partition("#")[0])
        return leaves

    def _lose(self, _why: str) -> NoReturn:
        self.end("it lost its lease")
        raise asyncio.CancelledError

    def end(self, why: str) -> None:
        """The process is gone, in this moment."""
        if not self.gate.dead.is_set():
            self._world.note("crashed", self.number)
        self.gate.end(why)

    async def bury(self) -> None:
        """What it had open is closed by the kernel; nothing of it goes on."""
        if not self.vanished:
            self.seat.leave()
        ending = [] if self._leading is None else [self._leading]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for stop in (self.engine.stop, self.parts.tenancy.close, self.cluster.stop):
            with contextlib.suppress(asyncio.CancelledError):
                await stop()
        self.threads.close()


class PairRecorder(Recorder):
    """Two daemons' life. `sabotage` gets the parts of each daemon before it begins."""

    def __init__(self, seed: int, sabotage: Callable[[Member], None] = _ignore) -> None:
        super().__init__(seed)
        self.weights = ACTS | {"crash": 8}
        self.spoil = sabotage
        self.server = Server(self.clock.now, self._hear_lease_end)
        self.members: dict[int, Member] = {}
        self.struck: dict[str, int] = dict.fromkeys(BLOWS, 0)
        self.lives = 0
        self.change = 0
        self._over = False
        self._revoked: set[str] = set()
        self._seats: list[asyncio.Task[None]] = []
        self._going_on: set[asyncio.Task[None]] = set()

    async def record(self, acts: int) -> Journal:
        """Live through so many acts of chance to the rest after them; return the journal."""
        journal = await super().record(acts)
        return journal._replace(daemons=DAEMONS)

    # --- entries

    def _note_duties(self) -> None:
        for number, member in self.members.items():
            if member.gate.dead.is_set():
                self.note("crashed", number)
            elif member.cluster.leads:
                self.note("leads", number)

    def note(self, kind: str, number: int, *detail: Any, by: int | None = None) -> None:
        """Record an entry."""
        self._note(kind, number, *detail)
        if self._begun and by is not None:
            self.entries[-1] = self.entries[-1]._replace(by=by)

    def saw(self, node: Node | None) -> None:
        """Record a row that people wrote."""
        if node is not None:
            self.hear_row(node, NOBODY)

    def hear_row(self, node: Node, writer: int) -> None:
        """Record a row, with its writer."""
        count = len(self.entries)
        super().saw(node)
        if len(self.entries) > count:
            self.entries[-1] = self.entries[-1]._replace(by=writer)

    def hear_revoked(self, names: list[str]) -> None:
        """Record revocations of certificates that are in a row."""
        for name in names:
            if name not in self._revoked:
                self._revoked.add(name)
                self.truth.revoked.setdefault(name, self.clock.now())
                node = self.truth.certificates[name].node
                if self.truth.rows[node].certificate == name:
                    self.note("revoked", self._number[node])

    def hear_taken(self, node: str, daemon: int) -> None:
        """Record that a daemon is an operation's driver from now on."""
        self.note("taken", self._number[node], by=daemon)

    def hear_left(self, node: str) -> None:
        """Record that an operation has no driver any more: it is over, or left to a peer."""
        self.note("ended", self._number[node])

    def _hear_lease_end(self, name: str, _at: float) -> None:
        number = int(name.partition("-")[0])
        member = self.members.get(number)
        if member is not None and member.seat.id == name and not member.gate.dead.is_set():
            self.note("expired", number)

    async def _revoke(self, certificate: str, reason: str, now: float) -> None:
        await self._revoke_stored(certificate, reason, now)
        self.hear_revoked([certificate])

    # --- the daemons

    def _start(self) -> None:
        self._seats = [asyncio.create_task(self._seat(number)) for number in range(DAEMONS)]

    async def _seat(self, number: int) -> None:
        """Start one daemon, and start it again whenever it has ended."""
        while not self._over:
            context = copy_context()
            context.run(process_scope.set_simulated_scope, process_scope.Scope())
            member = context.run(Member, self, number)
            self.members[number] = member
            self.spoil(member)
            life = asyncio.create_task(member.live(), context=context)
            died = asyncio.create_task(member.gate.dead.wait())
            await asyncio.wait((life, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            member.end("it ended")
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            error = None if life.cancelled() else life.exception()
            assert isinstance(error, (StoreFailed, psycopg.Error, type(None))), error
            await member.bury()
            await self.clock.sleep(RESTART_S + self.rng.choice((0.0, 3.0, 30.0)))

    async def _operation(self, node: str) -> bool:
        operation = await self.store.operations.open(node, "journey", self.clock.now())
        if operation is None:
            return False
        self.server.queue.setdefault(operation.id, [operation.id, ""])
        return True

    async def _reap(self) -> None:
        active: Any = {o.node: o.id for o in await self.store.operations.list_active()}
        for node, name in self.driving.items():
            if active.get(node) != name:
                ended = await self.store.operations.get(name)  # type: ignore[arg-type]
                assert ended is not None
                assert ended.status is OperationStatus.DONE, ended
        self.driving = active
        for seat in self._seats:
            if seat.done():
                seat.result()

    async def close(self) -> None:
        """End both daemons."""
        self._over = True
        for member in self.members.values():
            member.end("the life is over")
        await asyncio.gather(*self._seats)
        await self.store.close()

    async def _come_to_rest(self) -> None:
        for task in list(self._going_on):
            await task
        await super()._come_to_rest()

    # --- acts

    async def _crash(self) -> bool:
        """Strike one of the daemons that live."""
        living = [m for m in self.members.values() if not m.gate.dead.is_set()]
        if not living:
            return False
        member = self.rng.choice(living)
        [blow] = self.rng.choices(list(BLOWS), list(BLOWS.values()))
        self.struck[blow] += 1
        match blow:
            case "kill":
                member.end("killed")
            case "vanish":
                member.vanished = True
                member.end("its machine is gone")
            case "stop":
                member.gate.stop()
                self._later(member.gate.go_on)
            case "cut":
                member.gate.cut()
                self._later(member.gate.mend)
        return True

    def _later(self, undo: Callable[[], None]) -> None:
        async def wait() -> None:
            await self.clock.sleep(self.rng.choice(FOR_S))
            undo()

        task = asyncio.create_task(wait())
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
