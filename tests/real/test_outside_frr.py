"""A tenant's sessions to the outside on real FRRouting: IPv4 and IPv6, judged by packets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from frr_boxes import Box, Router, cable, why_not
from frr_nvue import PASSWORD, USER, Nvue
from frr_rendering import TIMERS
from frr_switch import FrrSwitch

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.execution.actions.reach import SwitchSource
from provisioner.execution.tenancy.vrf_fabric import LeafConfig
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Outside, Phase, Tenant
from provisioner.model.tenant_network import NetworkLimits, NetworkState
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_difference import LeafChange, plan_leaf_change
from provisioner.planning.tenancy.vrf_plan import find_leaf_differences, plan_fabric, plan_networks
from provisioner.ports import Secret, SwitchAddress
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

PLAN = AddressPlan(units=1, rails=1, spines=1, tenants=8)
LEAF = "leaf-su0-r0"
LIMITS = NetworkLimits(vrfs_max=255, tenant_networks=True)
FABRIC = plan_fabric(PLAN, [Node(id=LEAF, kind=NodeKind.SWITCH)], {LEAF: LIMITS})
OWN = FABRIC.leaves[0]
ON = {"enable": "on"}
PEERS = {  # of each router outside: the leaf's port and end, then its own ends
    "edge-a": ("swp2", ("192.0.2.0/31", "2001:db8:a::1/126"), ("192.0.2.1", "2001:db8:a::2")),
    "edge-b": ("swp3", ("192.0.2.2/31", "2001:db8:b::1/126"), ("192.0.2.3", "2001:db8:b::2")),
}
ASN = {"edge-a": 64500, "edge-b": 64501}
SERVED = ("198.51.100.1", "2001:db8:100::1")  # by both routers
UNLISTED = ("203.0.113.1", "2001:db8:bad::1")
NODE = ("172.0.0.0/31", "fd00:1::2/126")
GATEWAY = ("172.0.0.1/31", "fd00:1::1/126")
MARKS = ("64500:7", "64500:1:2")
DRAIN_S = 15.0  # FRRouting acts on changed route maps after 5 s


def sessions(edge: str, **changes: Any) -> tuple[Outside, Outside]:
    four, six = PEERS[edge][2]
    given = {"switch": LEAF, "remote_as": ASN[edge], "communities": MARKS, **changes}
    return (
        Outside(peer=four, accepts=("198.51.100.0/24",), sends=("172.0.0.0/8",), **given),
        Outside(peer=six, accepts=("2001:db8:100::/48",), sends=("fd00:1::/48",), **given),
    )


def red(*outside: Outside, **changes: Any) -> Tenant:
    given = {"number": 0, "l3vni": 4001, "phase": Phase.READY, **changes}
    return Tenant(name="red", vrf="RED", outside=outside, **given)


class Lab:
    """One leaf with a node and two routers outside, and the product's hand on the leaf."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.leaf = FrrSwitch(LEAF, folder / "leaf")
        stack.callback(self.leaf.stop)
        self.node = Box("node", folder / "node")
        stack.callback(self.node.stop)
        cable(self.leaf, "swp1", self.node, "eth0")
        self.node.sysctl()
        lines = [f"address add {a} dev eth0" for a in NODE]
        lines += [f"route add default via {a.partition('/')[0]}" for a in GATEWAY]
        self.node.ip(*lines)
        self.edges = {name: self._edge(name, folder, stack) for name in PEERS}
        self.api = Nvue(self.leaf, startup())
        stack.callback(self.api.stop)
        self.api.start()
        self.clock = WallClock()

    def _edge(self, name: str, folder: Path, stack: contextlib.ExitStack) -> Router:
        edge = Router(name, folder / name)
        stack.callback(edge.stop)
        port, ends, own = PEERS[name]
        cable(self.leaf, port, edge, "eth0")
        lengths = [end.partition("/")[2] for end in ends]
        edge.ip(*(f"address add {a}/{n} dev eth0" for a, n in zip(own, lengths, strict=True)))
        edge.ip(*(f"address add {a} dev lo" for a in (*SERVED, *UNLISTED)))
        four, six = (end.partition("/")[0] for end in ends)
        lines = [f"router bgp {ASN[name]}", f"bgp router-id {own[0]}", TIMERS]
        lines += [f"neighbor {peer} remote-as {OWN.asn}" for peer in (four, six)]
        lines += [f"neighbor {peer} timers connect 1" for peer in (four, six)]
        lines += ["address-family ipv4 unicast", f"no neighbor {six} activate"]
        lines += [f"network {SERVED[0]}/32", f"network {UNLISTED[0]}/32", "exit-address-family"]
        lines += ["address-family ipv6 unicast", f"neighbor {six} activate"]
        lines += [f"network {SERVED[1]}/128", f"network {UNLISTED[1]}/128", "exit-address-family"]
        edge.configure("bgpd", lines)
        return edge

    async def bring(self, tenant: Tenant, **settings: Any) -> tuple[Blocker, ...]:
        """As the keeper does it; a second look finds nothing left to do."""
        limits = Settings(**{"switch_poll_s": 0.1, "switch_apply_limit_s": 30.0, **settings})
        wire = SwitchHttps()
        url = self.api.url.replace("127.0.0.1", "localhost")
        address = SwitchAddress(url, USER, Secret(PASSWORD), self.api.pin, "cumulus")

        async def lookup() -> SwitchAddress:
            return address

        source = SwitchSource(LEAF, lookup, make_switches(wire), self.clock, limits)
        config = LeafConfig(source, self.clock, limits)
        try:
            blockers = await config.bring(await self._planned(config, tenant))
            again = await self._planned(config, tenant)
            assert blockers or again.empty
            routing = await (await source.open()).read_tenant_routing("RED", "4001")
            target = "65000:4001"
            self.differences = find_leaf_differences(
                tenant, LEAF, target, routing.targets, routing.sessions
            )
            return blockers
        finally:
            await wire.close()

    async def _planned(self, config: LeafConfig, tenant: Tenant) -> LeafChange:
        state = await config.look(["RED"])
        assert isinstance(state, NetworkState), state
        desired = plan_networks([tenant], FABRIC)[LEAF]
        # ports of a node stand in it, so that only a change is tried here, and no removal
        change = plan_leaf_change(OWN, desired, state, managed=["RED"], focus=["RED"])
        assert isinstance(change, LeafChange), change
        return replace(change)

    def reaches(self, target: str) -> bool:
        asked = [*self.node.enter, "ping", "-n", "-c", "1", "-W", "1", target]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def routes(self, edge: str, prefix: str) -> str:
        """What a router outside holds of one prefix, as its own words."""
        family = "ipv6" if ":" in prefix else "ipv4"
        return self.edges[edge].show("bgpd", f"show bgp {family} unicast {prefix} json")

    def best(self, prefix: str) -> set[str]:
        """The neighbours by which the leaf sends to one prefix."""
        family = "ipv6" if ":" in prefix else "ipv4"
        told = self.leaf.show("bgpd", f"show bgp vrf RED {family} unicast {prefix} json")
        paths = json.loads(told or "{}").get("paths", [])
        best = [p for p in paths if p.get("bestpath", {}).get("overall") or p.get("multipath")]
        return {p["peer"]["peerId"] for p in best}


def startup() -> dict[str, Any]:
    loopback = {"lo": {"ip": {"address": {f"{OWN.router_id}/32": {}}}}}
    ports = {"swp1": GATEWAY, **{port: ends for port, ends, _ in PEERS.values()}}
    interfaces = {
        name: {"type": "swp", "ip": {"vrf": "RED", "address": {end: {} for end in ends}}}
        for name, ends in ports.items()
    }
    return {
        "evpn": ON,
        "nve": {"vxlan": {**ON, "source": {"address": OWN.router_id}}},
        "router": {"bgp": {**ON, "autonomous-system": OWN.asn, "router-id": OWN.router_id}},
        "interface": {**loopback, **interfaces},
        "vrf": {"default": {}, "mgmt": {}, "MAINT": {}, "RED": {}},
    }


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with contextlib.ExitStack() as stack:
        yield Lab(tmp_path / "lab", stack)


async def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(300):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what} did not come")


def play(scenario: Awaitable[Any]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(300):
            return await scenario

    return asyncio.run(main())


def test_packets_of_both_families_reach_what_is_listed_and_a_session_ends_without_a_loss(
    lab: Lab,
) -> None:
    both = (*sessions("edge-a"), *sessions("edge-b"))
    lost: list[str] = []
    seen: dict[str, list[bool]] = {"asked": [], "around": []}
    stop = threading.Event()

    def watch() -> None:
        """Packets all the while; and what the routers know of the shutdown."""
        while not stop.is_set():
            lost.extend(target for target in SERVED if not lab.reaches(target))
            told = [lab.routes("edge-a", p) for p in ("172.0.0.0/31", "fd00:1::/126")]
            seen["asked"].append(all("gracefulShutdown" in t or "65535:0" in t for t in told))
            seen["around"].append(
                all(
                    lab.best(f"{a}/{n}") == {PEERS["edge-b"][2][i]}
                    for i, (a, n) in enumerate(zip(SERVED, (32, 128), strict=True))
                )
            )

    async def scenario() -> None:
        exact = [
            s.model_copy(update={"accepts": (f"{a}/{n}",)})
            for s, a, n in zip(both, SERVED * 2, (32, 128) * 2, strict=True)
        ]
        assert await lab.bring(red(*exact)) == ()
        for target in SERVED:
            await until(lambda target=target: lab.reaches(target), target)
        assert [t for t in UNLISTED if await asyncio.to_thread(lab.reaches, t)] == []
        for edge in PEERS:
            for prefix in ("172.0.0.0/31", "fd00:1::/126"):
                await until(
                    lambda e=edge, p=prefix: all(m in lab.routes(e, p) for m in MARKS),
                    f"{prefix} with its communities at {edge}",
                )
        for n, target in enumerate(SERVED):
            peers = {PEERS[edge][2][n] for edge in PEERS}
            length = (32, 128)[n]
            await until(lambda t=target, w=peers, n=length: lab.best(f"{t}/{n}") == w, "both")
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            assert await lab.bring(red(*exact[2:]), outside_drain_s=DRAIN_S) == ()
        finally:
            stop.set()
            watcher.join()
        assert lab.differences == ()

    play(scenario())
    assert lost == []
    assert any(seen["asked"])
    # while edge-a still had a session it had been told, and the leaf went around it already
    assert any(a and b for a, b in zip(seen["asked"], seen["around"], strict=True))


def test_a_router_that_sends_too_much_loses_its_session_and_is_named(lab: Lab) -> None:
    wide = {"accepts_parts": True, "prefixes_max": 2}

    async def scenario() -> None:
        tenant = red(*sessions("edge-a", **wide))
        assert await lab.bring(tenant) == ()
        await until(lambda: all(map(lab.reaches, SERVED)), "both families")
        extra = [f"2001:db8:100::{n}/128" for n in (2, 3)]
        lab.edges["edge-a"].ip(*(f"address add {a} dev lo" for a in extra))
        lines = [f"router bgp {ASN['edge-a']}", "address-family ipv6 unicast"]
        lab.edges["edge-a"].configure("bgpd", [*lines, *(f"network {a}" for a in extra)])
        await until(lambda: not lab.reaches(SERVED[1]), "the end of the session")
        assert await asyncio.to_thread(lab.reaches, SERVED[0])
        await lab.bring(tenant)
        (told,) = lab.differences
        assert "the session to 2001:db8:a::2 is" in told.detail

    play(scenario())
