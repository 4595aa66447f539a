"""Tenants' spaces on shared storage: read, decided, changed, read back; one writer at a time.

A node's addresses enter a space after its ports are in the tenant's network, and leave it before
they are taken out of it (`tenancy.py`). All nodes that come within `storage_gather_s` share one
change of each space. Nothing is kept in memory: rows and a reading decide, so that a successor
after a crash repeats what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import turn
from provisioner.model.events.fleet_events import SpaceChanged, SpaceForeign
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.model.storage import (
    AddressSet,
    SpaceAct,
    SpaceState,
    SpaceVerb,
    make_set_of,
    subtract,
    unite,
)
from provisioner.model.tenant import SPACE_MAKING, Phase, Tenant
from provisioner.planning.tenancy.storage import (
    ForeignHand,
    SpacePlan,
    SpaceWish,
    describe_act,
    judge_access,
    list_addresses,
    list_client_addresses,
    make_blocker,
    make_wish,
    plan_clients,
    plan_space,
)
from provisioner.ports import Clock, FabricDelta, FabricStep, HostShell, Member, PortError
from provisioner.ports.storage import Spaces, get_trials
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

TRIES_MAX = 3  # a lost answer, then another writer's change
GONE_APART_S = 30.0  # between two readings that do not show a space, before it counts as gone
MOUNTED_MAX = 3  # spaces whose exports a host tries to mount: its tenant's, and some others
TURN = "storage"  # of all writers, also of other daemons on the same database


@dataclass(frozen=True)
class StandingSpace:
    """One space against its record, for people."""

    tenant: str
    space: str
    state: SpaceState
    plan: SpacePlan


@dataclass
class _Asked:
    """One node that waits. `space` "": it leaves every space, by all of its addresses."""

    space: str
    addresses: AddressSet
    done: asyncio.Future[tuple[Blocker, ...]]


class TenantSpaces:
    """The spaces of all tenants of a site; an `Isolation` beside the fabrics' own."""

    def __init__(self, spaces: Spaces, store: SqlStore, clock: Clock, settings: Settings) -> None:
        assert settings.storage is not None
        self._spaces = spaces
        self._store = store
        self._clock = clock
        self._settings = settings
        self._system = settings.storage
        self._waiting: list[_Asked] = []
        self._task: asyncio.Task[None] | None = None
        self._told: dict[str, frozenset[ForeignHand]] = {}  # by space: each is journaled once
        self._missing: dict[str, float] = {}  # handle -> since when no reading shows it

    def name(self, tenant: Tenant) -> str:
        return self._system.name_space(tenant.name)

    async def admit(self, node: Node) -> tuple[Blocker, ...]:
        """Let a node into its tenant's space, and prove that no other space serves it."""
        tenants = await self._list_tenants()
        mine = next((t for t in tenants if t.name == node.tenant), None)
        stored = mine is not None and mine.file_storage is not None
        if not stored and not any(_has_space(t) for t in tenants):
            return ()
        addresses = list_client_addresses(node, self._system.client_networks)
        if isinstance(addresses, Blocker):
            return (addresses,) if stored else ()
        if stored:
            assert mine is not None
            refused = await self._change(self.name(mine), make_set_of(addresses))
            if refused:
                return refused
        own = self.name(mine) if stored and mine is not None else ""
        return tuple(
            make_blocker(
                Reason.ISOLATION,
                own or node.id,
                f"{address} of node {node.id}: {why}",
                "Take the address out of the other space on the storage.",
            )
            for address, right, why in await self._judge_access(own, addresses)
            if not right
        )

    async def expel(self, node: Node) -> tuple[Blocker, ...]:
        """Take a node out of every tenant's space."""
        if not any(t.is_damaged or _has_space(t) for t in await self._list_tenants()):
            return ()
        # whatever the settings say today: it may have come in when they said something else
        addresses = make_set_of(list_addresses(node))
        return await self._until_sure(lambda: self._change("", addresses))

    async def judge(self, node: Node) -> tuple[GateRow, ...]:
        """Return the rows of a release: what the storage's rules say of the node, read back now."""
        tenant = next((t for t in await self._list_tenants() if t.name == node.tenant), None)
        if tenant is None or tenant.file_storage is None:
            return ()
        space = self.name(tenant)
        addresses = list_client_addresses(node, self._system.client_networks)
        if isinstance(addresses, Blocker):
            return (_row(GateCheck.STORAGE_OPEN, space, RowVerdict.FAIL, addresses.detail),)
        state = await self._read_one(space)
        if isinstance(state, Blocker):
            return tuple(
                _row(check, space, RowVerdict.UNKNOWN, state.detail)
                for check in (GateCheck.STORAGE_OPEN, GateCheck.STORAGE_SHUT)
            )
        wish = await self._wish_of(tenant)
        asked = make_set_of(addresses)
        rows = []
        for export in tenant.file_storage.exports:
            at = state.exports.get(export.name)
            missing = asked if at is None else subtract(asked, at.clients)
            missing = unite(missing, subtract(asked, state.clients))
            verdict = RowVerdict.FAIL if missing else RowVerdict.PASS
            seen = "by its rules, read back" + (f": {at.mount}" if at and at.mount else "")
            rows.append(_row(GateCheck.STORAGE_OPEN, f"{space}/{export.name}", verdict, seen))
        excess = subtract(state.clients, unite(wish.may, asked))
        for at in state.exports.values():
            excess = unite(excess, subtract(at.clients, unite(wish.may, asked)))
        wrong = [why for _, right, why in await self._judge_access(space, addresses) if not right]
        words = wrong[0] if wrong else "no other tenant's address, by its rules, read back"
        verdict = RowVerdict.FAIL if wrong or excess else RowVerdict.PASS
        if excess and not wrong:
            words = f"it admits {excess[0]}, which no node of the tenant has"
        return (*rows, _row(GateCheck.STORAGE_SHUT, space, verdict, words))

    async def try_mounts(self, node: Node, shell: HostShell) -> tuple[GateRow, ...]:
        """Return what the host shows of its tenant's exports and of others'; () where no tenant has
        any. Its own are tried again for as long as routes may take to follow.
        """
        trials = get_trials(self._spaces)
        tenants = await self._list_tenants()
        owner = next((t for t in tenants if t.name == node.tenant), None)
        if owner is None or owner.file_storage is None or trials is None:
            return ()
        spaces = (self.name(t) for t in (owner, *tenants) if t.file_storage is not None)
        named = list(dict.fromkeys(spaces))[:MOUNTED_MAX]
        try:
            seen = await self._spaces.read(named)
        except PortError as problem:
            seen = blocked(problem, TURN)
        if isinstance(seen, Blocker):
            row = _row(GateCheck.STORAGE_OPEN, named[0], RowVerdict.UNKNOWN, seen.detail)
            return (row,)
        seen = {space: seen[space] for space in named}
        command = trials.write_trial(seen)
        until = self._clock.now() + self._settings.release_settle_s
        while command is not None:
            try:
                (told,) = await shell.run(node.id, node.address, [command])
                rows = trials.judge_trial(node.id, seen, told)
            except PortError as problem:
                unread = RowVerdict.UNKNOWN
                rows = (_row(GateCheck.STORAGE_OPEN, node.id, unread, str(problem)),)
            late = any(r.bad and r.check is GateCheck.STORAGE_OPEN for r in rows)
            if not late or self._clock.now() >= until:
                return rows
            await self._clock.sleep(self._settings.switch_poll_s)
        return ()

    async def _judge_access(
        self, own: str, addresses: Sequence[str]
    ) -> tuple[tuple[str, bool, str], ...]:
        try:
            admitting = await self._spaces.find_admitting(addresses)
        except PortError as problem:
            return tuple((a, False, str(problem)) for a in addresses)
        if isinstance(admitting, Blocker):
            return tuple((a, False, admitting.detail) for a in addresses)
        return judge_access(own, addresses, admitting)

    async def _change(self, space: str, addresses: AddressSet) -> tuple[Blocker, ...]:
        done: asyncio.Future[tuple[Blocker, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(space, addresses, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="tenants' storage")
        return await asyncio.shield(done)

    async def _serve(self) -> None:
        while self._waiting:
            await self._clock.sleep(self._settings.storage_gather_s)
            batch = self._waiting
            self._waiting = []
            try:
                async with turn(TURN):
                    told = await self._carry_out(batch)
            except PortError as problem:
                told = {a.space: (blocked(problem, TURN),) for a in batch}
            except BaseException as error:
                for asked in batch:
                    if not asked.done.done():
                        asked.done.set_exception(error)
                raise
            for asked in batch:
                if not asked.done.done():
                    asked.done.set_result(told.get(asked.space, ()))

    async def _carry_out(self, batch: Sequence[_Asked]) -> Mapping[str, tuple[Blocker, ...]]:
        """Return the blockers by the space that was asked for; "" has those of who leaves."""
        leaving: AddressSet | None = None
        entering: dict[str, AddressSet] = {}
        for asked in batch:
            if asked.space:
                held = entering.get(asked.space, ())
                entering[asked.space] = unite(held, asked.addresses)
            else:
                leaving = unite(leaving or (), asked.addresses)
        wishes = {w.space: w for w in await self._list_wishes()}
        names = [*(wishes if leaving is not None else ()), *entering]
        told: dict[str, tuple[Blocker, ...]] = {}
        for name in dict.fromkeys(names):
            wish = wishes.get(name)
            if wish is None:
                gone = make_blocker(Reason.PRECONDITION, name, "its tenant is gone", "Wait.")
                told[name] = (gone,)
                continue
            if leaving is not None:
                refused = await self._bring_clients(wish, leaving=leaving)
                told[""] = (*told.get("", ()), *refused)
            if name in entering:
                told[name] = await self._bring_clients(wish, entering=entering[name])
        return told

    async def _bring_clients(
        self, wish: SpaceWish, entering: AddressSet = (), leaving: AddressSet | None = None
    ) -> tuple[Blocker, ...]:
        """Make and prove one change of a space: done once a reading shows nothing to do."""
        wish = replace(wish, may=unite(subtract(wish.may, leaving or ()), entering))
        refused: tuple[Blocker, ...] = ()
        for _ in range(TRIES_MAX):
            state = await self._read_one(wish.space)
            if isinstance(state, Blocker):
                return (state,)
            if leaving is not None and (unsure := await self._find_unsure(wish, state)) is not None:
                return (unsure,)
            plan = plan_clients(wish, state, entering, leaving)
            if leaving is None:
                await self._tell_foreign(wish, plan.foreign)
            if plan.blockers:
                closed = await self._make(wish, plan.closing)
                return (*plan.blockers, *closed)
            if not plan.acts:
                return ()
            refused = await self._make(wish, plan.acts)
        return refused or (
            make_blocker(
                Reason.CANNOT_TELL,
                wish.space,
                "its clients are not as asked after several changes",
                "Find out who else changes it; it is tried again by itself.",
            ),
        )

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        """Return the acts that the spaces of these tenants need."""
        chosen = [t for t in tenants if _has_space(t) and (not only or t.name in only)]
        chosen = [t for t in chosen if not t.is_damaged]
        standing = await self._look(chosen)
        if isinstance(standing, Blocker):
            return FabricDelta(blockers=(standing,))
        acts = [(s, act) for s in standing for act in s.plan.acts]
        unrecorded = [s.tenant for s in standing if not s.plan.acts and _is_unrecorded(s, chosen)]
        steps = [FabricStep(TURN, (describe_act(act),), s.tenant) for s, act in acts]
        steps += [FabricStep(TURN, (f"record the space of {t}",), t) for t in unrecorded]
        return FabricDelta(
            tuple(steps), blockers=tuple(b for s in standing for b in s.plan.blockers)
        )

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        """Make and prove the spaces of a delta; each is read and planned anew."""
        blockers: list[Blocker] = []
        for name in dict.fromkeys(step.order for step in delta.steps):
            blockers += await self._until_sure(partial(self._bring_in_turn, name))
        return tuple(blockers)

    async def _bring_in_turn(self, name: str) -> tuple[Blocker, ...]:
        try:
            async with turn(TURN):
                return await self._bring_space(name)
        except PortError as problem:
            return (blocked(problem, TURN),)

    async def _until_sure(
        self, ask: Callable[[], Awaitable[tuple[Blocker, ...]]]
    ) -> tuple[Blocker, ...]:
        """Ask again, later, while the only thing in the way is a space that one reading missed.

        The turn is not held meanwhile.
        """
        told = await ask()
        if told and all(b.unblock == _READ_AGAIN for b in told):
            await self._clock.sleep(GONE_APART_S)
            told = await ask()
        return told

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker:
        """Storage has no ports."""
        return {}

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        """Storage has no ports; nodes are let in by `admit`."""
        return ()

    async def close(self) -> None:
        """Stop what waits. The caller that opened the storage closes it."""
        await end_tasks(self._task)

    async def stand(self, name: str = "") -> tuple[StandingSpace, ...] | Blocker:
        """Return the spaces of one tenant, or of all, against their records; change nothing."""
        rows = [t for t in await self._list_tenants() if _has_space(t)]
        return await self._look([t for t in rows if not name or t.name == name])

    async def mend(self, names: Collection[str]) -> tuple[Blocker, ...]:
        """Close what a foreign hand opened in these tenants' spaces; nobody is let in by it."""
        told: list[Blocker] = []
        async with turn(TURN):
            chosen = [t for t in await self._list_tenants() if t.name in names and _has_space(t)]
            for wish in [await self._wish_of(t) for t in chosen]:
                state = await self._read_one(wish.space)
                if isinstance(state, Blocker):
                    told.append(state)
                    continue
                plan = plan_space(wish, state)
                await self._tell_foreign(wish, plan.foreign)
                acts = plan.closing if plan.blockers else plan.acts
                told += await self._make(wish, [a for a in acts if a.verb not in _OPENING])
                told += plan.blockers
        return tuple(told)

    async def _bring_space(self, name: str) -> tuple[Blocker, ...]:
        refused: tuple[Blocker, ...] = ()
        removed = ""  # the handle of a space whose removal the storage has confirmed just now
        for _ in range(TRIES_MAX * 4):  # the making of a space has at most as many stages
            row = next((t for t in await self._store.tenants.list() if t.name == name), None)
            if row is None:
                return ()
            standing = await self._look([row])
            if isinstance(standing, Blocker):
                return (standing,)
            state = standing[0].state
            plan = standing[0].plan
            wish = await self._wish_of(row)
            await self._tell_foreign(wish, plan.foreign)
            if plan.blockers:
                return (*plan.blockers, *await self._make(wish, plan.closing))
            wanted = wish.storage is not None
            if wanted and state.handle != row.space_handle and state.handle:
                await self._record(row, state.handle)
                continue
            if not plan.acts:
                if not wanted and row.space_handle:
                    if removed != row.space_handle:
                        unsure = await self._find_unsure(wish, state)
                        if unsure is not None:
                            return (unsure,)
                    await self._record(row, "")
                return ()
            # a new space is recorded before anything is in it, and that it is being made before
            # that: after a crash it is known as ours, and one that a person made is not
            acts = plan.acts[:1] if plan.acts[0].verb is SpaceVerb.MAKE else plan.acts
            if acts[0].verb is SpaceVerb.MAKE and row.space_handle != SPACE_MAKING:
                await self._record(row, SPACE_MAKING)
            refused = await self._make(wish, acts)
            if refused:
                return refused
            removed = state.handle if acts[-1].verb is SpaceVerb.REMOVE else removed
        return (
            make_blocker(
                Reason.CANNOT_TELL, name, "its space is not as asked", "It is tried again."
            ),
        )

    async def _record(self, row: Tenant, handle: str) -> None:
        made = row.model_copy(update={"space_handle": handle})
        await self._store.tenants.save(
            made, new=False, nodes=(), request="storage", now=self._clock.now()
        )

    async def _list_tenants(self) -> Sequence[Tenant]:
        return await self._store.tenants.list()

    async def _list_wishes(self) -> Sequence[SpaceWish]:
        """Return all wishes; of a damaged row only a name is left, for those who leave."""
        tenants = [t for t in await self._list_tenants() if _has_space(t) or t.is_damaged]
        wish_of = await self._prepare()
        return [wish_of(t) for t in tenants]

    async def _wish_of(self, tenant: Tenant) -> SpaceWish:
        return (await self._prepare())(tenant)

    async def _prepare(self) -> Callable[[Tenant], SpaceWish]:
        """Return what makes wishes, by the nodes' rows of now."""
        nodes = await self._store.nodes.list()
        aside = await self._store.nodes.list_set_aside()
        networks = self._system.client_networks
        return lambda t: make_wish(t, nodes, self.name(t), networks, aside)

    async def _look(self, tenants: Sequence[Tenant]) -> tuple[StandingSpace, ...] | Blocker:
        if not tenants:
            return ()
        names = [self.name(t) for t in tenants]
        try:
            states = await self._spaces.read(names)
        except PortError as problem:
            return blocked(problem, TURN)
        if isinstance(states, Blocker):
            return states
        wish_of = await self._prepare()
        return tuple(
            StandingSpace(t.name, n, states[n], plan_space(wish_of(t), states[n]))
            for t, n in zip(tenants, names, strict=True)
        )

    async def _read_one(self, space: str) -> SpaceState | Blocker:
        try:
            states = await self._spaces.read([space])
        except PortError as problem:
            return blocked(problem, f"{TURN}/{space}")
        return states if isinstance(states, Blocker) else states[space]

    async def _find_unsure(self, wish: SpaceWish, state: SpaceState) -> Blocker | None:
        """Return why a space that a reading does not show by its name may serve on.

        It is gone when nothing has its handle at two readings, some time apart. A reading that
        fails, or is not whole, is none of them.
        """
        if not wish.handle or state.handle == wish.handle:
            self._missing.pop(wish.handle, None)
            return None
        try:
            named = await self._spaces.find_names([wish.handle])
        except PortError as problem:
            return blocked(problem, f"{TURN}/{wish.space}")
        if isinstance(named, Blocker):
            return named
        if (name := named.get(wish.handle)) is not None:
            self._missing.pop(wish.handle, None)
            words = f"its space is called {name[:64]} now, and serves whom it served"
            remedy = f"Call it {wish.space} again on the storage, or remove it there."
            return make_blocker(Reason.PRECONDITION, wish.space, words, remedy)
        now = self._clock.now()
        since = self._missing.setdefault(wish.handle, now)
        if now - since >= GONE_APART_S:
            return None
        words = "its space is not in the storage's list, as one reading says"
        return make_blocker(Reason.CANNOT_TELL, wish.space, words, _READ_AGAIN)

    async def _make(self, wish: SpaceWish, acts: Sequence[SpaceAct]) -> tuple[Blocker, ...]:
        """Make acts in their order up to the first refusal. Each is journaled before it is sent."""
        for act in acts:
            line = describe_act(act)
            event = SpaceChanged(space=wish.space, act=act.verb.value, text=line)
            await self._store.journal.append(event, self._clock.now())
            refused = await self._spaces.apply(act)
            if refused is not None:
                return (refused,)
        if acts:
            self._told.pop(wish.space, None)  # what is seen from now on is a new one
        return ()

    async def _tell_foreign(self, wish: SpaceWish, hands: Sequence[ForeignHand]) -> None:
        known = self._told.get(wish.space, frozenset())
        self._told[wish.space] = frozenset(hands)
        for hand in hands:
            if hand in known:
                continue
            event = SpaceForeign(
                space=wish.space, hand=hand.kind.value, subject=hand.subject, text=hand.detail
            )
            await self._store.journal.append(event, self._clock.now())


_READ_AGAIN = f"It is read again by itself, {GONE_APART_S:.0f} s later."
_OPENING = (SpaceVerb.ADMIT, SpaceVerb.MAKE)


def _has_space(tenant: Tenant) -> bool:
    return not tenant.is_damaged and (tenant.file_storage is not None or bool(tenant.space_handle))


def _is_unrecorded(standing: StandingSpace, tenants: Sequence[Tenant]) -> bool:
    """Return whether the row has another space than the storage."""
    row = next(t for t in tenants if t.name == standing.tenant)
    if row.file_storage is None or row.phase is Phase.LEAVING:
        return bool(row.space_handle)
    return standing.state.handle != row.space_handle


def _row(check: GateCheck, subject: str, verdict: RowVerdict, seen: str) -> GateRow:
    return GateRow(check=check, subject=subject, verdict=verdict, seen=seen[:300])
