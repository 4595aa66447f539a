"""Releasing 512 nodes at once (4,096 GPUs): revisions, and time against the slowest switch's own.

    python tests/bench/bench_release.py [nodes]

Real: the whole sequence with its gate, tenancy, leaf, the words of Cumulus. Simulated: 128 leaves
(16 scalable units of 32 nodes, 8 rails) behind a wire of 5 to 30 ms; time is virtual, so that it
measures the design and not this machine. All hosts' moves come at once. Towards a customer a
host's leaves are taken one after the other: each leaf is in one wave of its rail, and has to take
one revision. A fence goes to all leaves at once; a reclaim denies first, and takes two revisions.

A switch's own time is what it needs for its revision with nobody waiting for anybody: from the
moment it is told to apply until its forwarding has followed. A release crosses eight rails, and a
rail is done when its slowest leaf is: its bound is, for the slowest scalable unit, the sum over
its rails. That of a fence or a reclaim is the slowest leaf's. Prints a line for each part; the
last line is JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from virtual_time import VirtualClock, run

from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.tenancy.release_sequence import Releases
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.sim.hardware.clock import RAILS, Place, Schedule, list_places
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.integrations.sim.switches.switch import Neighbour, Revision, Switch
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Tenant
from provisioner.ports import Call, Reply, Secret, SwitchAddress, Unreachable
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings

NODES = 512
WIRE_S = (0.005, 0.03)  # one way, in a management network


class TimedSwitch(Switch):
    """Notes how long each of its revisions takes, from the request to the new forwarding."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.asked_at: list[float] = []
        self.own_s: list[float] = []
        self.events = 0

    def apply(self, revision: Revision, now: float) -> None:
        self.asked_at.append(now)
        super().apply(revision, now)

    def _become(self, target: dict[str, Any], now: float) -> None:
        super()._become(target, now)
        if len(self.own_s) < len(self.asked_at):
            self.own_s.append(now - self.asked_at[len(self.own_s)])

    def log_event(self, now: float, kind: str, subject: str, detail: str = "") -> None:
        """Count it; nobody reads it, and it would grow."""
        self.events += 1


class SwitchNodes:
    """The node repository of this site: a switch by its name, and no host that serves already."""

    async def get(self, name: str) -> Node:
        return Node(id=name, kind=NodeKind.SWITCH, address=f"https://{name}")

    async def list(self) -> tuple[Node, ...]:
        return ()


class OneTenant:
    """The tenant repository of this site."""

    async def list(self) -> tuple[Tenant, ...]:
        return (Tenant(name="red", vrf="RED"),)


class Rows:
    """The two repositories that a release reads."""

    nodes = SwitchNodes()
    tenants = OneTenant()


class Fleet:
    """Leaves, hosts' ports, and the tenancy of one daemon."""

    def __init__(self, nodes: int, every: int = 1) -> None:
        """every: only each so many-th place has a node."""
        self.clock = VirtualClock()
        self.schedule = Schedule()
        self.rng = random.Random("release")
        self.switches: dict[str, TimedSwitch] = {}
        self.hosts: dict[str, tuple[Port, ...]] = {}
        self.requests = 0
        for place in islice(list_places(nodes), 0, None, every):
            self.hosts[place.node] = tuple(self._port(place, rail) for rail in range(RAILS))
        self.nvue = {n: NvueService(s, self.clock) for n, s in self.switches.items()}
        reach = Reach(None, make_switches(self), self)  # type: ignore[arg-type]
        effects = Effects(
            clock=self.clock,
            # what is judged again after ten seconds, and packets, cost each node the same at once
            settings=Settings(release_confirm_s=0.0, release_probes="off"),
            reach=reach,
            runner=None,
            shell=None,
            agents=None,
            artifacts=None,
        )
        self.effects = effects
        rows: Any = Rows()
        self.tenancy = Tenancy(effects, rows)
        self.releases = Releases(effects, rows, self.tenancy)

    def _port(self, place: Place, rail: int) -> Port:
        name, address = place.name_leaf(rail), place.get_addresses(rail)[1]
        if name not in self.switches:
            self.switches[name] = TimedSwitch(name, self.schedule, seed=name, version="5.12.1")
            for vrf in ("MAINT", "RED", "BLUE"):
                self.switches[name].add_vrf(vrf, 65000)
        card = Neighbour(place.node, f"rail{rail}", f"94:6d:ae:{rail:02x}:00:{place.number:02x}")
        self.switches[name].add_port(place.interface, address, card)
        return Port(
            switch=name,
            interface=place.interface,
            rail=rail,
            nic_slot=f"NIC_{rail}",
            address=address,
        )

    async def current(self, name: str) -> tuple[str, Secret]:
        """As the vault would."""
        return "cumulus", Secret("cumulus")

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        """`SwitchTransport` onto the simulated switches."""
        self.requests += 1
        await asyncio.sleep(self.rng.uniform(*WIRE_S))
        reply = self.answered(switch, call)
        await asyncio.sleep(self.rng.uniform(*WIRE_S))
        return reply

    def answered(self, switch: SwitchAddress, call: Call) -> Reply:
        """What the leaf answers, at once."""
        assert switch.secret is not None
        parts = urlsplit(call.path)
        pair = base64.b64encode(f"{switch.username}:{switch.secret.reveal()}".encode()).decode()
        told = self.nvue[parts_host(switch)].handle(
            call.method,
            parts.path,
            dict(parse_qsl(parts.query)),
            {"authorization": f"Basic {pair}"},
            b"" if call.body is None else json.dumps(call.body).encode(),
        )
        if told.status == 0:
            raise Unreachable("connection reset", maybe_executed=False)
        return Reply(told.status, {}, told.body)

    async def close(self) -> None:
        return None


def parts_host(switch: SwitchAddress) -> str:
    """The switch's name."""
    return urlsplit(switch.url).hostname or ""


async def all_at_once(fleet: Fleet, act: str) -> tuple[list[Blocker], float]:
    """One act on all hosts; what speaks against it, and the virtual seconds it took."""

    async def one(name: str, ports: tuple[Port, ...]) -> tuple[Blocker, ...]:
        node = Node(id=name, kind=NodeKind.HOST, ports=ports, vrf="RED")
        if act == "release":
            return (await fleet.releases.release(node, "RED")).blockers
        if act == "reclaim":
            return (await fleet.releases.reclaim(node)).blockers
        return (await fleet.tenancy.move(ports, "MAINT")).blockers

    began = fleet.clock.now()
    told = await asyncio.gather(*(one(n, p) for n, p in fleet.hosts.items()))
    return [b for blockers in told for b in blockers], fleet.clock.now() - began


def own_time(fleet: Fleet, act: str) -> float:
    """Seconds that the slowest unit's switches need for their revisions.

    Towards a customer that is rail after rail; a fence and a reclaim go to all rails at once.
    """
    if act != "release":
        return max(sum(switch.own_s) for switch in fleet.switches.values())
    units: dict[str, float] = {}
    for name, switch in fleet.switches.items():
        unit = name.split("-")[1]
        units[unit] = units.get(unit, 0.0) + sum(switch.own_s)
    return max(units.values())


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def measure(nodes: int) -> dict[str, Any]:
    """Release and reclaim all nodes; the figures of both."""
    fleet = Fleet(nodes)
    told: dict[str, Any] = {"nodes": nodes, "gpus": 8 * nodes, "leaves": len(fleet.switches)}
    for act in ("fence", "release", "reclaim"):
        for switch in fleet.switches.values():
            switch.asked_at.clear()
            switch.own_s.clear()
            switch.events = 0
        fleet.requests = 0
        cpu = time.process_time()
        wrong, took_s = await all_at_once(fleet, act)
        cpu = time.process_time() - cpu
        assert not wrong, wrong[0]
        assert all(s.events and s.own_s for s in fleet.switches.values()), "a leaf was not heard"
        revisions = sum(len(s.asked_at) for s in fleet.switches.values())
        own_s = own_time(fleet, act)
        say(
            f"{act:8} {nodes} nodes: {revisions} revisions on {len(fleet.switches)} leaves, "
            f"{took_s:.1f} s (virtual), switches' own {own_s:.1f} s, ratio {took_s / own_s:.3f}, "
            f"{fleet.requests} requests, {cpu:.1f} CPU s"
        )
        told[act] = {
            "revisions": revisions,
            "wall_s": round(took_s, 2),
            "own_s": round(own_s, 2),
            "ratio": round(took_s / own_s, 3),
            "requests": fleet.requests,
        }
    await fleet.tenancy.close()
    return told


def main() -> None:
    say(json.dumps(run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else NODES))))


if __name__ == "__main__":
    main()
