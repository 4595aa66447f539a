"""A simulated site in memory behind the ports that tenancy and validation need.

Time is virtual: it moves to the next waker only when nobody else has anything to do.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from memory_hosts import MemoryRunner

from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.sim.redfish.bmc import from_files, make_service
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.site.site import SWITCH_PASSWORD, SWITCH_USER, Site
from provisioner.integrations.simulated_site.simulated_agents import name_commands, read_outputs
from provisioner.model.location import Location, Port
from provisioner.model.node import BmcRef, Node, NodeKind, Placement
from provisioner.ports import (
    BmcAddress,
    Call,
    PlaybookResult,
    Reply,
    Secret,
    ShellCommand,
    ShellOutput,
    SwitchAddress,
    Unreachable,
)
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings
from provisioner.store import open_store

YIELDS = 20  # turns of the loop after which nobody else has anything to do


class VirtualClock:
    """Sleeping costs nothing; the order of wakers is the order of their times."""

    def __init__(self) -> None:
        self.time = 1_750_000_000.0
        self._wakers: list[tuple[float, int]] = []
        self._count = 0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        mine = (self.time + seconds, self._count)
        heapq.heappush(self._wakers, mine)
        try:
            while True:
                for _ in range(YIELDS):
                    await asyncio.sleep(0)
                if self._wakers[0] == mine:
                    self.time = max(self.time, mine[0])
                    return
        finally:
            self._wakers.remove(mine)
            heapq.heapify(self._wakers)


class InMemorySwitches:
    """SwitchTransport to the simulator without a wire; `lose(method, path)` loses an answer."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.calls: list[tuple[str, str, str]] = []
        self.lose: Callable[[int, str, str], bool] = lambda _n, _method, _path: False

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        name = urlsplit(switch.url).hostname.split(".")[0]
        assert switch.secret is not None
        token = base64.b64encode(f"{switch.username}:{switch.secret.reveal()}".encode()).decode()
        parts = urlsplit(call.path)
        self.calls.append((name, call.method, parts.path))
        answer = self.site.nvue[name].handle(
            call.method,
            parts.path,
            dict(parse_qsl(parts.query)),
            {"authorization": f"Basic {token}"},
            b"" if call.body is None else json.dumps(call.body).encode(),
        )
        if not answer or not answer.status:
            raise Unreachable(f"{name} does not answer", maybe_executed=False)
        if self.lose(len(self.calls), call.method, parts.path):
            raise Unreachable("the answer was lost", maybe_executed=True)
        return Reply(answer.status, dict(answer.headers), answer.body)

    async def close(self) -> None:
        pass


class InMemoryBmcs:
    """BmcTransport to simulated BMCs of hosts, without a wire; one is made once it is asked."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._services: dict[str, RedfishService] = {}

    def find(self, url: str) -> RedfishService:
        """Return the service of a BMC, the same each time."""
        if url not in self._services:
            machine = self._site.machines[url.removeprefix("https://").removesuffix(".host")]
            self._services[url] = make_service(machine, "host", self._site.clock, from_files({}))
        return self._services[url]

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        parts = urlsplit(call.path)
        headers = {}
        if bmc.secret is not None:
            pair = f"{bmc.username}:{bmc.secret.reveal()}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        told = self.find(bmc.url).handle(
            call.method, parts.path, dict(parse_qsl(parts.query)), headers, b"", "test"
        )
        if not told.status:
            raise Unreachable("connection reset", maybe_executed=False)
        return Reply(told.status, {k.lower(): v for k, v in told.headers.items()}, told.body)


class SiteCredentials:
    """Every switch's credential, and those of BMCs as they came."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def current(self, name: str) -> tuple[str, Secret]:
        node, _, what = name.partition("/")
        if what == "host":
            bmc = self._site.machines[node].bmcs["host"]
            return bmc.username, Secret(bmc.password)
        return SWITCH_USER, Secret(SWITCH_PASSWORD)


class InMemoryHosts:
    """HostShell on the simulator's hosts."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.calls: list[list[str]] = []

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        self.calls.append([c.name for c in commands])
        told = await self.site.inband.run("run_commands", host, name_commands(commands))
        return read_outputs(PlaybookResult(**told), commands)

    async def close(self) -> None:
        pass


class Rig:
    """Site, store and tenancy; `nodes` are as the daemon would know them."""

    def __init__(self, nodes: int = 3, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.site = Site(nodes=nodes, clock=self.clock, sleep=self.clock.sleep)
        self.switches = InMemorySwitches(self.site)
        self.hosts = InMemoryHosts(self.site)
        self.store = open_store(":memory:", inline=True)
        self.bmcs = InMemoryBmcs(self.site)
        reach = Reach(self.bmcs, make_switches(self.switches), SiteCredentials(self.site))
        self.effects = Effects(
            clock=self.clock,
            settings=Settings(**settings),
            reach=reach,
            runner=MemoryRunner(self.site),
            shell=self.hosts,
            agents=None,
            artifacts=None,
        )
        self.tenancy = Tenancy(self.effects, self.store)
        self.nodes: dict[str, Node] = {}

    async def open(self) -> Rig:
        for entry in self.site.build_expected()["nodes"]:
            node = Node(
                id=entry["name"],
                kind=NodeKind(entry["kind"]),
                address=entry["address"],
                placement=Placement.MAINTENANCE,
                bmcs=(BmcRef(name="host", url=f"https://{entry['name']}.host"),)
                if entry["kind"] == "host"
                else (),
                location=Location(**entry["location"]),
                ports=tuple(Port(**p) for p in entry.get("ports", ())),
            )
            self.nodes[node.id] = await self.store.nodes.add(node)
        return self

    async def close(self) -> None:
        await self.tenancy.close()
        await self.store.close()

    def truth(self, node: str) -> set[str]:
        """VRFs that a node's ports are truly in now."""
        self.site.advance()
        return {self.site.switches[p.switch].get_vrf(p.interface) for p in self.nodes[node].ports}

    def revisions(self) -> dict[str, int]:
        """How many revisions each switch was asked for."""
        made: dict[str, int] = {}
        for name, method, path in self.switches.calls:
            if (method, path) == ("POST", "/nvue_v1/revision"):
                made[name] = made.get(name, 0) + 1
        return made
