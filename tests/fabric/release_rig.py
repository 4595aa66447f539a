"""One node before its release, on simulated leaves with an overlay, tenants, storage and partners.

Everything stands as after weeks of work: a peer in the same tenant, a stranger in another one, a
node in maintenance that can be asked to try; what is planted is planted in the switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Any

from leaf_rig import Rig

from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.release_sequence import ReleaseOutcome, Releases
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.matrix import Match, Matrix, Pin, Profile, Release
from provisioner.model.node import Node, Placement, State
from provisioner.model.operation import OperationStatus
from provisioner.model.recovery import GateRow
from provisioner.model.tenant import Outside, Tenant

NODE, PEER, STRANGER, CANARY = "su0-n00", "su0-n01", "su0-n02", "su0-n03"
LEAF, OTHER_LEAF = "leaf-su0-r3", "leaf-su0-r5"
LAST_LEAF = "leaf-su0-r7"
RAILS = frozenset(range(8))
FEW = frozenset({3, 5, 7})  # of two leaves with a name here and the last: enough for any one fault
SERVER = "10.200.0.1"  # a storage server
RED_CANARY = "10.201.0.1"  # a host of the site's own in RED, that serves RDMA
ROUTER = "192.0.2.1"  # of the outside, at LEAF
NO_MACS: Mapping[str, str] = {}
VNIS = {"RED": "5001", "BLUE": "5002", "MAINT": "5003"}
SETTINGS = {
    "release_settle_s": 0.05,  # one look: in memory, routes follow at once
    "release_confirm_s": 2.0,
    "switch_apply_limit_s": 30.0,
    "release_reached": (f"STORE={SERVER}",),
    "release_rdma_canaries": (f"RED={RED_CANARY}", "BLUE=10.201.0.2"),
    "release_never_reached": ("10.250.0.1",),
    "release_port_acls": ("HOSTS",),
    "reclaim_idle_s": 5.0,
}
MATRIX = Matrix(
    releases={
        "r": Release(profiles={"p": Profile(match=Match(), pins={"nic.config": Pin(version="RA")})})
    },
    nic_profiles={"RA": {"ROCE_ADAPTIVE_ROUTING_EN": "1"}},
    nic_runtime={
        "RA": {
            "nvidia/qos/config/trust-mode": "dscp",
            "nvidia/qos/config/pfc": "00010000",
            "nvidia/roce/config/adaptive-routing-force": "true",
        }
    },
)
RED = Tenant(
    name="red",
    vrf="RED",
    number=0,
    l3vni=5001,
    storage=("STORE",),
    outside=(Outside(switch=LEAF, peer=ROUTER, remote_as=64999),),
)
BLUE = Tenant(name="blue", vrf="BLUE", number=1, l3vni=5002)


class Bench:
    """A site, the releases of it, and hands on every switch. `rails`: those that are cabled."""

    def __init__(self, rails: Set[int] = RAILS, **settings: Any) -> None:
        self.rig = Rig(nodes=4, **{**SETTINGS, **settings})
        self._rails = rails
        self.awaited: set[str] = set()  # what a scenario hooks into and did not come to yet
        self.switches = self.rig.site.switches
        rechecks = Rechecks(self.rig.effects, self.rig.store, MATRIX)
        self.releases = Releases(self.rig.effects, self.rig.store, self.rig.tenancy, rechecks)

    @property
    def leaf(self) -> Switch:
        """Where most faults are planted."""
        return self.switches[LEAF]

    @property
    def port(self) -> str:
        """The node's port there."""
        return next(p.interface for p in self.rig.nodes[NODE].ports if p.switch == LEAF)

    @property
    def prefix(self) -> str:
        """The network of that port."""
        return "172.96.0.0/31"

    @property
    def mac(self) -> str:
        """Of the node's card there."""
        return self.leaf.neighbours[self.port].mac

    async def open(self) -> Bench:
        """Everybody at their places, without a revision."""
        await self.rig.open()
        for machine in self.rig.site.machines.values():
            machine.host.power, machine.host.phase = "On", "up"
            machine.host.boot_id = machine.host.boot_id or "boot-1"
            for card in machine.bluefields.values():
                card.nv_config |= MATRIX.nic_profiles["RA"]
                card.nv_config_next |= MATRIX.nic_profiles["RA"]
                card.runtime |= MATRIX.nic_runtime["RA"]
                card.algorithm = True
        for name, switch in self.switches.items():
            if name.startswith("leaf"):
                _dress(switch)
        for tenant in (RED, BLUE):
            await self.rig.store.tenants.put(tenant)
        for name, vrf, state, tenant in (
            (NODE, "MAINT", State.CERTIFIED, "red"),
            (PEER, "RED", State.RELEASED, "red"),
            (STRANGER, "BLUE", State.RELEASED, "blue"),
            (CANARY, "MAINT", State.CERTIFIED, ""),
        ):
            await self._stand(name, vrf, state, tenant)
        return self

    async def close(self) -> None:
        await self.rig.close()

    async def _stand(self, name: str, vrf: str, state: State, tenant: str) -> None:
        node = self.rig.nodes[name]
        cabled = tuple(p for p in node.ports if p.rail in self._rails)
        for port in cabled:
            for tree in trees(self.switches[port.switch]):
                entry = tree["interface"][port.interface]
                entry["ip"]["vrf"] = vrf
                entry["acl"] = {"HOSTS": {"inbound": {}, "outbound": {}}}
        place = Placement.MAINTENANCE if vrf == "MAINT" else Placement.CUSTOMER
        changes: dict[str, Any] = {"ports": cabled, "placement": place, "vrf": vrf}
        changes |= {"state": state, "tenant": tenant}
        changes |= {"release": "r", "profile": "p"}
        await self._parts(name)
        self.rig.nodes[name] = await self.rig.store.nodes.save(node.model_copy(update=changes))

    async def give_mac(self, name: str, slot: str, mac: str) -> None:
        """The card in this slot has this MAC, as it was collected."""
        await self._parts(name, {slot: mac})

    async def _parts(self, name: str, macs: Mapping[str, str] = NO_MACS) -> None:
        """The cards as they were collected."""
        machine = self.rig.site.machines[name]
        devices = tuple(
            Device(
                kind=DeviceKind.NIC, slot=slot, pci=machine.devices[slot].pci, mac=macs.get(slot)
            )
            for slot in machine.bluefields
        )
        inventory = Inventory(node=name, vendor="x", devices=devices)
        store, now = self.rig.store, self.rig.clock.now()
        operation = await store.operations.open(name, "test", now)
        assert operation is not None
        taken, _ = await store.operations.record(
            await store.operations.take(operation.id), inventory=inventory, now=now
        )
        await store.operations.end(taken, OperationStatus.DONE, "")

    def card(self, name: str = NODE) -> Any:
        """The node's card at `LEAF`, in the simulator."""
        return self.rig.site.machines[name].devices["NIC_3"]

    def vrfs(self) -> list[str]:
        """The VRFs of the node's ports, as its leaves have them."""
        return [self.switches[p.switch].get_vrf(p.interface) for p in self.node().ports]

    def node(self, name: str = NODE) -> Node:
        """As the store has it."""
        return self.rig.nodes[name]

    def when_moved(self, act: Callable[[], None], leaf: str = LAST_LEAF) -> None:
        """Do something right after the last leaf has saved its configuration."""
        last = self.switches[leaf]
        noted = last.log_event
        self.awaited.add(f"{leaf} saves its configuration")

        def note(now: float, kind: str, subject: str, detail: str = "") -> None:
            noted(now, kind, subject, detail)
            if kind == "config_saved":
                self.awaited.discard(f"{leaf} saves its configuration")
                act()

        last.log_event = note  # type: ignore[method-assign]

    def when_probed(self, act: Callable[[], None]) -> None:
        """Do something when the gate was passed once, and packets were sent."""
        hosts = self.rig.hosts
        run = hosts.run
        self.awaited.add("a host is asked for its settings")

        async def running(*given: Any) -> Any:
            told = await run(*given)
            if any(c.name == "nic_config" for c in given[2]):  # what a host is asked for last
                self.awaited.discard("a host is asked for its settings")
                act()
            return told

        hosts.run = running  # type: ignore[method-assign]

    def when_reached(self, act: Callable[[], Any]) -> None:
        """Do something when the node has sent its first packets."""
        hosts = self.rig.hosts
        run = hosts.run
        self.awaited.add("a host sends packets")

        async def running(*given: Any) -> Any:
            answers = await run(*given)
            if any(c.name.startswith("reaches ") for c in given[2]) and self.awaited:
                self.awaited.discard("a host sends packets")
                act()
            return answers

        hosts.run = running  # type: ignore[method-assign]

    async def release(self) -> ReleaseOutcome:
        """The node into RED."""
        return await self.releases.release(self.node(), "RED")


def trees(switch: Switch) -> tuple[dict[str, Any], ...]:
    """Every tree of a switch, for what stands there from the start."""
    return switch.applied, switch.startup, switch.operational


def _dress(switch: Switch) -> None:
    for tree in trees(switch):
        tree["acl"] = {"HOSTS": {"type": "ipv4", "rule": {"10": {"action": {"permit": {}}}}}}
        tree["vrf"]["STORE"] = {"router": {"bgp": {"enable": "on"}}}
        for vrf, vni in VNIS.items():
            target = {f"64512:{vni}": {}}
            bgp = tree["vrf"][vrf]["router"]["bgp"]
            bgp["route-import"] = {"from-evpn": {"route-target": dict(target)}}
            bgp["route-export"] = {"to-evpn": {"route-target": dict(target)}}
            tree["vrf"][vrf]["evpn"] = {"enable": "on", "vni": {vni: {}}}
        imports(tree, "RED", "STORE")
        imports(tree, "STORE", "RED")
        if switch.name == LEAF:
            tree["vrf"]["RED"]["router"]["bgp"]["neighbor"] = {ROUTER: {"remote-as": 64999}}
    switch.servers[SERVER] = "STORE"
    switch.servers[RED_CANARY] = "RED"


def imports(tree: dict[str, Any], vrf: str, other: str) -> None:
    """One VRF takes the routes of another one."""
    bgp = tree["vrf"][vrf].setdefault("router", {}).setdefault("bgp", {})
    family = bgp.setdefault("address-family", {}).setdefault("ipv4-unicast", {})
    listed = family.setdefault("route-import", {}).setdefault("from-vrf", {})
    listed.setdefault("list", {})[other] = {}


def play(
    scenario: Callable[[Bench], Awaitable[Any]], rails: Set[int] = RAILS, **settings: Any
) -> Any:
    """Run a scenario on a fresh site."""

    async def main() -> Any:
        bench = await Bench(rails, **settings).open()
        try:
            outcome = await scenario(bench)
        finally:
            await bench.close()
        assert not bench.awaited, "a hook heard nothing"
        return outcome

    return asyncio.run(main())


def bad(outcome: ReleaseOutcome) -> tuple[GateRow, ...]:
    """Rows that kept the node back."""
    return tuple(r for r in outcome.rows if r.bad)
