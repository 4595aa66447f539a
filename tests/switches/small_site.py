"""Two simulated leaves with a few ports in memory, and the real tenancy in front of them.

Small, so that a test of one leaf takes milliseconds: no hosts, no spines, no wire. Requests are
kept in order, with their virtual times, and a test may lose or replace an answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from port_given import Credentials
from virtual_time import VirtualClock, run

from provisioner.execution.actions.reach import Reach, SwitchSource
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.tenancy.leaf import Leaf
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.cumulus.revisions import NvueLine
from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.integrations.sim.switches.switch import Neighbour, Switch, SwitchDurations
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Move
from provisioner.ports import Call, Reply, Secret, SwitchAddress, Unreachable
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings
from provisioner.store import open_store

LEAVES, PORTS = ("leaf-0", "leaf-1"), 4
BASIC = "Basic Y3VtdWx1czpjdW11bHVz"  # cumulus:cumulus
LOOK = [  # at one port
    "GET /revision",
    "GET /interface/swp1?rev=applied",
    "GET /interface/swp1?rev=operational",
]
SAVED = ["GET /?rev=applied", "GET /?rev=startup"]
RED = Move("swp1", "RED", "172.16.0.3/31")
LOST = Unreachable("the answer was lost", maybe_executed=True)
NOT_SENT = Unreachable("connection refused", maybe_executed=False)
Answer = Callable[["Asked"], Reply | Exception | None]


class Asked:
    """One request as it left. `path` is without the prefix, and has the query."""

    def __init__(self, at: float, switch: str, call: Call) -> None:
        self.at, self.switch, self.method, self.body = at, switch, call.method, call.body
        self.path = call.path.removeprefix("/nvue_v1")
        self.timeout_s = call.timeout_s

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class Switches:
    """`SwitchTransport` onto the simulated leaves. `answer` may replace what a leaf answers."""

    def __init__(self, site: SmallSite) -> None:
        self._site = site
        self.asked: list[Asked] = []
        self.answer: Answer = lambda _asked: None
        self.lose: Answer = lambda _asked: None  # behind what the leaf did

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        site, name = self._site, urlsplit(switch.url).hostname or ""
        asked = Asked(site.clock.now(), name, call)
        self.asked.append(asked)
        site.schedule.advance(site.clock.now())
        if (instead := self.answer(asked)) is None:
            parts = urlsplit(call.path)
            body = b"" if call.body is None else json.dumps(call.body).encode()
            query, headers = dict(parse_qsl(parts.query)), {"authorization": BASIC}
            told = site.nvue[name].handle(call.method, parts.path, query, headers, body)
            instead = self.lose(asked) or Reply(told.status, {}, told.body)
        if isinstance(instead, Exception):
            raise instead
        return instead

    async def close(self) -> None:
        return None


class SmallSite:
    """`ports` are those of one node, a port on each leaf; `looked_up` is when `lookup` was."""

    def __init__(self, **settings: Any) -> None:
        self.clock, self.schedule = VirtualClock(), Schedule()
        self.settings = Settings(**settings)
        self.switches: dict[str, Switch] = {}
        for rail, name in enumerate(LEAVES):
            switch = Switch(
                name, self.schedule, seed=name, version="5.12.1", durations=SwitchDurations()
            )
            for vrf in ("MAINT", "RED", "BLUE"):
                switch.add_vrf(vrf, 65000)
            for number in range(1, PORTS + 1):
                card = Neighbour(f"host-{number}", f"rail{rail}", f"94:6d:ae:00:0{rail}:0{number}")
                switch.add_port(f"swp{number}", self._address(rail, number), card)
            self.switches[name] = switch
        self.nvue = {n: NvueService(s, self.clock) for n, s in self.switches.items()}
        self.transport = Switches(self)
        self.store = open_store(":memory:", inline=True)
        switches = make_switches(self.transport)
        reach = Reach(None, switches, Credentials())  # type: ignore[arg-type]
        self.effects = Effects(
            clock=self.clock,
            settings=self.settings,
            reach=reach,
            runner=None,
            shell=None,
            agents=None,
            artifacts=None,
        )
        self.tenancy = Tenancy(self.effects, self.store)
        self.looked_up: list[float] = []
        self.no_address: Blocker | None = None

    def _address(self, rail: int, number: int) -> str:
        return f"172.{16 + rail}.0.{2 * number + 1}/31"

    async def open(self) -> None:
        for name in LEAVES:
            node = Node(id=name, kind=NodeKind.SWITCH, address=f"https://{name}")
            await self.store.nodes.add(node)

    def ports(self, number: int = 1) -> tuple[Port, ...]:
        """One node's: the same port of each leaf."""
        return tuple(
            Port(
                switch=name,
                interface=f"swp{number}",
                rail=rail,
                nic_slot=f"NIC_{rail}",
                address=self._address(rail, number),
            )
            for rail, name in enumerate(LEAVES)
        )

    async def lookup(self) -> SwitchAddress | Blocker:
        """Of the first leaf."""
        self.looked_up.append(self.clock.now())
        if self.no_address is not None:
            return self.no_address
        return SwitchAddress(url="https://leaf-0", username="cumulus", secret=Secret("cumulus"))

    def source(self) -> SwitchSource:
        """The first leaf, as it is opened for a piece of work."""
        switches = make_switches(self.transport)
        return SwitchSource("leaf-0", self.lookup, switches, self.clock, self.settings)

    def line(self) -> NvueLine:
        address = SwitchAddress(url="https://leaf-0", username="cumulus", secret=Secret("cumulus"))
        return NvueLine("leaf-0", address, self.transport)

    def leaf(self) -> Leaf:
        return Leaf(self.source(), self.clock, self.settings)

    @property
    def switch(self) -> Switch:
        """The first leaf."""
        return self.switches["leaf-0"]

    def put(self, interface: str, vrf: str, *trees: str, leaf: str = "leaf-0") -> None:
        """Somebody else has moved a port, in these trees or in all."""
        for name in trees or ("operational", "applied", "startup"):
            entry = getattr(self.switches[leaf], name)["interface"][interface]
            entry.setdefault("ip", {})["vrf"] = vrf

    def vrf(self, interface: str = "swp1", leaf: str = "leaf-0") -> str:
        """Where a port truly is."""
        self.schedule.advance(self.clock.now())
        return self.switches[leaf].get_vrf(interface)

    def lines(self, *methods: str, leaf: str = "") -> list[str]:
        """What was asked for, in order."""
        return [
            a.line
            for a in self.transport.asked
            if (not methods or a.method in methods) and leaf in ("", a.switch)
        ]

    def times(self, line: str) -> list[float]:
        """When a request left, since the first of all."""
        asked = self.transport.asked
        return [round(a.at - asked[0].at, 3) for a in asked if a.line == line]


def ok(content: Any) -> Reply:
    """An answer of a leaf."""
    return Reply(200, {}, json.dumps(content).encode())


def described(outcome: Any) -> list[tuple[Reason, str]]:
    """Reason and subject of each blocker."""
    return [(b.reason, b.subject) for b in outcome.blockers]


def replacing(answers: Mapping[str, Reply | Exception]) -> Answer:
    """What replaces the answers to these requests ("GET /revision")."""
    return lambda asked: answers.get(asked.line)


def play(scenario: Callable[[SmallSite], Awaitable[Any]], **settings: Any) -> Any:
    """Run a scenario on a fresh site, in virtual time."""

    async def main() -> Any:
        site = SmallSite(**settings)
        await site.open()
        try:
            return await scenario(site)
        finally:
            await site.tenancy.close()
            await site.store.close()

    return run(main())
