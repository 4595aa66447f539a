"""The counters of serving nodes' ports for a while, and the conditions that follow from them.

The memory is bounded and is lost with the process: counters come again at the next look.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from provisioner.model.base import Record
from provisioner.planning.watch import watch_rules
from provisioner.planning.watch.watch_rules import Counters, Found, Interruption

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

    def forget(self, node: str) -> None:
        """Forget a node that no longer serves: restarts and moves between two tenants are no
        flaps.
        """
        for memory in (self._looks, self._losses):
            for key in [k for k in memory if k[0] == node]:
                del memory[key]

    def list_nodes(self) -> frozenset[str]:
        """Return the nodes with any report."""
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
            if rate := watch_rules.per_second(readings):
                rates[node, port] = rate
        for node, more in watch_rules.find_rocet_outliers(rates).items():
            conditions[node] += more
        return conditions
