"""Counts at the leaf ports of nodes that serve: whether they have carrier, how often it changed.

The pull path for link flaps: a leaf is the provisioner's to ask, the tenant's host is not. One
request at a time to each leaf, spread over the interval, so that its API has room for moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from zlib import crc32

from provisioner.control.watch.look_lane import LookLane
from provisioner.control.watch.port_watch import PortReport
from provisioner.execution.actions.reach import Reach
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.watch.watch_rules import Counters
from provisioner.ports import Clock, PortError, SwitchRefused
from provisioner.settings import Settings

log = logging.getLogger(__name__)

LEAVES_MAX = 32  # asked at the same time, each by one request


class LeafCounts:
    """The counts of leaves. `round` begins due readings. `take` gets each port that was read."""

    def __init__(
        self, reach: Reach, clock: Clock, settings: Settings, take: Callable[[PortReport], None]
    ) -> None:
        self._reach = reach
        self._clock = clock
        self._settings = settings
        self._interval_s = settings.watch_s
        self._take = take
        self._due: dict[str, float] = {}
        self._asking = LookLane(LEAVES_MAX, self._begin)
        self._nodes: Mapping[str, Node] = {}
        self._ports: dict[str, list[tuple[str, str]]] = {}  # leaf -> interface and node
        self._cabled = -1
        self.read: dict[str, float] = {}  # leaf -> when its ports were last counted, for people

    def run_round(
        self, nodes: Mapping[str, Node], watched: Mapping[str, Node], cabled: int
    ) -> None:
        """Ask the leaves of watched nodes whose turn it is; the longest overdue first.

        `cabled` is another number whenever ports of watched nodes are others.
        """
        now = self._clock.now()
        self._nodes = nodes
        if cabled != self._cabled:
            self._cabled = cabled
            self._learn(watched, now)
        asking = self._asking.running
        due = sorted((at, n) for n, at in self._due.items() if at <= now and n not in asking)
        self._asking.due([name for _, name in due])

    def _begin(self, name: str) -> Coroutine[None, None, None] | None:
        self._due[name] = self._clock.now() + self._interval_s
        leaf = self._nodes.get(name)
        if leaf is None or leaf.kind is not NodeKind.SWITCH:
            return None
        return self._ask(leaf, sorted(self._ports[name]))

    def _learn(self, watched: Mapping[str, Node], now: float) -> None:
        """Learn which ports are to be counted at which leaf: half a million of a large fleet."""
        ports: dict[str, list[tuple[str, str]]] = {}
        for node in watched.values():
            for port in node.ports:
                ports.setdefault(port.switch, []).append((port.interface, node.id))
        for name in [n for n in self._due if n not in ports]:
            del self._due[name]
            self.read.pop(name, None)
        for name in ports:
            share = crc32(name.encode()) / 2**32
            self._due.setdefault(name, now + share * self._interval_s)
        self._ports = ports

    async def close(self) -> None:
        """Stop asking."""
        await self._asking.close()

    async def _ask(self, leaf: Node, ports: list[tuple[str, str]]) -> None:
        """Read all these ports of a leaf. A counter that it does not report counts nothing."""
        try:
            address = await self._reach.switch(leaf)
            if isinstance(address, Blocker):
                return
            switch = self._reach.switches.open(leaf.id, address, self._clock, self._settings)
            up: tuple[str, ...] | None = None
            with suppress(SwitchRefused):
                up = await switch.read_carriers()
            for interface, node in ports:
                changes = None
                with suppress(SwitchRefused):
                    changes = (await switch.read_counters(interface)).carrier_changes
                link = "" if up is None else "up" if interface in up else "down"
                now = self._clock.now()
                counters = None
                if changes is not None:
                    counters = Counters(at=now, values={"carrier_changes": changes})
                if counters is not None or link:
                    name = f"{leaf.id}/{interface}"
                    report = PortReport(node=node, port=name, counters=counters, link=link, at=now)
                    self._take(report)
            self.read[leaf.id] = self._clock.now()
        except PortError as error:
            log.info("%s: its ports were not counted: %s", leaf.id, error)
