"""A bond of a node's north-south ports on two leaves: released with the rails or not at all.

The leaves answer in NVUE's published form (`integrations/cumulus/bonds.py` names the pages).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from release_rig import NODE, OTHER_LEAF, Bench, bad, play, trees

from provisioner.model.location import Bond, Port
from provisioner.model.recovery import GateCheck, RowVerdict

LAST = "leaf-su0-r7"
LEAVES = (OTHER_LEAF, LAST)
MAC = "44:38:39:ff:00:aa"
SEGMENT = "03:44:38:39:ff:00:aa:00:00:01"
RAILS = frozenset({3, 5, 7})  # the rail stays at LEAF; the ports of two other leaves are bonded


def bond_ports(bench: Bench, *, mlag: int = 0) -> None:
    """Make the node's ports at two leaves one bond, in the VLAN 101 of its own."""
    ports: list[Port] = []
    segment = {"local-id": 1, "mac-address": MAC.upper(), "df-preference": 50000, "enable": "on"}
    attached: dict[str, Any] = (
        {"bond": {"mlag": {"id": mlag, "enable": "on", "status": "dual"}}}
        if mlag
        else {"evpn": {"multihoming": {"segment": segment}}}
    )
    for port in bench.node().ports:
        if port.switch not in LEAVES:
            ports.append(port)
            continue
        switch = bench.switches[port.switch]
        interface = switch.add_bond(port.interface, "bond1", 101, attached)
        if mlag:
            switch.planted.mlag = {"enable": "on", "peer-alive": True, "local-role": "primary"}
        bond = Bond(
            name="bond1", members=(port.interface,), segment="" if mlag else SEGMENT, mlag=mlag
        )
        change = {"interface": interface, "rail": -1, "bond": bond}
        ports.append(port.model_copy(update=change))
    bench.rig.nodes[NODE] = bench.node().model_copy(update={"ports": tuple(ports)})


def member_of(bench: Bench) -> str:
    return bench.switches[LAST].bonded["bond1"][0]


def edit(bench: Bench, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change an interface of the last leaf in all of its configurations."""
    for tree in trees(bench.switches[LAST]):
        change(tree["interface"].setdefault(name, {"type": "swp"}))


@pytest.mark.parametrize("mlag", [0, 7])
def test_a_bond_is_released_with_the_rails_and_has_a_row_at_each_leaf(mlag: int) -> None:
    async def scenario(bench: Bench) -> Any:
        bond_ports(bench, mlag=mlag)
        released = await bench.release()
        return released, bench.vrfs(), await bench.releases.reclaim(bench.node()), bench.vrfs()

    outcome, moved, reclaimed, back = play(scenario, RAILS)

    assert bad(outcome) == ()
    rows = [r for r in outcome.rows if r.check is GateCheck.BOND]
    assert {r.subject for r in rows} == {f"{leaf}/vlan101" for leaf in LEAVES}
    assert {r.verdict for r in rows} == {RowVerdict.PASS}
    assert all("on 2 leaves" in r.seen for r in rows)
    assert (set(moved), reclaimed.blockers, set(back)) == ({"RED"}, (), {"MAINT"})


def lose_leg(bench: Bench) -> None:
    edit(bench, "bond1", lambda e: e["bond"].update(member={}))


def cut_leg(bench: Bench) -> None:
    bench.switches[LAST].planted.links[member_of(bench)] = {"down": True, "state": {"down": {}}}


def add_leg(bench: Bench) -> None:
    edit(bench, "bond1", lambda e: e["bond"]["member"].update(swp60={}))


def make_static(bench: Bench) -> None:
    edit(bench, "bond1", lambda e: e["bond"].update(mode="static"))


def change_segment(bench: Bench) -> None:
    edit(bench, "bond1", lambda e: e["evpn"]["multihoming"]["segment"].update({"local-id": 2}))


def use_segment_twice(bench: Bench) -> None:
    row = {"remote-vtep": {"10.10.10.8": {}, "10.10.10.9": {}}}
    bench.switches[LAST].planted.segments["bond1"] = row


def lose_peer(bench: Bench) -> None:
    bench.switches[LAST].planted.segments["bond1"] = {"remote-vtep": {}}


def hold_back(bench: Bench) -> None:
    flags = {"bridge-port": "on", "local": "on", "oper-up": "on", "ready-for-bgp": "off"}
    bench.switches[LAST].planted.segments["bond1"] = {"flags": flags}


def share_vlan(bench: Bench) -> None:
    bridged = {"domain": {"br_default": {"access": 101}}}
    edit(bench, "swp61", lambda e: e.update(bridge=bridged))


def share_trunk(bench: Bench) -> None:
    bridged = {"domain": {"br_default": {"vlan": {"5": {}, "100-110": {}}}}}
    edit(bench, "swp61", lambda e: e.update(bridge=bridged))


def kill_mlag_peer(bench: Bench) -> None:
    bench.switches[LAST].planted.mlag["peer-alive"] = False


def be_single(bench: Bench) -> None:
    edit(bench, "bond1", lambda e: e["bond"]["mlag"].update(status="single"))


@pytest.mark.parametrize(
    ("mlag", "fault", "words"),
    [
        (0, lose_leg, "is not in bond1"),
        (0, cut_leg, "has no carrier"),
        (0, add_leg, "swp60 is in bond1 without being planned"),
        (0, make_static, "does not speak LACP"),
        (0, change_segment, "00:00:02; 03:44"),
        (0, use_segment_twice, "3 leaves have its segment, and 2 are planned"),
        (0, lose_peer, "1 of its 2 leaves are in its segment"),
        (0, hold_back, "its segment is not ready-for-bgp"),
        (0, share_vlan, "swp61 is in its VLAN too"),
        (0, share_trunk, "swp61 is in its VLAN too"),
        (7, kill_mlag_peer, "the peer of its MLAG is down"),
        (7, be_single, "1 of its 2 leaves are in its segment"),
    ],
)
def test_a_fault_of_a_bond_is_named_and_keeps_rails_and_front_end_back(
    mlag: int, fault: Callable[[Bench], None], words: str
) -> None:
    async def scenario(bench: Bench) -> Any:
        bond_ports(bench, mlag=mlag)
        bench.when_moved(lambda: fault(bench))
        refused = await bench.release()
        fenced = await bench.releases.reclaim(bench.node())
        return refused, fenced, bench.vrfs()

    refused, fenced, vrfs = play(scenario, RAILS)

    named = [r for r in bad(refused) if r.check is GateCheck.BOND]
    assert any(words in r.seen and r.subject == f"{LAST}/vlan101" for r in named), named
    assert refused.blockers
    assert (fenced.blockers, set(vrfs)) == ((), {"MAINT"})


def test_legs_in_two_vrfs_are_named_at_both_leaves() -> None:
    async def scenario(bench: Bench) -> Any:
        bond_ports(bench)
        bench.when_probed(lambda: edit(bench, "vlan101", lambda e: e["ip"].update(vrf="BLUE")))
        return await bench.release()

    refused = play(scenario, RAILS)

    named = [r for r in bad(refused) if r.check is GateCheck.BOND]
    assert {r.subject for r in named} == {f"{leaf}/vlan101" for leaf in LEAVES}
    assert {r.seen for r in named} == {"its legs are in BLUE and RED"}


def test_another_host_at_a_member_is_a_wrong_cable() -> None:
    async def scenario(bench: Bench) -> Any:
        bond_ports(bench)
        switch = bench.switches[LAST]
        bench.when_moved(lambda: switch.planted.lldp.update({member_of(bench): ("su0-n09", "x")}))
        return await bench.release()

    refused = play(scenario, RAILS)

    assert (GateCheck.CABLE, f"{LAST}/vlan101") in {(r.check, r.subject) for r in bad(refused)}


def test_a_bond_that_nobody_planned_is_no_port_of_a_tenant() -> None:
    async def scenario(bench: Bench) -> Any:
        bond_ports(bench)
        ports = [p.model_copy(update={"bond": None}) for p in bench.node().ports]
        bench.rig.nodes[NODE] = bench.node().model_copy(update={"ports": tuple(ports)})
        return await bench.release()

    refused = play(scenario, RAILS)

    assert any("the list has no bond" in r.seen for r in bad(refused))
