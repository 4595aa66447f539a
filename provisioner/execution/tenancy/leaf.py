"""One leaf: moves of many nodes' ports gathered into one revision, and proved by reading back.

Rule: what was asked for is never believed. Every try begins and ends with a look at the
operational state, so that a lost answer, a crash, or somebody else's revision is repaired by
looking; doing it again is harmless. Nothing is kept in memory that matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.tenancy.leaf_filter import (
    FilterState,
    apart_filter,
    read_filter,
    read_filter_state,
)
from provisioner.execution.tenancy.leaf_line import (
    LeafLine,
    Lookup,
    Place,
    Refused,
    TenantPort,
    Views,
    keep_descriptions,
    places,
    read_labels,
    read_tenant_ports,
    views,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.port_label import PortLabel
from provisioner.ports import Clock, Malformed, PortError, SwitchTransport
from provisioner.settings import Settings
from provisioner.switches import cumulus, cumulus_filter
from provisioner.switches.cumulus import Move

# Tries of one batch: a lost answer, then a revision that raced with somebody else's.
TRIES_MAX = 3
GATHER_PARTS = 5
# A look comes late by at most this part of what has been waited for, so that polling costs a tenth
# of the switch's own time and some thirty requests until the longest pause is reached.
LATE = 0.1
# Refusals that one port of a batch may bring on all of it.
_OF_ONE_PORT = (Reason.SWITCH_REFUSED, Reason.MALFORMED)

Routes = Mapping[str, tuple[str, ...]]  # VRF -> prefixes
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

    def __init__(
        self, name: str, lookup: Lookup, transport: SwitchTransport, clock: Clock, limits: Settings
    ) -> None:
        self.name = name
        self._line = LeafLine(name, lookup, transport, clock)
        self._clock = clock
        self._limits = limits
        self._waiting: list[_Waiting] = []
        self._denied: frozenset[str] = frozenset()  # ports of the batch that let nothing through
        self._apart: frozenset[str] = frozenset()  # and those with the filter between hosts
        self._rules: Mapping[str, Any] = {}  # that this filter lacks
        self._writer: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[Routes | Blocker] | None = None

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
        tasks = [t for t in (self._writer, self._reading) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def vrfs(self, interfaces: Sequence[str]) -> Views | Blocker:
        """Every VRF that each of these ports is in, or will be in by itself.

        One, if it is settled: the operational state, what was applied, what a reboot would bring,
        and what every revision on its way would make of it all agree.
        """
        try:
            return await views(self._line, interfaces)
        except (PortError, Refused) as problem:
            return self._line.blocker(problem)

    async def tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort] | Blocker:
        """Return every port of the leaf that is, or will be, in a VRF not in `site_vrfs`."""
        try:
            return await read_tenant_ports(self._line, site_vrfs)
        except (PortError, Refused) as problem:
            return self._line.blocker(problem)

    async def filter_state(self) -> FilterState | Blocker:
        """Return the filter between hosts, and the ports that have it, in every tree."""
        try:
            return await read_filter_state(self._line)
        except (PortError, Refused) as problem:
            return self._line.blocker(problem)

    async def labels(self) -> Mapping[str, PortLabel] | Blocker:
        """Return what our descriptions at this leaf's ports say."""
        try:
            return await read_labels(self._line)
        except (PortError, Refused) as problem:
            return self._line.blocker(problem)

    async def routes(self) -> Routes | Blocker:
        """Routes of every VRF, read after this was called; callers at one time share a reading."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._routes(), name=f"routes of {self.name}")
        return await asyncio.shield(self._reading)

    # --- the writer: one batch after the other while anybody waits

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
                    waiting.done.set_exception(error)  # ours: whoever waits reports it
            self._waiting.clear()
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._writer = None

    async def _gather(self) -> None:
        """Until nobody has come for a fifth of `switch_gather_s`, at most all of it.

        Hosts come from their last leaf all at once: to wait longer would cost every rail as much.
        """
        for _ in range(GATHER_PARTS):
            before = len(self._waiting)
            await self._clock.sleep(self._limits.switch_gather_s / GATHER_PARTS)
            if len(self._waiting) == before:
                return

    def _take(self) -> list[_Waiting]:
        """Everybody who waits, except where two want one port in different VRFs: later."""
        taken: list[_Waiting] = []
        left: list[_Waiting] = []
        wanted: dict[str, str] = {}
        for waiting in self._waiting:
            if waiting.done.done():
                continue  # given up
            if any(wanted.get(m.interface, m.vrf) != m.vrf for m in waiting.moves):
                left.append(waiting)
                continue
            wanted.update({m.interface: m.vrf for m in waiting.moves})
            taken.append(waiting)
        self._waiting = left
        return taken

    async def _in_turn(self, batch: Sequence[_Waiting]) -> LeafOutcome:
        async with turn(self.name):
            return await self._batch(batch)

    async def _allowed(self, batch: Sequence[_Waiting]) -> list[Move]:
        """Moves that may still be made: turns and tries take minutes. The others are refused."""
        for waiting in batch:
            if waiting.objections is None or waiting.done.done():
                continue
            if (found := tuple(await waiting.objections())) and not waiting.done.done():
                waiting.done.set_result(LeafOutcome(blockers=found))
        return [m for w in batch if not w.done.done() for m in w.moves]

    async def _batch(self, batch: Sequence[_Waiting]) -> LeafOutcome:
        revision = ""
        problem: PortError | Refused | None = None
        for attempt in range(TRIES_MAX):
            if attempt:
                await self._clock.sleep(self._limits.switch_poll_s * 2**attempt)
            moves = await self._allowed(batch)
            if not moves:
                return LeafOutcome(revision)
            try:
                changed = not await self._in_place(moves)
                if changed:
                    revision = await self._revise_described(moves)
                    await self._until(
                        partial(self._in_place, moves),
                        Reason.ISOLATION,
                        "applied, but the ports are not where they should be",
                    )
                await self._persist(changed=changed)
            except PortError as error:
                problem = error
            except Refused as refusal:
                return LeafOutcome(revision, (self._line.blocker(refusal),))
            else:
                return LeafOutcome(revision)
        assert problem is not None
        return LeafOutcome(revision, (self._line.blocker(problem),))

    async def _in_place(self, moves: Sequence[Move]) -> bool:
        """Not yet that it is saved: `_persist` comes after it.

        A port that is denied may stand anywhere: where it goes is not this move's concern.
        """
        seen = await places(self._line, [m.interface for m in moves], saved=False)
        self._denied = frozenset(i for i, found in seen.items() if any(p.denied for p in found))
        self._apart = frozenset(i for i, found in seen.items() if any(p.apart for p in found))
        rules_hold = await self._rules_hold(moves)
        return rules_hold and all(_is_there(m, seen[m.interface]) for m in moves)

    async def _rules_hold(self, moves: Sequence[Move]) -> bool:
        """Whether the filter between hosts, where a move sets it, has its rules."""
        self._rules = {}
        if not any(m.apart for m in moves):
            return True
        doors = next((m.doors for m in moves if m.doors is not None), None)
        wanted = apart_filter(self._limits, doors or ())
        held = await read_filter(self._line, "applied")
        with_doors = doors is not None
        self._rules = cumulus_filter.missing_rules(held, wanted, with_doors=with_doors)
        if not cumulus_filter.holds(held, wanted, with_doors=with_doors):
            return False
        done = await read_filter(self._line, "operational")  # forwarding follows later
        return cumulus_filter.count_rules(done) == cumulus_filter.count_rules(held)

    async def _others_end(self) -> None:
        """Wait for a revision of a writer that died, at most for `switch_apply_limit_s`.

        A revision that is made meanwhile is made on what is about to change.
        """
        until = self._clock.now() + self._limits.switch_apply_limit_s
        while cumulus.read_sent(await self._line.get(cumulus.REVISIONS_PATH)):
            if self._clock.now() >= until:
                return  # a switch that is stuck: the port's move is tried all the same
            await self._clock.sleep(self._limits.switch_poll_s / 5)

    async def _revise_described(self, moves: Sequence[Move]) -> str:
        """Revise with the ports' descriptions; without them where the switch refuses that.

        A description only helps to notice a restore: it must never keep a port from its fence.
        """
        described = await keep_descriptions(self._line, moves)
        try:
            return await self._revise(described)
        except Refused as refusal:
            plain = [replace(m, description="") for m in moves]
            if described == plain or refusal.reason is not Reason.SWITCH_REFUSED:
                raise
        return await self._revise(plain)

    async def _revise(self, moves: Sequence[Move]) -> str:
        """One revision with all moves, applied. Its name as the proof shows it."""
        await self._others_end()
        revision = cumulus.read_revision_id(await self._line.ask(cumulus.new_revision()))
        if revision is None:
            raise Malformed("a new revision without a name")
        await self._line.ask(
            cumulus.move_ports(revision, moves, self._denied, self._apart, self._rules)
        )
        await self._line.ask(cumulus.apply(revision))
        state: cumulus.RevisionState | None = None

        async def ended() -> bool:
            nonlocal state
            state = cumulus.read_revision(await self._line.get(cumulus.revision_path(revision)))
            return state is not None and not state.under_way

        await self._until(ended, Reason.SWITCH_REFUSED, f"revision {revision} does not end")
        assert state is not None
        if not state.applied:
            words = f"revision {revision} is {state.state}: {state.issue or 'no reason given'}"
            raise Refused(Reason.SWITCH_REFUSED, words)
        return revision

    async def _persist(self, *, changed: bool) -> None:
        """What is applied is what the switch starts with: else a reboot opens the old VRF."""

        async def equal() -> bool:
            trees = ("applied", "startup")
            applied, startup = await asyncio.gather(
                *(self._line.get(cumulus.tree_path(tree)) for tree in trees)
            )
            return bool(applied == startup)

        if not changed and await equal():
            return
        await self._line.ask(cumulus.save())
        await self._until(equal, Reason.ISOLATION, "startup differs from applied after saving")

    async def _until(
        self, holds: Callable[[], Awaitable[bool]], reason: Reason, otherwise: str
    ) -> None:
        """Poll until it holds, at most `switch_apply_limit_s`; then it is refused.

        Pauses grow with the time waited, from a fifth of `switch_poll_s` to all of it.
        """
        began, longest = self._clock.now(), self._limits.switch_poll_s
        while not await holds():
            waited = self._clock.now() - began
            if waited >= self._limits.switch_apply_limit_s:
                raise Refused(reason, otherwise)
            await self._clock.sleep(min(longest, max(longest / 5, waited * LATE)))

    # --- reading

    async def _routes(self) -> Routes | Blocker:
        try:
            await self._clock.sleep(self._limits.switch_gather_s)
        finally:
            self._reading = None  # whoever comes from now on needs a later reading
        try:
            names = cumulus.read_names(await self._line.get(cumulus.VRFS_PATH))
            if not names:
                raise Refused(Reason.MALFORMED, "no readable list of VRFs")
            answers = await asyncio.gather(
                *(self._line.get(cumulus.routes_path(name)) for name in names)
            )
            found = {}
            for name, answer in zip(names, answers, strict=True):
                routes = cumulus.read_routes(answer)
                if routes is None:
                    raise Refused(Reason.MALFORMED, f"VRF {name[:20]}: no readable routes")
                found[name] = routes
        except (PortError, Refused) as problem:
            return self._line.blocker(problem)
        return found


def _is_there(move: Move, seen: Collection[Place]) -> bool:
    """Whether every tree has a port as its move asks. Filters leave the VRF as it is."""
    if move.denied:
        return all(place.denied for place in seen)
    if move.stays:
        return all(place.apart == move.apart for place in seen)
    if move.apart is None:
        return {place[:2] for place in seen} == {(move.vrf, False)}
    return seen == {(move.vrf, False, move.apart)}
