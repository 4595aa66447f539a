"""The state of the watch, gathered for people: nothing is asked or changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from provisioner.control.watch.watcher import ALONE, PortWatches, Watcher
from provisioner.model.alert import WatchedBmc, WatchedNode, WatchStatus
from provisioner.model.events.fleet_events import ClockDoubted, ClockTrusted
from provisioner.model.node import BmcRef, Node
from provisioner.ports import Clock
from provisioner.runtime import permit
from provisioner.runtime.wall_clock import STEP_MAX_S, WallClock
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The trust in the clock: a step of the time stops decisions until a person has looked.
#
# Expiry, notices and windows are judged by the clock, and their consequences affect machines that
# serve. So a step of minutes against the boot clock, and a start far from the last stored time, are
# not decided upon: nothing is begun, the log, the journal and `GET /v1/health` give the reason, and
# `provisioner clock accept` is a person's confirmation of the new time. Actions under way on
# devices
# continue meanwhile, by the boot clock.


log = logging.getLogger(__name__)

CHECK_S = 5.0  # of real time, between two readings
KEEP_S = 60.0  # the stored time is at most this old
# A daemon that was stopped for longer asks a person: a clock that is days ahead looks the same, and
# by it certificates would lapse and notices to tenants run out.
GAP_MAX_S = 2 * 86400.0
LAST = "last"
ACCEPTED = "accepted"
REMEDY = "Set the machine's clock right, or, if it is right, run `provisioner clock accept`."


class TimeStanding:
    """One per daemon. `sure` returns as soon as decisions may be made."""

    def __init__(self, store: SqlStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock if isinstance(clock, WallClock) else None  # virtual time has no steps
        self.why = ""  # why nothing is decided
        self._sure = asyncio.Event()
        self._sure.set()
        self._began_after: float | None = None  # the last time stored, while the start is in doubt
        self._accepted: float | None = None
        self._kept_at = 0.0

    async def await_time(self) -> None:
        """Wait until decisions may be made."""
        await self._sure.wait()

    async def begin(self) -> None:
        if self._clock is None:
            return
        self._accepted = await self._store.clock_marks.get(ACCEPTED)
        if self._clock.speed == 1.0:  # a simulated site's time jumps while no daemon runs
            self._began_after = await self._store.clock_marks.get(LAST)
        await self.compare_clocks()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.compare_clocks()

    async def compare_clocks(self) -> None:
        """Read both clocks once, and begin or end the doubt."""
        assert self._clock is not None
        now = self._clock.now()
        why = self._judge(self._clock, now)
        if why:
            accepted = await self._store.clock_marks.get(ACCEPTED)
            if accepted != self._accepted:
                self._accepted = accepted
                self._began_after = None
                self._clock.accept()
                now = self._clock.now()
                why = ""
        if why != self.why:
            await self._report(why, now)
        if not why and abs(now - self._kept_at) >= KEEP_S:
            self._kept_at = now
            await self._store.clock_marks.put(LAST, now)

    def _judge(self, clock: WallClock, now: float) -> str:
        """Return why the time is in doubt, or ""."""
        if self._began_after is not None:
            last = self._began_after
            machine = now + clock.step_s
            if last - STEP_MAX_S <= machine <= last + GAP_MAX_S:
                self._began_after = None
                if clock.step_s:  # it was set right since the start
                    clock.accept()
            else:
                return (
                    f"this start is at {_date(machine)}, but a daemon ran here until {_date(last)}"
                )
        if clock.step_s:
            way = "forward" if clock.step_s > 0 else "back"
            return f"the clock was set {way} by {abs(clock.step_s):.0f} s while the daemon ran"
        return ""

    async def _report(self, why: str, now: float) -> None:
        begins = bool(why) != bool(self.why)
        self.why = why
        doubt = (f"The time is in doubt, so nothing is decided: {why}. {REMEDY}",) if why else ()
        permit.get_scope().notices["time"] = doubt
        if why:
            self._sure.clear()
            log.critical("the time is in doubt, so nothing is decided: %s. %s", why, REMEDY)
        else:
            self._sure.set()
            log.warning("the time is believed again")
        if begins:
            event = ClockDoubted(why=why, unblock=REMEDY) if why else ClockTrusted()
            await self._store.journal.append(event, now)


class DecidingClock:
    """A clock for loops that decide: a wait of it also lasts until the time can be believed."""

    def __init__(self, clock: Clock, standing: TimeStanding) -> None:
        self._clock = clock
        self._standing = standing

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds`, and on while the time is in doubt."""
        await self._clock.sleep(seconds)
        await self._standing.await_time()


def _date(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f} s since the epoch"


def read_standing(watcher: Watcher, now: float, beside: PortWatches = ALONE) -> WatchStatus:
    summary = read_summary(watcher, now, beside)
    return summary.model_copy(update={"nodes": tuple(iterate_nodes(watcher))})


def read_summary(watcher: Watcher, now: float, beside: PortWatches = ALONE) -> WatchStatus:
    """Return the same without its nodes: those of a large fleet take seconds (`nodes`)."""
    leaf_ports = beside.leaf_ports
    partitions = beside.partitions
    listed = {} if leaf_ports is None else dict(leaf_ports.listed)
    listed |= {} if partitions is None else partitions.listed
    return WatchStatus(
        at=now,
        listener=watcher.feeds.listens,
        requests_per_s=watcher.eyes.budget.per_s,
        requests=watcher.eyes.budget.spent,
        routine=watcher.may_watch(),
        leaves=dict(sorted(watcher.leaves.read.items())),
        listed_ports=dict(sorted(listed.items())),
        leaf_ports_read={} if leaf_ports is None else dict(sorted(leaf_ports.read.items())),
    )


def iterate_nodes(watcher: Watcher) -> Iterator[WatchedNode]:
    """Yield each node that is watched now; as it stands when it comes."""
    counted_at = watcher.ports.read_report_times()
    for node, heard in watcher.list_watched():
        yield _node(watcher, node, heard, counted_at.get(node.id, {}))


def _node(
    watcher: Watcher, node: Node, heard: dict[str, float], told: dict[str, float]
) -> WatchedNode:
    leaves = {f"{p.switch}/{p.interface}" for p in node.ports}
    return WatchedNode(
        node=node.id,
        looked_at=watcher.looked.get(node.id, 0.0),
        bmcs=tuple(_bmc(watcher, node, bmc, heard.get(bmc.name, 0.0)) for bmc in node.bmcs),
        ports=len(leaves),
        counted=len(leaves & set(told)),
        counters_at=max((at for port, at in told.items() if port not in leaves), default=0.0),
    )


def _bmc(watcher: Watcher, node: Node, bmc: BmcRef, heard_at: float) -> WatchedBmc:
    return WatchedBmc(
        bmc=bmc.name,
        way=watcher.feeds.find_way(node.id, bmc.name),
        heard_at=heard_at,
        reports=watcher.eyes.count_reports(node.id, bmc.url),
    )
