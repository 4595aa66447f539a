"""A node on two leaves in RED, as it should be, of which tests change one thing at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.model.location import Port
from provisioner.model.recovery import (
    BondState,
    LeafRecord,
    LeafState,
    NeighbourState,
    PeerState,
    PortState,
    RouteState,
    VniState,
    VrfState,
)
from provisioner.planning.release import release_gate
from provisioner.planning.release.port_isolation import GateAsk, record_of

PEER, MAC, TARGET = "192.0.2.1", "94:6d:ae:00:00:01", "64512:5001"
BOTH = ("inbound", "outbound")
PORTS = tuple(
    Port(
        switch=f"leaf-{n}",
        interface="swp1",
        rail=n,
        nic_slot=f"NIC_{n}",
        address=f"172.{32 * n}.0.0/31",
    )
    for n in range(2)
)
ASK = GateAsk(
    node="n0",
    ports=PORTS,
    vrf="RED",
    mtu=9216,
    acls=frozenset({"HOSTS"}),
    storage=frozenset({"STORE"}),
    exact=True,
    vni="5001",
    target=TARGET,
    peers=frozenset({("leaf-0", PEER), ("leaf-1", PEER)}),
)


def route(prefix: str, protocol: str = "bgp", *via: str, **changes: bool) -> RouteState:
    return RouteState(prefix, protocol, **{"selected": True, "offloaded": True, **changes}, via=via)


def bond(name: str) -> BondState:
    """A bond of swp1 alone, as its leaf has it."""
    none: frozenset[str] = frozenset()
    return BondState(name, frozenset({"swp1"}), none, True, "", 0, 1, none, ())


def vni(number: int) -> dict[str, VniState]:
    targets = frozenset({f"64512:{number}"})
    return {str(number): VniState(targets, targets)}


def good_leaf(number: int) -> LeafState:
    own, far = f"172.{32 * number}.0.0/31", f"172.{32 * (1 - number)}.0.0/31"
    red = VrfState(
        routes=(
            route(own, "connected"),
            route(far),
            route("10.200.0.0/24", "bgp", "STORE"),
            route("0.0.0.0/0", "kernel", offloaded=False),
        ),
        peers={PEER: PeerState("established")},
        imports=frozenset({"STORE"}),
        vnis=vni(5001),
    )
    port = PortState(
        vrf="RED",
        applied_vrf="RED",
        coming=frozenset({"RED"}),
        up=True,
        mtu=9216,
        addresses=frozenset({own, "fe80::1/64"}),
        acls=frozenset(("HOSTS", way) for way in BOTH),
        neighbours=frozenset({("n0.example", f"rail{number}")}),
        transitions=10,
        in_errors=7,
        qos="lossless",
    )
    return LeafState(
        switch=f"leaf-{number}",
        at=1000.0,
        applied="applied",
        unsaved=frozenset({"swp9"}),  # of another node
        on_the_way=("41",),
        issues=(),
        qos="roce",
        adaptive_routing="on",
        acls={"HOSTS": "rules", "provisioner_deny4": "deny"},
        ports={"swp1": port},
        vrf_of={"swp1": "RED", "swp2": "BLUE"},
        vrfs={
            "RED": red,
            "STORE": VrfState((route(own, "bgp", "RED"),), {}, frozenset({"RED"}), {}),
            "MAINT": VrfState((route("172.0.0.0/8"),), {}, frozenset(), vni(5003)),
            "BLUE": VrfState((route("172.0.0.4/31", "connected"),), {}, frozenset(), vni(5002)),
        },
        applied_targets={},
        applied_peers={"RED": frozenset({PEER})},
        listens=frozenset({"BLUE"}),
        neighbours=(
            NeighbourState("swp1", f"172.{32 * number}.0.1", MAC),
            NeighbourState("swp2", "172.0.0.5", "94:6d:ae:00:00:02"),
        ),
        fdb={"94:6d:ae:00:00:03": "swp7"},
    )


class World:
    """What is asked, what `leaf-0` shows, and what it showed before the move."""

    def __init__(self) -> None:
        self.ask = ASK
        self.leaf, self.other = good_leaf(0), good_leaf(1)
        self.before: LeafRecord | None = record_of(self.leaf, ["swp1"])

    def asks(self, **changes: Any) -> None:
        self.ask = replace(self.ask, **changes)

    def at(self, **changes: Any) -> None:
        self.leaf = replace(self.leaf, **changes)

    def port(self, **changes: Any) -> None:
        self.at(ports={"swp1": replace(self.leaf.ports["swp1"], **changes)})

    def vrf(self, name: str, **changes: Any) -> None:
        self.at(vrfs=self.leaf.vrfs | {name: replace(self.leaf.vrfs[name], **changes)})

    def more(self, name: str, *routes: RouteState) -> None:
        self.vrf(name, routes=(*self.leaf.vrfs[name].routes, *routes))

    def without(self, prefix: str) -> None:
        left = tuple(r for r in self.leaf.vrfs["RED"].routes if r.prefix != prefix)
        self.vrf("RED", routes=left)

    def had(self, **changes: Any) -> None:
        assert self.before is not None
        self.before = self.before.model_copy(update=changes)

    def strange(self) -> None:
        """The leaf was not read before the move."""
        self.before = None

    def rows(self) -> dict[tuple[str, str], Any]:
        before = {} if self.before is None else {"leaf-0": self.before}
        before["leaf-1"] = record_of(self.other, ["swp1"])
        rows = release_gate.judge(self.ask, before, {"leaf-0": self.leaf, "leaf-1": self.other})
        return {(str(r.check), r.subject): r for r in rows}

    def bad(self) -> list[tuple[str, str]]:
        """(row, what was seen) of `leaf-0`; `leaf-1` is as it should be."""
        found = [(check, where, r.seen) for (check, where), r in self.rows().items() if r.bad]
        assert [f for f in found if not f[1].startswith("leaf-0")] == []
        return [(check, seen) for check, _, seen in found]


CONFIGURED: dict[str, Any] = {"exact": False, "vni": "", "target": "", "peers": None}
