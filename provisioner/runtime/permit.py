"""The gate before every request to a device: it decides whether this process may still act.

A daemon among several may have been stopped (SIGSTOP, a frozen machine) and replaced meanwhile.
When it continues, its first request to a device checks here and finds out. A daemon whose database
lost writes only reads: every request that would change a device is refused here, before it is sent.
So does a daemon that was started with `--observe`, for as long as it runs.

Where adopted nodes exist, a write leaves only inside of `name_act`: a part that forgot the gate of
capabilities cannot write to any device.

A request counts as a write unless its caller declares that it only reads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from provisioner.model.adoption.capability import Capability, Grant
from provisioner.model.events.event import Event
from provisioner.model.events.request_events import ActWithheld
from provisioner.model.node import Node, Origin
from provisioner.planning.release.adoption import describe_refusal
from provisioner.ports import Clock
from provisioner.ports import NotGranted as PortsNotGranted
from provisioner.ports.errors import LookOnly, NotGranted

# ------------------------------------------------------------------------------
# State of one process: its permit to act, and the switch turns that it takes.
#
# In production a process holds one daemon and one scope. A simulation runs several daemons in one
# process: each runs in a context of its own, in which `simulate` has set its scope. The default is
# the process's own scope in every thread and every context, so that no task can lose the permit
# because of the place where it was created.


Locks = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]


@dataclass(eq=False)
class Scope:
    """`checks` and `closed` decide on requests; `turns` are shared with other processes."""

    checks: list[Callable[[], None]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)  # reasons why no device may be changed
    observes: bool = False  # it was started to read alone (`serve --observe`)
    names_acts: bool = False  # adopted nodes exist: each write has to be named to their gate
    turns: list[Any] = field(default_factory=list)  # of `leaf_turns.Shared`
    notices: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by subject, for people
    limited: Counter[str] = field(default_factory=Counter)  # requests over a limit, by its kind
    log_messages: Counter[str] = field(default_factory=Counter)  # of machines, by their outcome
    counts: dict[str, int] = field(default_factory=dict)  # gauges of this process, by name
    heard: dict[str, tuple[float, bool]] = field(default_factory=dict)  # see `note_heard`
    locks: Locks = field(default_factory=WeakKeyDictionary)


_PROCESS = Scope()
_simulated: ContextVar[Scope | None] = ContextVar("simulated process", default=None)


def get_scope() -> Scope:
    return _simulated.get() or _PROCESS


def set_simulated_scope(scope: Scope) -> None:
    """Make this context, and the tasks that are created in it, a process of its own."""
    _simulated.set(scope)


WITHHELD = "withheld"  # the count of acts that were not sent
OBSERVES = "it was started with --observe"
Guard = Callable[[], str]  # returns why an act may not be sent now; "" if it may
_reads: ContextVar[bool] = ContextVar("reads", default=False)
_act: ContextVar[Guard | None] = ContextVar("act", default=None)


def ask(*, writes: bool = True) -> None:
    """Return if the request may be sent; in a process that may not act, a check does not return.

    Raises `LookOnly` for a request that `writes`, outside of `reading`, while the gate is closed.
    """
    scope = get_scope()
    for check in scope.checks:
        check()
    if writes and scope.closed and not _reads.get():
        count_withheld()
        raise LookOnly(f"nothing is written to any device: {scope.closed[-1]}")
    if writes and scope.names_acts and not _reads.get():
        guard = _act.get()
        why = "an act whose device was not named to the gate" if guard is None else guard()
        if why:
            count_withheld()
            raise NotGranted(why)


@contextmanager
def name_act(guard: Guard) -> Iterator[None]:
    """Within the block, this task sends an act on devices that the gate knows, and `guard` judges.

    The guard is asked again just before each request leaves: a grant may have been withdrawn since.
    """
    token = _act.set(guard)
    try:
        yield
    finally:
        _act.reset(token)


def require_names(*, required: bool) -> None:
    """From now on, refuse every write that no gate has named: adopted nodes exist."""
    get_scope().names_acts = required


def get_closing_reason() -> str:
    """Return why no device may be changed; "" if the gate is open."""
    reasons = get_scope().closed
    return reasons[-1] if reasons else ""


HEARD_MAX = 32_768  # devices; a site has some 18,000


def note_heard(url: str, at: float, *, answered: bool) -> None:
    """Remember whether the device at `url` gave any answer to a request, as HOST:PORT."""
    heard = get_scope().heard
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    if parts.scheme and where and (where in heard or len(heard) < HEARD_MAX):
        if ":" not in where.rpartition("]")[2]:
            where += ":80" if parts.scheme == "http" else ":443"
        heard[where] = (at, answered)


def take_heard(since: float) -> Mapping[str, bool]:
    """Which devices answered their last request, of those asked since then; forget the others."""
    heard = get_scope().heard
    for where in [w for w, (at, _) in heard.items() if at < since]:
        del heard[where]
    return {where: answered for where, (_, answered) in heard.items()}


def count_withheld() -> None:
    """Count an act that was refused before it was sent."""
    counts = get_scope().counts
    counts[WITHHELD] = counts.get(WITHHELD, 0) + 1


def is_observing() -> bool:
    """Return whether this process was started to read alone, and never acts."""
    return get_scope().observes


@contextmanager
def observe() -> Iterator[None]:
    """Within the block, this process only reads: no later decision opens the gate."""
    scope = get_scope()
    scope.observes = True
    try:
        with close_gate(OBSERVES):
            yield
    finally:
        scope.observes = False


@contextmanager
def require_check(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `check` before every request to a device."""
    checks = get_scope().checks
    checks.append(check)
    try:
        yield
    finally:
        checks.remove(check)


@contextmanager
def close_gate(why: str) -> Iterator[None]:
    """Within the block, refuse every request that writes: the daemon only reads."""
    reasons = get_scope().closed
    reasons.append(why)
    try:
        yield
    finally:
        reasons.remove(why)


@contextmanager
def allow_reads() -> Iterator[None]:
    """Within the block, this task declares that its requests change nothing."""
    token = _reads.set(True)
    try:
        yield
    finally:
        _reads.reset(token)


# ------------------------------------------------------------------------------
# The gate that every act on an adopted node passes: its capability must be granted by a person.
#
# A node that was detached passes it with nothing, whatever is granted.
#
# The gated ports (`adapters/granted`) ask it about each act before they hand the act on, and have
# it ask again, by the permit, just before the request leaves. A refused act raises `NotGranted`, is
# shown on the node as one that would have been sent, and is recorded in the journal once an hour.


AGAIN_S = 3600.0  # the journal says of the same act again after this
NOTED_MAX = 4096  # acts that are remembered, the oldest are forgotten first


@dataclass(frozen=True)
class Need:
    """A capability that an act needs over one adopted node, and the act's effect on that node."""

    node: Node
    capability: Capability
    act: str


class _Guarded(Protocol):
    async def list_guarded(self) -> Sequence[Node]: ...


class _Grants(Protocol):
    @property
    def newest(self) -> Sequence[Grant]: ...

    async def list(self) -> Sequence[Grant]: ...


class _Journal(Protocol):
    async def append(self, event: Event, now: float) -> None: ...


class GuardedRows(Protocol):
    """What a gate needs of the store, which stands above this floor."""

    @property
    def nodes(self) -> _Guarded: ...

    @property
    def grants(self) -> _Grants: ...

    @property
    def journal(self) -> _Journal: ...


class CapabilityGate:
    """One instance serves all gated ports of a daemon."""

    def __init__(self, store: GuardedRows, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._detached: Mapping[str, Node] = {}
        self._noted: dict[tuple[str, str], float] = {}  # (node, act) -> when it was recorded

    async def open(self) -> None:
        """Require every write to be named, if the site has adopted or detached nodes.

        A request that waits is judged by the detached nodes as they were at the last call.
        """
        guarded = await self.list_guarded()
        self._detached = {n.id: n for n in guarded if n.origin is Origin.DETACHED}
        require_names(required=bool(guarded))

    def close(self) -> None:
        """Require names no longer: the daemon has stopped."""
        require_names(required=False)

    async def list_guarded(self) -> Sequence[Node]:
        """Return all adopted and detached nodes, also those set aside for a damaged row."""
        return await self._store.nodes.list_guarded()

    async def find_refusal(self, node: Node, capability: Capability) -> str:
        """Return why a capability may not be used on a node; "" if it may."""
        if node.origin is Origin.TAKEN_IN:
            return ""
        return describe_refusal(node, capability, await self._store.grants.list())

    async def admit(self, needs: Collection[Need]) -> None:
        """Return if an act may be sent. Raises `NotGranted`, and records that it would be."""
        for need in needs:
            if why := await self.find_refusal(need.node, need.capability):
                count_withheld()
                await self.note_would(need, why)
                raise PortsNotGranted(f"{why}; it would: {need.act}"[:400])

    async def note_would(self, need: Need, why: str) -> None:
        """Record an act that would have been sent, unless the journal has it of this hour."""
        key = (need.node.id, need.act)
        now = self._clock.now()
        if now - self._noted.get(key, -AGAIN_S) < AGAIN_S:
            return
        self._noted.pop(key, None)
        self._noted[key] = now
        while len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        event = ActWithheld(about=need.node.id, act=need.act[:300], needs=need.capability, why=why)
        await self._store.journal.append(event, now)

    @contextmanager
    def guard(self, needs: Collection[Need]) -> Iterator[None]:
        """Within the block, requests may leave while the grants, as last known here, allow it."""

        def find_reason() -> str:
            grants = self._store.grants.newest
            nodes = self._detached
            reasons = (
                describe_refusal(nodes.get(n.node.id, n.node), n.capability, grants) for n in needs
            )
            return next((why for why in reasons if why), "")

        with name_act(find_reason):
            yield
