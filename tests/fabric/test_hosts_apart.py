"""The row of the gate that keeps hosts apart on the network where agents are looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from release_rig import CANARY, LEAF, NODE, OTHER_LEAF, Bench, play, trees
from test_release_order import LAST, TWO

from provisioner.execution.tenancy.release_sequence import HostsApart, ReleaseOutcome
from provisioner.integrations.cumulus.port_filter import NAME
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Reason
from provisioner.model.recovery import GateCheck, RowVerdict

FEW = frozenset({0, 3, 7})  # of the in-band network, with the planted faults, and the last
ON = {"lookup_networks": ("10.64.0.0/16",), "lookup_reached": ("10.64.0.2/32",)}


async def prepare(bench: Bench) -> HostsApart:
    """Leaves with the filter, as the watch of leaves prepares them."""
    found = HostsApart(bench.rig.effects, bench.rig.store, bench.rig.tenancy)
    assert await found.bring((bench.node(), bench.node(CANARY))) == ()
    return found


def verdicts(outcome: ReleaseOutcome) -> dict[RowVerdict, int]:
    rows = [r for r in outcome.rows if r.check is GateCheck.HOSTS_APART]
    return {v: n for v in RowVerdict if (n := sum(r.verdict is v for r in rows))}


def bound(bench: Bench, name: str) -> set[bool]:
    """Whether the ports of a node have the filter, in every tree."""
    return {
        NAME in tree["interface"][port.interface].get("acl", {})
        for port in bench.node(name).ports
        for tree in trees(bench.switches[port.switch])
    }


def test_hosts_in_maintenance_do_not_reach_each_other_and_a_tenants_ports_are_free() -> None:
    async def scenario(bench: Bench) -> Any:
        await prepare(bench)
        before = bound(bench, NODE)
        outcome = await bench.release()
        return outcome, before, bound(bench, NODE), bound(bench, CANARY)

    outcome, before, released, fenced = play(scenario, FEW, **ON)

    assert outcome.blockers == ()
    # each leaf; from its in-band address and from a rail to the other, and back
    assert verdicts(outcome) == {RowVerdict.PASS: len(FEW) + 3}
    assert (before, released, fenced) == ({True}, {False}, {True})


def test_a_fence_brings_the_filter_with_the_very_revision_that_moves_the_port() -> None:
    async def scenario(bench: Bench) -> Any:
        await prepare(bench)
        assert (await bench.release()).blockers == ()
        made = sum(bench.rig.revisions().values())
        fenced = await bench.rig.tenancy.fence(bench.node().ports)
        return fenced.blockers, bound(bench, NODE), sum(bench.rig.revisions().values()) - made

    assert play(scenario, FEW, **ON) == ((), {True}, len(FEW))


def unbind(tree: dict[str, Any], port: str) -> None:
    tree["interface"][port]["acl"].pop(NAME)


def permit(tree: dict[str, Any], port: str) -> None:
    tree["acl"][NAME]["rule"]["30000"]["action"] = {"permit": {}}


def narrow(tree: dict[str, Any], port: str) -> None:
    tree["acl"][NAME]["rule"]["30000"]["match"]["ip"]["protocol"] = "udp"


def empty(tree: dict[str, Any], port: str) -> None:
    tree["acl"][NAME]["rule"].clear()


def remove(tree: dict[str, Any], port: str) -> None:
    tree["acl"].pop(NAME)


def door(tree: dict[str, Any], port: str) -> None:
    ends = {"source-ip": "10.64.0.10/32", "dest-ip": "10.64.0.13/32"}
    rule = {"action": {"permit": {}}, "match": {"ip": ends}}
    tree["acl"][NAME]["rule"]["7"] = rule


HANDS = [unbind, permit, narrow, empty, remove, door]


@pytest.mark.parametrize("hand", HANDS, ids=lambda h: h.__name__)
@pytest.mark.parametrize("which", ["applied", "startup", "all"])
def test_what_a_foreign_hand_takes_away_fails_the_row_before_a_port_moves_and_is_put_back(
    hand: Callable[[dict[str, Any], str], None], which: str
) -> None:
    async def scenario(bench: Bench) -> Any:
        kept = await prepare(bench)
        for tree in trees(bench.leaf) if which == "all" else (getattr(bench.leaf, which),):
            hand(tree, bench.port)
        refused = await bench.release()
        vrfs = bench.rig.truth(NODE)
        assert await kept.bring((bench.node(),)) == ()
        return refused, vrfs, await kept.rows(bench.node())

    refused, vrfs, rows = play(scenario, FEW, **ON)

    assert {b.subject for b in refused.blockers} == {LEAF}
    assert all(b.detail.startswith("hosts_apart: ") for b in refused.blockers)
    assert vrfs == {"MAINT"}
    assert {row.verdict for row in rows} == {RowVerdict.PASS}


def test_packets_that_pass_a_filter_fail_the_row() -> None:
    async def scenario(bench: Bench) -> Any:
        await prepare(bench)
        for switch in bench.switches.values():
            switch.planted.filters_ignored = True
        return await bench.release(), bench.rig.truth(NODE)

    refused, vrfs = play(scenario, FEW, **ON)

    assert "it was answered" in refused.blockers[0].detail
    assert vrfs == {"MAINT"}


def test_a_leaf_that_is_not_read_is_unknown() -> None:
    async def scenario(bench: Bench) -> Any:
        kept = await prepare(bench)
        bench.rig.site.nvue[LEAF].reachable = lambda: False
        return await kept.rows(bench.node())

    rows = play(scenario, FEW, **ON)

    assert [r.subject for r in rows if r.verdict is RowVerdict.UNKNOWN] == [LEAF]
    assert len(rows) == len(FEW)  # and no host is asked to send anything


def posts(bench: Bench) -> int:
    return sum(method != "GET" for _, method, _ in bench.rig.switches.calls)


def test_a_leaf_that_has_its_filter_is_not_written_again_and_a_silent_one_is_named() -> None:
    async def scenario(bench: Bench) -> Any:
        kept = await prepare(bench)
        written, began = posts(bench), bench.rig.clock.now()
        assert await kept.bring((bench.node(),)) == ()
        again, waited_s = posts(bench) - written, bench.rig.clock.now() - began
        bench.rig.site.nvue[LEAF].reachable = lambda: False
        return again, waited_s, await kept.bring((bench.node(),))

    again, waited_s, blockers = play(scenario, TWO, **ON)

    assert (again, waited_s) == (0, 0.0)  # nor is its turn waited for
    assert [(b.reason, b.subject) for b in blockers] == [(Reason.UNREACHABLE, LEAF)]


def test_only_the_ethernet_ports_of_hosts_that_are_ours_get_the_filter() -> None:
    async def scenario(bench: Bench) -> Any:
        strangers = {
            "swp60": {"kind": NodeKind.HOST, "origin": Origin.DETACHED},
            "swp61": {"kind": NodeKind.SWITCH},
        }
        for name in (*strangers, "swp62"):
            bench.leaf.add_port(name)
            for tree in trees(bench.leaf):
                tree["interface"][name].setdefault("ip", {})["vrf"] = "MAINT"
        for name, given in strangers.items():
            port = Port(switch=LEAF, interface=name, rail=3, nic_slot="N")
            await bench.rig.store.nodes.add(Node(id=f"n-{name}", ports=(port,), **given))
        elsewhere = Port(switch=OTHER_LEAF, interface="swp1s0", rail=5, nic_slot="N")
        infiniband = elsewhere.model_copy(update={"switch": LEAF, "guid": "0002c903000e0b73"})
        infiniband = infiniband.model_copy(update={"interface": "swp62"})
        ours = Node(id="n-ours", kind=NodeKind.HOST, ports=(elsewhere, infiniband))
        await bench.rig.store.nodes.add(ours)
        card = Port(switch="", interface="", rail=0, nic_slot="N", guid="0002c903000e0b72")
        node = bench.node().model_copy(update={"ports": (*bench.node().ports, card)})
        kept = HostsApart(bench.rig.effects, bench.rig.store, bench.rig.tenancy)
        assert await kept.bring((node,)) == ()
        rows = await kept.rows(node)
        with_filter = {
            name
            for name, entry in bench.leaf.operational["interface"].items()
            if NAME in entry.get("acl", {})
        }
        return with_filter & {bench.port, *strangers, "swp62"}, {
            r.subject for r in rows[: len(TWO)]
        }

    with_filter, leaves = play(scenario, TWO, **ON)

    assert with_filter & {"swp60", "swp61", "swp62"} == set()
    assert len(with_filter) == 1
    assert leaves == {LEAF, LAST}


def test_where_probes_are_off_leaves_are_read_and_the_proof_says_that_nobody_tried() -> None:
    async def scenario(bench: Bench) -> Any:
        kept = await prepare(bench)
        return await kept.rows(bench.node()), bench.rig.hosts.calls

    (*leaves, packets), calls = play(scenario, TWO, **ON, release_probes="off")

    assert {row.verdict for row in leaves} == {RowVerdict.PASS}
    assert (packets.verdict, calls) == (RowVerdict.NONE, [])
    assert packets.seen == "the site's settings have probes off"


def test_without_another_host_in_maintenance_the_proof_says_that_nobody_tried() -> None:
    async def scenario(bench: Bench) -> Any:
        kept = await prepare(bench)
        away = bench.node(CANARY).model_copy(update={"state": State.INTAKE})
        await bench.rig.store.nodes.save(away)
        return await kept.rows(bench.node())

    rows = play(scenario, FEW, **ON)

    assert [(r.verdict, r.seen) for r in rows][len(FEW) :] == [
        (RowVerdict.NONE, "no other host in maintenance could be asked")
    ]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "no lookup_networks are set"),
        (
            {**ON, "lookup_isolation": "site"},
            "the site's own switches keep hosts apart (lookup_isolation)",
        ),
    ],
    ids=["no networks", "by the site"],
)
def test_without_the_filter_the_proof_says_that_nothing_was_looked_at(
    settings: dict[str, Any], why: str
) -> None:
    async def scenario(bench: Bench) -> Any:
        kept = HostsApart(bench.rig.effects, bench.rig.store, bench.rig.tenancy)
        brought, asked = await kept.bring((bench.node(),)), len(bench.rig.switches.calls)
        outcome = await bench.release()
        return brought, asked, outcome, bound(bench, CANARY)

    brought, asked, outcome, fenced = play(scenario, FEW, **settings)

    assert (brought, asked, outcome.blockers) == ((), 0, ())
    assert verdicts(outcome) == {RowVerdict.NONE: 1}
    assert [r.seen for r in outcome.rows if r.check is GateCheck.HOSTS_APART] == [why]
    assert fenced == {False}
