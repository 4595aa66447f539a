"""Keeps alerts: takes reports in, writes what changed, and has the reconciler look at the node.

Nothing is kept in memory: the store is read before each change, so that a person's word from
another process counts at once, and a daemon that comes back knows what its predecessor knew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from provisioner.model.alert import Alert, Override, Signal
from provisioner.model.base import Record
from provisioner.model.events.fleet_events import AlertCleared, AlertRaised, OverrideEnded
from provisioner.model.node import Node, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification import certification
from provisioner.planning.watch import alerts as rules
from provisioner.planning.watch import watch_rules
from provisioner.planning.watch.watch_rules import Counters, Found, Interruption, signal_of
from provisioner.ports import Clock
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The counters of serving nodes' ports for a while, and the conditions that follow from them.
#
# The memory is bounded and is lost with the process: counters come again at the next look.


PORTS_MAX = 65_536  # 4,096 nodes with 16 ports each: some 100 MB at most
LOOKS_KEPT = 3  # readings for the rules
LOSSES_KEPT = 32  # more than any rule counts


class PortReport(Record):
    """A report from outside of a port's counters, or of its link going down or coming up."""

    node: str
    port: str
    counters: Counters | None = None
    link: str = ""  # "down" | "up" | "": nothing is said of it
    at: float


class PortWatch:
    """The newest looks at each port, and its losses."""

    def __init__(self) -> None:
        self._looks: OrderedDict[tuple[str, str], deque[Counters]] = OrderedDict()
        self._losses: OrderedDict[tuple[str, str], deque[Interruption]] = OrderedDict()

    def take(self, report: PortReport) -> None:
        """Record one report; one that is older than the last one is dropped."""
        key = (report.node, report.port)
        self._unseen(key, report)
        if report.counters is not None:
            looks = self._looks.setdefault(key, deque(maxlen=LOOKS_KEPT))
            if not looks or report.counters.at > looks[-1].at:
                looks.append(report.counters)
            self._looks.move_to_end(key)
        if report.link:
            losses = self._losses.setdefault(key, deque(maxlen=LOSSES_KEPT))
            last = losses[-1] if losses else None
            down = last is not None and last.up_at is None
            if report.link == "down" and not down:
                losses.append(Interruption(down_at=report.at))
            elif report.link == "up" and down and last is not None and report.at >= last.down_at:
                losses[-1] = last.model_copy(update={"up_at": report.at})
            self._losses.move_to_end(key)
        for memory in (self._looks, self._losses):
            while len(memory) > PORTS_MAX:
                memory.popitem(last=False)

    def _unseen(self, key: tuple[str, str], report: PortReport) -> None:
        """Add losses between two readings of a source that reports state and counter together.

        A loss and a return count two changes; the one that the state shows is not counted twice.
        """
        looks = self._looks.get(key)
        losses = self._losses.get(key)
        if not looks or report.counters is None or not report.link:
            return
        if losses and losses[-1].up_at is None:
            return  # it is down: how often it came and went meanwhile makes no difference
        changes = watch_rules.compute_growth((looks[-1], report.counters), "carrier_changes") or 0
        shown = int(report.link == "down")
        hidden = min(max(0, changes - shown) // 2, LOSSES_KEPT)
        losses_kept = self._losses.setdefault(key, deque(maxlen=LOSSES_KEPT))
        losses_kept.extend([Interruption(down_at=report.at, up_at=report.at)] * hidden)

    def forget(self, nodes: Collection[str]) -> None:
        """Forget nodes that serve no more: restarts and moves between two tenants are no flaps."""
        for memory in (self._looks, self._losses):
            for key in [k for k in memory if k[0] in nodes]:
                del memory[key]

    def list_nodes(self) -> frozenset[str]:
        return frozenset(node for node, _ in (*self._looks, *self._losses))

    def read_report_times(self) -> dict[str, dict[str, float]]:
        """Return by node and port when its newest counters were taken; 0: only its link is
        known.
        """
        read_at: dict[str, dict[str, float]] = {}
        for node, port in (*self._losses, *self._looks):
            looks = self._looks.get((node, port))
            read_at.setdefault(node, {})[port] = looks[-1].at if looks else 0.0
        return read_at

    def list_standing(self, now: float) -> dict[str, list[Found]]:
        """Return all that stands, by node; a node without anything is in it too, with nothing."""
        conditions: dict[str, list[Found]] = {node: [] for node in self.list_nodes()}
        for (node, port), losses in self._losses.items():
            conditions[node] += watch_rules.link_flaps(port, tuple(losses), now)
        rates = {}
        for (node, port), looks in self._looks.items():
            readings = tuple(looks)
            conditions[node] += watch_rules.carrier_changes(port, readings)
            conditions[node] += watch_rules.stuck_queue(port, readings)
            conditions[node] += watch_rules.held_by_watchdog(port, readings)
            if rate := watch_rules.per_second(readings):
                rates[node, port] = rate
        for node, more in watch_rules.find_rocet_outliers(rates).items():
            conditions[node] += more
        looks_at = {key: tuple(looks) for key, looks in self._looks.items()}
        for node, more in watch_rules.find_slow_receivers(looks_at).items():
            conditions[node] += more
        return conditions


Submit = Callable[[str], Awaitable[None]]
# whose certificate can still be revoked; the others are on their way to a new one
CERTIFIED = frozenset({State.CERTIFIED, State.RELEASED})


class AlertKeeper:
    """`submit` hands an operation to the engine; `on_raised` gets a node with a new alert."""

    def __init__(
        self,
        book: SqlAlertRepository,
        store: SqlStore,
        clock: Clock,
        submit: Submit,
        on_raised: Callable[[str], None] | None = None,
    ) -> None:
        self.book = book
        self._store = store
        self._clock = clock
        self._submit = submit
        self._locks: dict[str, asyncio.Lock] = {}
        self._on_raised = on_raised

    async def report(self, node: str, signals: Sequence[Signal]) -> tuple[Alert, ...]:
        """Take reports of single conditions; what changed."""
        if not signals:
            return ()
        async with self._lock(node):
            stored = {a.key: a for a in await self.book.list(node)}
            changed: dict[tuple[str, str, str], Alert] = {}
            for received in signals:
                standing = {k: a for k, a in {**stored, **changed}.items() if a.active}
                signal = rules.bound_signal(standing, received)
                key = (signal.node, signal.id, signal.target)
                new = rules.apply_signal(changed.get(key) or stored.get(key), signal)
                if new is not None:
                    changed[key] = new
            return await self._write(node, stored, tuple(changed.values()))

    async def level(
        self,
        node: str,
        seen: Mapping[str, Sequence[Found | Signal]],
        unread: Collection[str] = (),
    ) -> tuple[Alert, ...]:
        """Take all present conditions of these sources; their other alerts are over, but for those
        of targets that are unread.
        """
        now = self._clock.now()
        async with self._lock(node):
            stored = {a.key: a for a in await self.book.list(node)}
            changed: dict[tuple[str, str, str], Alert] = {}
            for source, conditions in seen.items():
                signals = [signal_of(one, node, source, now) for one in conditions]
                present = tuple({**stored, **changed}.values())
                found = rules.level_source(present, source, signals, now, unread)
                changed |= {a.key: a for a in found}
            return await self._write(node, stored, tuple(changed.values()))

    async def tidy(
        self, nodes: Mapping[str, Node], is_ours: Callable[[Node | None], bool] = lambda _: True
    ) -> None:
        """Record changes by time alone: ends of flapping and of overrides, proofs that came.

        `is_ours`: whether this daemon does so for a node, or for one that is none of `nodes`.
        """
        now = self._clock.now()
        for override in await self.book.list_overrides():
            if override.until <= now and is_ours(nodes.get(override.node)):
                await self.book.drop_override(override)
                event = OverrideEnded(about=override.node, **override.model_dump())
                await self._store.journal.append(event, now)
        standing: dict[str, list[Alert]] = {}
        for alert in await self.book.list():
            standing.setdefault(alert.node, []).append(alert)
        for name, alerts in standing.items():
            node = nodes.get(name)
            if not is_ours(node):
                continue
            issued = await self._issued_at(node)
            changed = []
            for alert in alerts:
                new = rules.settle_flapping(alert, now)
                if new is None and issued is not None:
                    new = rules.supersede_alert(alert, issued, now)
                changed += [new] if new is not None else []
            if changed:
                async with self._lock(name):
                    await self._write(name, {a.key: a for a in alerts}, tuple(changed))
            if node is not None:
                await self.consider(node)

    async def consider(self, node: Node) -> bool:
        """Have the reconciler look at a node whose certificate an alert takes away."""
        if node.state not in CERTIFIED or not node.certificate:
            return False
        blockers = await find_revocation(self.book, self._store, node, self._clock.now())
        over = Reason.CERTIFICATE_EXPIRED  # which is not written: the node's row says it was seen
        noted = over in {b.reason for b in node.blockers}
        # noted while the clock was ahead: the driver reads it again, and takes the note away
        is_stale = noted and over not in {b.reason for b in blockers}
        if not is_stale and noted and all(b.reason is over for b in blockers):
            return False
        if not blockers and not is_stale:
            return False
        if await self._store.evidence.is_revoked(node.certificate):
            return False
        operation = await self._store.operations.open(node.id, "alert", self._clock.now())
        if operation is not None:  # else it is looked at already; the next round asks again
            await self._submit(operation.id)
        return operation is not None

    async def list_held_nodes(self) -> frozenset[str]:
        """Return the nodes that no tenant may get."""
        now = self._clock.now()
        overrides = await self.book.list_overrides()
        standing = await self.book.list()
        return frozenset(a.node for a in standing if rules.is_held((a,), overrides, now))

    async def _issued_at(self, node: Node | None) -> float | None:
        if node is None or not node.certificate:
            return None
        certificate = await self._store.evidence.get_certificate(node.certificate)
        return None if certificate is None else certificate.issued_at

    async def _write(
        self, node: str, known: Mapping[tuple[str, str, str], Alert], changed: Sequence[Alert]
    ) -> tuple[Alert, ...]:
        """Write; only what people want to know goes into the journal, repeats do not."""
        if not changed:
            return ()
        now = self._clock.now()
        events = [e for a in changed if (e := _describe(known.get(a.key), a)) is not None]
        await self.book.put(changed, events, now)
        if self._on_raised is not None and any(isinstance(e, AlertRaised) for e in events):
            self._on_raised(node)
        return tuple(changed)

    def _lock(self, node: str) -> asyncio.Lock:
        return self._locks.setdefault(node, asyncio.Lock())


async def find_revocation(
    book: SqlAlertRepository | None, store: SqlStore, node: Node, now: float
) -> tuple[Blocker, ...]:
    """Why alerts of a node, or its time, take its certificate away, as blockers; () if not."""
    certificate = (
        await store.evidence.get_certificate(node.certificate) if node.certificate else None
    )
    if certificate is None:
        return ()
    over = certification.find_expiry(certificate, now)
    alerts = [] if book is None else await book.list(node.id)
    if book is None or not any(set(a.classifications) & rules.REVOKING for a in alerts if a.active):
        return over
    overrides: Sequence[Override] = await book.list_overrides(node.id)
    return (*rules.list_revocations(alerts, overrides, certificate.issued_at, now), *over)


def _describe(old: Alert | None, new: Alert) -> AlertRaised | AlertCleared | None:
    """Return the event of a change; None for a repeat."""
    was = old is not None and old.active
    if was == new.active and old is not None and old.flapping == new.flapping:
        return None
    event_class = AlertRaised if new.active else AlertCleared
    return event_class(
        about=new.node,
        id=new.id,
        target=new.target,
        classifications=new.classifications,
        message=new.message if new.active else new.cleared_why,
        source=new.source,
        flapping=new.flapping,
    )
