"""One leaf: moves of many nodes' ports gathered into one change, and proved by reading back.

A request is never taken as its own proof. Every try begins and ends with a reading of the
operational state, so that a lost answer, a crash, or a foreign change is repaired by observing;
doing it again is harmless. No decision depends on state in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from provisioner.execution.actions.reach import SwitchSource, turn
from provisioner.model.host_filter import (
    Door,
    FilterState,
    HostFilter,
    PortLabel,
    count_rules,
    is_held,
    make_host_filter,
    may_overwrite,
    read_label,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import ABSENT, BondsRead, Move, Place, PortChange, TenantPort
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.ports import Clock, PortError, Switch, SwitchRefused
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# A reading that callers share: each answer is of after the question, and one is read at a time.
#
# The first caller is answered at once. Those who ask while that is read are answered together by
# the next reading, which begins when it is over. So no caller waits for others to come.


Answer = TypeVar("Answer")


class SharedReading(Generic[Answer]):
    """Readings by `read`, which returns a failure as a value."""

    def __init__(self, read: Callable[[], Awaitable[Answer]], name: str) -> None:
        self._read = read
        self._name = name
        self._next: asyncio.Task[Answer] | None = None  # has not begun to read
        self._last: asyncio.Task[Answer] | None = None

    async def ask(self) -> Answer:
        """Return an answer that was read after this was called."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._last), name=self._name)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        await end_tasks(self._next, self._last)

    async def _read_after(self, before: asyncio.Task[Answer] | None) -> Answer:
        try:
            if before is not None:
                await asyncio.wait([before])
        finally:
            self._last = self._next
            self._next = None
        return await self._read()


# ------------------------------------------------------------------------------
# Readings of one leaf's ports that callers share.
#
# Many hosts ask for their ports on the same leaf at once. The first one is answered at once. Those
# that come while its ports are read are answered together afterwards, because an answer has to be
# of after the question. So a host never waits for others to come, and a leaf has one reading at a
# time. A port that the leaf cannot describe spoils a whole reading: then each caller reads its own.


Places = Mapping[str, frozenset[Place]]


class LeafPlaces:
    """Places of one leaf's ports. `read` may be called by any number of nodes at once."""

    def __init__(self, source: SwitchSource) -> None:
        self._source = source
        self._wanted: set[str] = set()
        self._callers = 0  # of the reading that comes next
        self._readings = SharedReading(self._read_wanted, f"ports of {source.name}")

    async def read(self, interfaces: Sequence[str]) -> Places | Blocker:
        """Return the places of these ports, read after this was called."""
        self._wanted |= set(interfaces)
        self._callers += 1
        places, callers = await self._readings.ask()
        if isinstance(places, Blocker) and callers > 1:
            return await self._read(interfaces)
        if isinstance(places, Blocker):
            return places
        return {interface: places[interface] for interface in interfaces}

    async def close(self) -> None:
        await self._readings.close()

    async def _read_wanted(self) -> tuple[Places | Blocker, int]:
        interfaces = sorted(self._wanted)
        callers = self._callers
        self._wanted = set()
        self._callers = 0
        return await self._read(interfaces), callers

    async def _read(self, interfaces: Sequence[str]) -> Places | Blocker:
        try:
            return await (await self._source.open()).read_places(interfaces)
        except PortError as problem:
            return self._source.describe(problem)


# Tries of one batch: a lost answer, then a revision that raced with a foreign one.
TRIES_MAX = 3
GATHER_PARTS = 5
# A reading comes late by at most this part of the time waited so far, so that polling costs a tenth
# of the switch's own time and some thirty requests until the longest pause is reached.
LATE = 0.1
# Refusals that one port of a batch may bring on all of it.
_OF_ONE_PORT = (Reason.SWITCH_REFUSED, Reason.MALFORMED, Reason.NOT_GRANTED)

Routes = Mapping[str, tuple[str, ...]]  # VRF -> prefixes
Views = Mapping[str, frozenset[str]]  # port -> every VRF that it is or will be in
# reads why a move may not be made any more; () if it may
Objections = Callable[[], Awaitable[Sequence[Blocker]]]


@dataclass(frozen=True)
class LeafOutcome:
    """`revision` is "" when nothing had to be changed. No blockers: moved, proved, saved."""

    revision: str = ""
    blockers: tuple[Blocker, ...] = ()


@dataclass
class _Waiting:
    moves: tuple[Move, ...]
    objections: Objections | None = None
    done: asyncio.Future[LeafOutcome] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Leaf:
    """One switch's ports. `move` may be called by any number of nodes at once."""

    def __init__(self, source: SwitchSource, clock: Clock, limits: Settings) -> None:
        self.name = source.name
        self._source = source
        self._clock = clock
        self._limits = limits
        self._waiting: list[_Waiting] = []
        self._change: PortChange  # of the batch, with the state that was read last
        self._writer: asyncio.Task[None] | None = None
        self._routes = SharedReading(self._read_routes, f"routes of {source.name}")
        self._places = LeafPlaces(source)

    async def move(
        self, moves: Sequence[Move], objections: Objections | None = None
    ) -> LeafOutcome:
        """Bring these ports into their VRFs, proved by read-back, and save the configuration.

        `objections` are read when it is this leaf's turn, before anything is sent: with one,
        nothing is moved.
        """
        waiting = _Waiting(tuple(moves), objections)
        self._waiting.append(waiting)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name=f"moves on {self.name}")
        return await waiting.done

    async def close(self) -> None:
        """Stop. A revision that was sent takes its course, and is looked at after the start."""
        await end_tasks(self._writer)
        await self._routes.close()
        await self._places.close()

    async def vrfs(self, interfaces: Sequence[str]) -> Views | Blocker:
        """Return every VRF that each of these ports is in, or will be in without a further action.

        It is one VRF if the port is settled: the operational state, the applied and the startup
        configuration, and the result of every revision on its way all agree.
        """
        read = await self._places.read(interfaces)
        if isinstance(read, Blocker):
            return read
        return {port: frozenset(place.vrf for place in places) for port, places in read.items()}

    async def tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort] | Blocker:
        """Return every port of the leaf that is, or will be, in a VRF not in `site_vrfs`."""
        try:
            return await (await self._source.open()).read_tenant_ports(site_vrfs)
        except PortError as problem:
            return self._source.describe(problem)

    async def filter_state(self) -> FilterState | Blocker:
        """Return the filter between hosts, and the ports that have it, by every source."""
        try:
            return await (await self._source.open()).read_filter_state()
        except PortError as problem:
            return self._source.describe(problem)

    async def labels(self) -> Mapping[str, PortLabel] | Blocker:
        """Return what our descriptions at this leaf's ports say."""
        try:
            texts = await (await self._source.open()).read_descriptions()
        except PortError as problem:
            return self._source.describe(problem)
        labels = {name: read_label(text) for name, text in texts.items()}
        return {name: label for name, label in labels.items() if label is not None}

    async def routes(self) -> Routes | Blocker:
        """Return the routes of every VRF, read after this call began; concurrent callers share a
        reading.
        """
        return await self._routes.ask()

    # --- the writer: one batch after the other while a caller waits

    async def _write(self) -> None:
        batch: list[_Waiting] = []
        try:
            while self._waiting:
                await self._gather()
                batch = self._take()
                outcome = await self._in_turn(batch)
                alone = len(batch) > 1 and any(b.reason in _OF_ONE_PORT for b in outcome.blockers)
                for waiting in batch:
                    # one bad port makes a whole revision invalid: then each node has its own
                    if waiting.done.done():
                        continue
                    mine = await self._in_turn([waiting]) if alone else outcome
                    if not waiting.done.done():
                        waiting.done.set_result(mine)
        except BaseException as error:
            for waiting in (*batch, *self._waiting):
                if waiting.done.done():
                    continue
                if isinstance(error, asyncio.CancelledError):
                    waiting.done.cancel()
                else:
                    # a fault of ours: the waiting caller reports it
                    waiting.done.set_exception(error)
            self._waiting.clear()
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._writer = None

    async def _gather(self) -> None:
        """Wait until no request has come for a fifth of `switch_gather_s`, at most all of it.

        Hosts come from their last leaf all at once: to wait longer would cost every rail as much.
        """
        for _ in range(GATHER_PARTS):
            before = len(self._waiting)
            await self._clock.sleep(self._limits.switch_gather_s / GATHER_PARTS)
            if len(self._waiting) == before:
                return

    def _take(self) -> list[_Waiting]:
        """Take all waiting requests, except that two VRFs for one port are taken one after the
        other.
        """
        taken: list[_Waiting] = []
        deferred: list[_Waiting] = []
        target_of: dict[str, str] = {}
        for waiting in self._waiting:
            if waiting.done.done():
                continue  # given up
            if any(target_of.get(m.interface, m.vrf) != m.vrf for m in waiting.moves):
                deferred.append(waiting)
                continue
            target_of.update({m.interface: m.vrf for m in waiting.moves})
            taken.append(waiting)
        self._waiting = deferred
        return taken

    async def _in_turn(self, batch: Sequence[_Waiting]) -> LeafOutcome:
        async with turn(self.name):
            return await self._batch(batch)

    async def _allowed(self, batch: Sequence[_Waiting]) -> list[Move]:
        """Return the moves that may still be made, since turns and tries take minutes; refuse the
        others.
        """
        for waiting in batch:
            if waiting.objections is None or waiting.done.done():
                continue
            if (blockers := tuple(await waiting.objections())) and not waiting.done.done():
                waiting.done.set_result(LeafOutcome(blockers=blockers))
        return [m for w in batch if not w.done.done() for m in w.moves]

    async def _batch(self, batch: Sequence[_Waiting]) -> LeafOutcome:
        revision = ""
        problem: PortError | None = None
        for attempt in range(TRIES_MAX):
            if attempt:
                await self._clock.sleep(self._limits.switch_poll_s * 2**attempt)
            moves = await self._allowed(batch)
            if not moves:
                return LeafOutcome(revision)
            try:
                switch = await self._source.open()
                changed = not await self._in_place(switch, moves)
                if changed:
                    revision, sent = await self._apply_described(switch)
                    await self._until(
                        partial(self._in_place, switch, [_fence_bare(m) for m in sent]),
                        Reason.ISOLATION,
                        "applied, but the ports are not where they should be",
                    )
                await self._persist(switch, changed=changed)
                await self._prove_bonds(switch, moves)
            except SwitchRefused as refusal:
                return LeafOutcome(revision, (self._source.describe(refusal),))
            except PortError as error:
                problem = error
                self._source.describe(error)
            else:
                return LeafOutcome(revision)
        assert problem is not None
        return LeafOutcome(revision, (self._source.describe(problem),))

    async def _in_place(self, switch: Switch, moves: Sequence[Move]) -> bool:
        """Return whether the moves are in force; `_persist` saves them after it.

        A port that is denied may be in any VRF: its destination is not this move's concern.
        """
        placed = await switch.read_places([m.interface for m in moves], saved=False)
        moves, lacking = await self._settle_bonds(switch, moves, placed)
        self._change = PortChange(
            tuple(moves),
            denied=frozenset(i for i, places in placed.items() if any(p.denied for p in places)),
            apart=frozenset(i for i, places in placed.items() if any(p.apart for p in places)),
            guards={i: frozenset().union(*(p.guards for p in s)) for i, s in placed.items()},
        )
        rules_hold = await self._rules_hold(switch, moves) and await _guards_hold(switch, moves)
        there = all(_is_there(m, placed[m.interface]) for m in moves)
        return rules_hold and not lacking and there

    async def _settle_bonds(
        self, switch: Switch, moves: Sequence[Move], placed: Places
    ) -> tuple[Sequence[Move], bool]:
        """Return the moves with the bonds that can be made, and whether one of these is lacking.

        A bond keeps no port from its fence: there, what cannot be read or made of it is left, and
        refused once the fence stands if its ports may be elsewhere (`_prove_bonds`).
        """
        bonds = {m.interface: m.bond for m in moves if m.bond is not None}
        if not bonds:
            return moves, False
        fence = all(m.vrf == MAINTENANCE_VRF for m in moves)
        try:
            read = await switch.read_bonds(bonds)
        except PortError as error:
            if not fence:
                raise
            read = BondsRead(obstacles=(str(error),))
        if not read.obstacles:
            return moves, read.lacking
        absent = {i for i in bonds if all(p.vrf == ABSENT for p in placed[i])}
        left = [replace(m, bond=None) for m in moves if m.interface not in absent]
        if not fence or not left:
            raise SwitchRefused(Reason.SWITCH_REFUSED, "; ".join(read.obstacles))
        return left, False

    async def _prove_bonds(self, switch: Switch, moves: Sequence[Move]) -> None:
        """Refuse a fence whose host is not behind the port that was moved, or not known to be."""
        bonds = {m.interface: m.bond for m in moves if m.bond and m.vrf == MAINTENANCE_VRF}
        read = await switch.read_bonds(bonds) if bonds else BondsRead()
        if read.lacking or read.astray:
            why = "; ".join(read.obstacles) or "the leaf has not made its bond"
            raise SwitchRefused(Reason.ISOLATION, why)

    async def _rules_hold(self, switch: Switch, moves: Sequence[Move]) -> bool:
        """Return whether the filter between hosts, where a move sets it, has its rules."""
        if not any(m.apart for m in moves):
            return True
        doors = next((m.doors for m in moves if m.doors is not None), None)
        rules = apart_filter(self._limits, doors or ())
        held = await switch.read_filter("applied")
        with_doors = doors is not None
        self._change = replace(self._change, host_filter=rules, held=held, with_doors=with_doors)
        if not is_held(held, rules, with_doors=with_doors):
            return False
        in_force = await switch.read_filter("operational")  # forwarding follows later
        return count_rules(in_force) == count_rules(held)

    async def _apply_described(self, switch: Switch) -> tuple[str, Sequence[Move]]:
        """Apply the change with the ports' descriptions; without them where the switch refuses it.

        A description only helps to notice a restore: it must never keep a port from its fence, nor
        may a bond. Returns the moves as they were sent.
        """
        sent = await _keep_descriptions(switch, self._change.moves)
        try:
            return await switch.apply_change(replace(self._change, moves=tuple(sent))), sent
        except SwitchRefused as refusal:
            plain = [_strip(m) for m in sent]
            if sent == plain or refusal.reason is not Reason.SWITCH_REFUSED:
                raise
        return await switch.apply_change(replace(self._change, moves=tuple(plain))), plain

    async def _persist(self, switch: Switch, *, changed: bool) -> None:
        """Save the applied configuration as the startup one; otherwise a reboot opens the old
        VRF.
        """
        if not changed and await switch.is_saved():
            return
        await switch.save_configuration()
        await self._until(
            switch.is_saved, Reason.ISOLATION, "startup differs from applied after saving"
        )

    async def _until(
        self, holds: Callable[[], Awaitable[bool]], reason: Reason, otherwise: str
    ) -> None:
        """Poll until it holds, at most `switch_apply_limit_s`; then it is refused.

        Pauses grow with the time waited, from a fifth of `switch_poll_s` to all of it.
        """
        began = self._clock.now()
        longest = self._limits.switch_poll_s
        while not await holds():
            waited = self._clock.now() - began
            if waited >= self._limits.switch_apply_limit_s:
                raise SwitchRefused(reason, otherwise)
            await self._clock.sleep(min(longest, max(longest / 5, waited * LATE)))

    # --- reading

    async def _read_routes(self) -> Routes | Blocker:
        try:
            return await (await self._source.open()).read_routes()
        except PortError as problem:
            return self._source.describe(problem)


def apart_filter(settings: Settings, doors: Iterable[Door] = ()) -> HostFilter:
    """Return the filter between hosts that the site's settings ask for, with these doors."""
    return make_host_filter(settings.lookup_networks, settings.lookup_reached, doors)


async def _guards_hold(switch: Switch, moves: Sequence[Move]) -> bool:
    """Return whether the tenants' filters that moves set have their rules, applied and in force."""
    desired = {m.guard: m.rules for m in moves if m.guard}
    if not desired:
        return True
    state = await switch.read_networks(())
    return all(
        filters.get(name) == rules
        for filters in (state.filters, state.filters_in_force)
        for name, rules in desired.items()
    )


async def _keep_descriptions(switch: Switch, moves: Sequence[Move]) -> list[Move]:
    """Return the moves without a description where the site wrote one of its own."""
    if not any(m.description for m in moves):
        return list(moves)
    texts: Mapping[str, str] = {}
    with suppress(SwitchRefused):  # a port without a readable description gets none
        texts = await switch.read_descriptions()
    return [
        m if may_overwrite(texts.get(m.interface, "?")) else replace(m, description="")
        for m in moves
    ]


def _fence_bare(move: Move) -> Move:
    """Return a move into maintenance without its bond, whatever became of that one."""
    return replace(move, bond=None) if move.vrf == MAINTENANCE_VRF else move


def _strip(move: Move) -> Move:
    return replace(_fence_bare(move), description="")


def _is_there(move: Move, seen: Collection[Place]) -> bool:
    """Return whether every tree has a port as its move asks. Filters leave the VRF as it is."""
    if move.denied:
        return all(place.denied for place in seen)
    if move.stays:
        return all(place.apart == move.apart for place in seen)
    guards = frozenset({move.guard} if move.guard else ())
    if any(place.guards != guards for place in seen):
        return False
    if move.apart is None:
        return {place[:2] for place in seen} == {(move.vrf, False)}
    return {place[:3] for place in seen} == {(move.vrf, False, move.apart)}
