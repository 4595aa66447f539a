"""Counts at the leaf ports of nodes that serve: whether they have carrier, how often it changed.

The pull path for link flaps: a leaf is the provisioner's to ask, the tenant's host is not. One
request at a time to each leaf, spread over the interval, so that its API has room for moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from zlib import crc32

from provisioner.control.watch.look_lane import LookLane
from provisioner.control.watch.port_watch import PortReport
from provisioner.control.watch.turns import DueTimes
from provisioner.execution.actions.reach import Reach
from provisioner.model.location import Port
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
        self._due = DueTimes()
        self._asking = LookLane(LEAVES_MAX, self._begin)
        self._nodes: Mapping[str, Node] = {}
        # leaf -> the ports of each watched host that has one at it
        self._hosts: dict[str, dict[str, Sequence[Port]]] = {}
        self.read: dict[str, float] = {}  # leaf -> when its ports were last counted, for people

    def run_round(self, nodes: Mapping[str, Node]) -> None:
        """Ask the leaves of watched nodes whose turn it is; the longest overdue first."""
        self._nodes = nodes
        asking = self._asking.running
        due = self._due.list_due(self._clock.now())
        self._asking.due([name for name in due if name not in asking])

    def _begin(self, name: str) -> Coroutine[None, None, None] | None:
        hosts = self._hosts.get(name)
        if hosts is None:
            return None  # its last host left since its turn came
        self._due.set(name, self._clock.now() + self._interval_s)
        leaf = self._nodes.get(name)
        if leaf is None or leaf.kind is not NodeKind.SWITCH:
            return None
        ports = [
            (port.interface, host)
            for host, its_ports in hosts.items()
            for port in its_ports
            if port.switch == name
        ]
        return self._ask(leaf, sorted(ports))

    def learn_cables(self, recabled: Iterable[tuple[Node | None, Node | None]]) -> None:
        """Learn which hosts are to be counted at which leaf, from pairs of a watched node before
        and after; None: it was not watched, or is not any more.
        """
        leaves: set[str] = set()
        for before, after in recabled:
            if before is not None:
                for leaf in {port.switch for port in before.ports}:
                    leaves.add(leaf)
                    del self._hosts[leaf][before.id]
            if after is not None:
                for leaf in {port.switch for port in after.ports}:
                    leaves.add(leaf)
                    self._hosts.setdefault(leaf, {})[after.id] = after.ports
        for leaf in leaves:
            if not self._hosts[leaf]:
                del self._hosts[leaf]
                self._due.forget(leaf)
                self.read.pop(leaf, None)
            elif leaf not in self._due:
                share = crc32(leaf.encode()) / 2**32
                self._due.set(leaf, self._clock.now() + share * self._interval_s)

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
