"""Bonds that the daemon makes: written with the move of their VLAN, in one revision at each leaf.

The leaves take NVUE's published words, of both dialects (`integrations/cumulus/bonds.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from release_rig import NODE, Bench, bad, play, trees
from test_bonds import LAST, LEAVES, MAC, RAILS, SEGMENT

from provisioner.integrations.cumulus.bonds import compare_bonds, encode_bonds
from provisioner.integrations.cumulus.cumulus_switch import CumulusSwitch
from provisioner.integrations.sim.switches.nvue_schema import find_violation, take_over
from provisioner.integrations.sonic.sonic_switch import SonicSwitch
from provisioner.model.location import Bond
from provisioner.model.outcome import Reason
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.switch import BondsRead
from provisioner.ports import SwitchRefused

VNI = 10101
NEW, OLD = "5.15.0.0020", "5.11.0.0026"
OPEN = {"release_port_acls": ()}  # the site has no filter of its own on a VLAN that is made


def plan_bonds(bench: Bench, *, mlag: int = 0, two: bool = False) -> None:
    """Plan the node's ports at two leaves as one bond; the leaves have bare ports and no bond."""
    ports = []
    for port in bench.node().ports:
        if port.switch not in LEAVES:
            ports.append(port)
            continue
        switch = bench.switches[port.switch]
        for tree in trees(switch):
            tree["interface"][port.interface] = {"type": "swp"}
            tree["interface"]["swp62"] = {"type": "swp"}
            tree["evpn"]["multihoming"] = {"enable": "on"}
            if mlag:
                tree["mlag"] = {"peer-ip": "linklocal"}
        if mlag:
            switch.planted.mlag = {"enable": "on", "peer-alive": True}
        bond = Bond(
            name="bond1",
            members=(port.interface, *(["swp62"] if two else [])),
            segment="" if mlag else SEGMENT,
            mlag=mlag,
            made=True,
            vni=VNI,
            mtu=9216,
        )
        change = {"interface": "vlan101", "rail": -1, "bond": bond}
        ports.append(port.model_copy(update=change))
    bench.rig.nodes[NODE] = bench.node().model_copy(update={"ports": tuple(ports)})


def revisions(bench: Bench) -> dict[str, int]:
    return {n: sum(e.kind == "config_applied" for e in bench.switches[n].log) for n in LEAVES}


@pytest.mark.parametrize("two", [False, True])
def test_a_bond_is_made_in_the_revision_that_moves_its_vlan(two: bool) -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench, two=two)
        fenced = await bench.releases.reclaim(bench.node())
        made = [fenced.blockers, bench.vrfs(), revisions(bench)]
        released = await bench.release()
        moved = bench.vrfs()
        reclaimed = await bench.releases.reclaim(bench.node())
        return made, released, moved, revisions(bench), reclaimed, bench.vrfs(), bench.switches

    made, released, moved, sent, reclaimed, back, switches = play(scenario, RAILS, **OPEN)

    assert (made[0], set(made[1]), made[2]) == ((), {"MAINT"}, dict.fromkeys(LEAVES, 1))
    assert (bad(released), released.blockers) == ((), ())
    rows = [r for r in released.rows if r.check is GateCheck.BOND]
    assert {(r.subject, r.verdict) for r in rows} == {
        (f"{leaf}/vlan101", RowVerdict.PASS) for leaf in LEAVES
    }
    assert ("swp62" in rows[0].seen) == two
    assert (set(moved), reclaimed.blockers, set(back)) == ({"RED"}, (), {"MAINT"})
    assert sent == dict.fromkeys(LEAVES, 3)
    for leaf in LEAVES:
        for tree in trees(switches[leaf]):
            made = tree["interface"]["bond1"]
            segment = {"enable": "on", "local-id": 1, "mac-address": MAC}
            assert made["evpn"]["multihoming"]["segment"] == segment
            assert made["bridge"]["domain"]["br_default"] == {"access": 101}
            assert {made["link"]["mtu"], tree["interface"]["vlan101"]["link"]["mtu"]} == {9216}
            assert tree["bridge"]["domain"]["br_default"]["vlan"]["101"] == {"vni": {"10101": {}}}
            assert tree["interface"]["vlan101"]["ip"]["vrf"] == "MAINT"


def test_a_bond_of_an_mlag_is_made_as_well() -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench, mlag=7)
        await bench.releases.reclaim(bench.node())
        for leaf in LEAVES:  # what MLAG itself reports; no source says how it is configured
            bench.when_moved(lambda: pair(bench), leaf)
        return await bench.release()

    def pair(bench: Bench) -> None:
        for leaf in LEAVES:
            ports = bench.switches[leaf].operational["interface"]
            if "bond1" in ports:
                ports["bond1"]["bond"]["mlag"]["status"] = "dual"

    released = play(scenario, RAILS, **OPEN)

    assert (bad(released), released.blockers) == ((), ())
    assert sum(r.check is GateCheck.BOND for r in released.rows) == 2


def test_a_leaf_that_refuses_undoes_the_legs_at_the_others() -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench)
        await bench.releases.reclaim(bench.node())
        bench.switches[LAST].faults.add("apply_fails")
        refused = await bench.release()
        bench.switches[LAST].faults.clear()
        fenced = await bench.releases.reclaim(bench.node())
        again = await bench.release()
        return refused, fenced, again, bench.vrfs()

    refused, fenced, again, vrfs = play(scenario, RAILS, **OPEN)

    assert refused.blockers
    assert (fenced.blockers, bad(again), again.blockers, set(vrfs)) == ((), (), (), {"RED"})


Tree = dict[str, Any]


def change(bench: Bench, act: Callable[[Tree, str], None]) -> None:
    """Do something to each tree of the last leaf, told which port is the node's."""
    member = next(p.bond.members[0] for p in bench.node().ports if p.bond and p.switch == LAST)
    for tree in trees(bench.switches[LAST]):
        act(tree, member)


def route_member(tree: Tree, member: str) -> None:
    tree["interface"][member]["ip"] = {"vrf": "BLUE", "address": {"10.0.0.1/31": {}}}


def bridge_member(tree: Tree, member: str) -> None:
    tree["interface"][member]["bridge"] = {"domain": {"br_default": {"access": 7}}}


def take_member(tree: Tree, member: str) -> None:
    tree["interface"].get("bond1", {}).get("bond", {}).get("member", {}).pop(member, None)
    tree["interface"]["bond9"] = {"type": "bond", "bond": {"member": {member: {}}}}


def take_name(tree: Tree, member: str) -> None:
    tree["interface"]["bond1"] = {"type": "bond", "bond": {"member": {"swp62": {}}}}


def take_vlan(tree: Tree, member: str) -> None:
    tree["interface"]["swp62"]["bridge"] = {"domain": {"br_default": {"access": 101}}}


def be_elsewhere(tree: Tree, member: str) -> None:
    bridge = {"domain": {"br_default": {"access": 102}}}
    tree["interface"]["bond1"] = {
        "type": "bond", "bond": {"member": {member: {}}}, "bridge": bridge,
    }  # fmt: skip


def be_no_bond(tree: Tree, member: str) -> None:
    tree["interface"]["bond1"] = {"type": "tunnel"}


def do_without_multihoming(tree: Tree, member: str) -> None:
    tree["evpn"]["multihoming"] = {"enable": "off"}


TAKEN = [
    (route_member, "has a network of its own"),
    (bridge_member, "has a network of its own (br_default)"),
    (take_member, "is in bond9"),
    (take_name, "bond1 has the member swp62 too"),
    (take_vlan, "swp62 is in VLAN 101 too"),
    (be_elsewhere, "bond1 is in another VLAN than 101"),
    (be_no_bond, "bond1 is no bond on the leaf"),
    (do_without_multihoming, "EVPN multihoming is off on the leaf"),
]


@pytest.mark.parametrize(("act", "words"), TAKEN)
def test_nothing_is_taken_from_anybody_to_make_a_bond(
    act: Callable[[Tree, str], None], words: str
) -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench)
        change(bench, act)
        before = str(bench.switches[LAST].applied)
        fenced = await bench.releases.reclaim(bench.node())
        return fenced, str(bench.switches[LAST].applied) == before

    fenced, is_left = play(scenario, RAILS, **OPEN)

    (refused,) = (b for b in fenced.blockers if words in b.detail)
    assert (refused.reason, refused.subject) == (Reason.SWITCH_REFUSED, LAST)
    assert is_left


def be_a_link(tree: Tree, member: str) -> None:
    peers = {member: {"type": "unnumbered"}}
    tree["vrf"]["default"] = {"router": {"bgp": {"neighbor": peers}}}


ASTRAY = [*TAKEN[:4], *TAKEN[5:7], (be_a_link, "is a link of BGP in VRF default")]


@pytest.mark.parametrize(("act", "words"), ASTRAY)
def test_a_host_that_a_hand_took_from_behind_its_port_is_not_fenced_with_it(
    act: Callable[[Tree, str], None], words: str
) -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench)
        await bench.releases.reclaim(bench.node())
        first = await bench.release()
        change(bench, act)
        return first, await bench.releases.reclaim(bench.node()), bench.vrfs()

    first, fenced, vrfs = play(scenario, RAILS, **OPEN)

    assert (bad(first), set(vrfs)) == ((), {"MAINT"}), fenced.blockers
    assert any(words in b.detail and b.subject == LAST for b in fenced.blockers), fenced.blockers


@pytest.mark.parametrize("failing", ["bonds", "images"])
def test_what_cannot_be_read_of_a_bond_keeps_no_port_from_its_fence(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench)
        await bench.releases.reclaim(bench.node())
        first = await bench.release()

        async def fail(*_: object) -> Any:
            raise SwitchRefused(Reason.MALFORMED, "no readable answer")

        monkeypatch.setattr(CumulusSwitch, f"read_{failing}", fail)
        fenced = await bench.releases.reclaim(bench.node())
        monkeypatch.undo()
        return first, fenced, bench.vrfs(), await bench.releases.reclaim(bench.node())

    first, fenced, vrfs, again = play(scenario, RAILS, **OPEN)

    assert (bad(first), set(vrfs)) == ((), {"MAINT"})
    assert all("no readable answer" in b.detail for b in fenced.blockers)
    assert fenced.blockers
    assert again.blockers == ()


@pytest.mark.parametrize(("act", "words"), [TAKEN[4], TAKEN[7]])
def test_a_hand_at_a_bond_that_was_made_keeps_it_out_of_a_tenant_and_in_no_fences_way(
    act: Callable[[Tree, str], None], words: str
) -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench)
        await bench.releases.reclaim(bench.node())
        first = await bench.release()
        change(bench, act)
        fenced = await bench.releases.reclaim(bench.node())
        return first, fenced, bench.vrfs(), await bench.release()

    first, fenced, vrfs, refused = play(scenario, RAILS, **OPEN)

    assert (bad(first), fenced.blockers, set(vrfs)) == ((), (), {"MAINT"})
    assert any(words in b.detail for b in refused.blockers), refused.blockers


def test_a_hand_that_makes_a_bond_static_is_undone_with_the_next_move() -> None:
    async def scenario(bench: Bench) -> Any:
        plan_bonds(bench)
        await bench.releases.reclaim(bench.node())
        first = await bench.release()
        await bench.releases.reclaim(bench.node())
        modes = []
        for act in (lambda: bench.rig.tenancy.fence(bench.node().ports), bench.release):
            change(bench, lambda tree, _: tree["interface"]["bond1"]["bond"].update(mode="static"))
            outcome = await act()
            made = bench.switches[LAST].applied["interface"]["bond1"]
            modes.append((outcome.blockers, made["bond"]["mode"]))
        return first, modes

    first, modes = play(scenario, RAILS, **OPEN)

    assert (bad(first), modes) == ((), [((), "lacp")] * 2)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("mlag", [0, 7])
def test_a_bond_is_written_in_the_words_of_each_release(version: str, mlag: int) -> None:
    identifier = "00:44:38:39:be:ef:aa:00:00:01"  # the guide's: set as a whole
    for segment in ("",) if mlag else (SEGMENT, identifier):
        bond = Bond(name="bond1", members=("swp1",), mlag=mlag, segment=segment, made=True)
        tree = encode_bonds({"vlan5": bond}, version)

        assert find_violation(version, (), tree) == ""
        other = OLD if version == NEW else NEW
        assert "is not a property" in find_violation(other, (), tree)
        if segment == identifier:
            written = tree["interface"]["bond1"]["evpn"]["multihoming"]["segment"]
            assert written["identifier"] == identifier
        applied = take_over(version, {"evpn": {"multihoming": {"enable": "on"}}})
        merged = {**tree, **applied, "mlag": {"peer-ip": "linklocal"}}
        assert compare_bonds({"vlan5": bond}, merged, version) == BondsRead()
        assert compare_bonds({"vlan5": bond}, applied, version).lacking


def test_a_bond_that_is_routed_itself_has_no_vlan() -> None:
    bond = Bond(name="bond1", members=("swp1", "swp2"), made=True)

    tree = encode_bonds({"bond1": bond}, OLD)

    assert set(tree) == {"interface"}
    assert tree["interface"] == {
        "bond1": {"type": "bond", "bond": {"mode": "lacp", "member": {"swp1": {}, "swp2": {}}}}
    }
    for name in ("vlan5x", "swbond", "lo1"):
        renamed = bond.model_copy(update={"name": name})
        assert "takes no bond of this name" in compare_bonds({name: renamed}, {}, OLD).obstacles[0]


def test_where_nvue_shows_no_mode_the_configured_one_counts_and_lacp_is_its_default() -> None:
    async def scenario(bench: Bench, mode: str | None) -> Any:
        plan_bonds(bench)
        await bench.releases.reclaim(bench.node())

        def hide() -> None:
            switch = bench.switches[LAST]
            switch.operational["interface"]["bond1"]["bond"].pop("mode")
            for tree in (switch.applied, switch.startup):
                tree["interface"]["bond1"]["bond"].pop("mode", None)
                if mode is not None:
                    tree["interface"]["bond1"]["bond"]["mode"] = mode

        bench.when_moved(hide)
        return await bench.release()

    default = play(lambda bench: scenario(bench, None), RAILS, **OPEN)
    static = play(lambda bench: scenario(bench, "static"), RAILS, **OPEN)

    assert bad(default) == ()
    assert any("does not speak LACP" in r.seen for r in bad(static))


def test_sonic_refuses_a_bond_that_is_made_and_says_what_to_do() -> None:
    bond = Bond(name="bond1", members=("Ethernet0",), made=True)
    switch = SonicSwitch.__new__(SonicSwitch)

    async def ask() -> Any:
        return await switch.read_bonds({"vlan5": bond})

    assert asyncio.run(ask()).obstacles == ("no bonds are made on SONiC: take bond1 from the list",)
