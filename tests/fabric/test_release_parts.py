"""Parts of a release: what is asked of whom, what ports are labelled with, what is waited for."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from release_rig import LEAF, NODE, PEER, RED_CANARY, SERVER, Bench, bad, play
from test_release_elsewhere import FAR, old_route, without_a_cable_there
from test_release_order import LAST, OBJECTION, TWO, alone, checks, customer, spoil

from provisioner.execution.tenancy.release_sequence import (
    ReleaseOutcome,
    describe_handover,
    make_records,
    seal_release,
)
from provisioner.execution.tenancy.tenancy import MoveOutcome
from provisioner.model.host_filter import DatabaseMark
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.tenant import LibraryMinimum

MARK = DatabaseMark("0123abcd" * 4, 1)


def exchange_cables(bench: Bench) -> None:
    """The cables of the node and of its peer at one leaf."""
    mine, other = bench.port, bench.rig.nodes[PEER].ports[0].interface
    cards = bench.leaf.neighbours
    cards[mine], cards[other] = cards[other], cards[mine]


def lines_sent(bench: Bench) -> list[tuple[str, str]]:
    """The host and the line of each command from now on."""
    sent: list[tuple[str, str]] = []
    run = bench.rig.hosts.run

    async def running(*given: Any) -> Any:
        sent.extend((given[0], c.line) for c in given[2])
        return await run(*given)

    bench.rig.hosts.run = running  # type: ignore[method-assign]
    return sent


# --- what is kept of a look


def test_the_record_of_a_leaf_has_this_nodes_ports_there_and_no_other_of_the_same_reading() -> None:
    async def scenario(bench: Bench) -> Any:
        mine, other = bench.node().ports[0], bench.rig.nodes[PEER].ports[0]
        elsewhere = mine.model_copy(update={"switch": LAST, "interface": other.interface})
        node = bench.node().model_copy(update={"ports": (mine, elsewhere)})
        seen = await bench.rig.tenancy.look((mine, other))  # one reading serves both nodes
        assert isinstance(seen, dict)
        return make_records(node, seen), mine.interface

    [record], interface = play(scenario, TWO)

    assert [name for name, _ in record.ports] == [interface]


# --- what is asked for


def test_a_gate_asks_for_the_ports_and_what_the_site_and_its_plan_demand() -> None:
    async def scenario(bench: Bench) -> Any:
        return await bench.releases.build_ask(bench.node(), "RED"), bench.node()

    ask, node = play(scenario, TWO, port_mtu=4200)

    assert (ask.node, ask.vrf, ask.ports) == (NODE, "RED", node.ports)
    assert (ask.acls, ask.mtu, ask.storage) == ({"HOSTS"}, 4200, {"STORE"})


def test_a_port_of_infiniband_is_judged_by_its_partition() -> None:
    async def scenario(bench: Bench) -> Any:
        card = Port(switch="", interface="", rail=0, nic_slot="NIC_0", guid="0002c903000e0b72")
        node = bench.node().model_copy(update={"ports": (*bench.node().ports, card)})
        judged = await bench.releases.judge(await bench.releases.build_ask(node, "RED"), ())
        return judged.rows

    rows = {(r.check, r.subject): r.verdict for r in play(scenario, TWO)}

    assert rows[GateCheck.PORT_VRF, "0002c903000e0b72"] is RowVerdict.UNKNOWN


def test_hosts_try_the_addresses_that_the_site_names() -> None:
    async def scenario(bench: Bench) -> Any:
        sent = lines_sent(bench)
        outcome = await bench.release()
        return outcome, [line for host, line in sent if host == NODE]

    outcome, lines = play(scenario, TWO, probe_bytes=4000)
    pings = "\n".join(line for line in lines if "ping" in line)

    assert outcome.blockers == ()
    for target in (SERVER, "10.250.0.1"):  # that must answer, that must not
        assert f"{target}," in pings
    assert f"{SERVER},4000" in pings
    assert any("ib_write_bw" in line and f"{RED_CANARY}," in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "rdma"),
    [
        ({"release_rdma": "off"}, RowVerdict.NONE),
        ({"release_rdma_canaries": ()}, RowVerdict.NONE),
        ({"release_rdma_canaries": (), "release_rdma": "required"}, RowVerdict.UNKNOWN),
    ],
)
def test_rdma_is_tried_where_the_site_wants_it_and_has_a_canary(
    settings: dict[str, Any], rdma: RowVerdict
) -> None:
    async def scenario(bench: Bench) -> Any:
        sent = lines_sent(bench)
        return await bench.release(), [line for _, line in sent if "ib_write_bw" in line]

    outcome, lines = play(scenario, TWO, **settings)

    assert [r.verdict for r in outcome.rows if r.check is GateCheck.RDMA] == [rdma]
    assert lines == []


# --- what ends a release, and what it does no more


def test_a_leak_is_found_by_the_gate_and_not_while_ports_move() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.leaf.leaks[bench.prefix] = "MAINT"
        return await bench.release()

    outcome = play(scenario, TWO)

    assert (outcome.moved.blockers, outcome.moved.persisted) == ((), True)
    assert bad(outcome)


def test_no_leaf_elsewhere_is_read_for_what_is_bad_at_the_nodes_own() -> None:
    async def scenario(bench: Bench) -> Any:
        await without_a_cable_there(bench)
        bench.when_moved(lambda: spoil(bench), LEAF)
        outcome = await bench.release()
        return outcome, [name for name, _, _ in bench.rig.switches.calls if name == FAR]

    outcome, calls = play(scenario, frozenset({3, 7}))

    assert bad(outcome)
    assert calls == []


def test_a_cable_that_leads_to_another_card_is_named_with_the_end_that_hears_it() -> None:
    async def scenario(bench: Bench) -> Any:
        exchange_cables(bench)
        return await bench.release(), await alone(bench, rechecks=False).release(
            bench.node(), "RED"
        )

    outcome, without = play(scenario, TWO)

    found = [r for r in outcome.rows if r.check is GateCheck.CABLES]
    assert found
    assert {r.verdict for r in found} == {RowVerdict.FAIL}
    assert PEER in str(found)
    assert bad(without)
    assert GateCheck.CABLES not in {r.check for r in without.rows}


def test_a_cable_is_named_beside_whatever_else_is_bad() -> None:
    async def scenario(bench: Bench) -> Any:
        exchange_cables(bench)
        bench.when_moved(lambda: spoil(bench))
        return await bench.release()

    outcome = play(scenario, TWO)

    assert {GateCheck.CABLES, GateCheck.CABLE} < {r.check for r in bad(outcome)}


def test_nobody_objects_to_a_release_that_the_gate_has_refused() -> None:
    async def scenario(bench: Bench) -> Any:
        asked: list[float] = []

        async def objections() -> tuple[Blocker, ...]:
            asked.append(bench.rig.clock.now())
            return (OBJECTION,) if len(asked) > 2 else ()

        bench.when_moved(lambda: spoil(bench))
        outcome = await bench.releases.release(bench.node(), "RED", objections)
        return outcome, len(asked)

    outcome, asked = play(scenario, TWO)

    assert asked == 2  # before each leaf
    assert OBJECTION not in outcome.blockers
    assert len(outcome.rows) == len({repr(r) for r in outcome.rows})  # judged once
    assert outcome.watched_s < 2.0  # nothing has to stand any more


# --- what is waited for


def test_what_a_move_of_another_node_shows_for_a_moment_is_waited_out() -> None:
    async def scenario(bench: Bench) -> Any:
        sleep = bench.rig.clock.sleep
        saved_at: list[float] = []

        def unsave() -> None:
            saved = bench.leaf.startup
            bench.leaf.startup = copy.deepcopy(saved)
            bench.leaf.startup["interface"][bench.port]["description"] = "not this one"

            async def save_while_it_waits(seconds: float) -> None:
                await sleep(seconds)
                if seconds == bench.rig.effects.settings.switch_poll_s:
                    bench.leaf.startup = saved
                    saved_at.append(bench.rig.clock.now())

            bench.rig.clock.sleep = save_while_it_waits  # type: ignore[method-assign]

        bench.when_probed(unsave)
        outcome = await bench.release()
        return outcome, saved_at, bench.rig.clock.now()

    outcome, [saved_at], ended = play(scenario, TWO, release_settle_s=60.0)

    assert outcome.blockers == ()
    assert GateCheck.STANDS in checks(outcome, RowVerdict.PASS)
    assert saved_at <= ended < saved_at + 10.0
    assert all(leaf.at >= saved_at and leaf.saved for leaf in outcome.after)  # as it stood last


def test_routes_of_other_leaves_follow_a_moment_later() -> None:
    async def scenario(bench: Bench) -> Any:
        await without_a_cable_there(bench)
        old_route(bench.switches[FAR])
        refused = await bench.release()
        looks = bench.rig.switches.calls.count((FAR, "GET", "/nvue_v1/vrf"))
        began = bench.rig.clock.now()

        async def withdraw() -> None:
            await bench.rig.clock.sleep(8.0)
            bench.switches[FAR].planted.routes.clear()

        task = asyncio.ensure_future(withdraw())
        outcome = await bench.release()
        await task
        return refused, looks, outcome, bench.rig.clock.now() - began

    refused, looks, outcome, took = play(scenario, TWO, release_settle_s=30.0)

    assert {r.check for r in bad(refused)} == {GateCheck.REMAINDER}
    assert 30.0 <= refused.watched_s < 40.0
    assert looks <= 30  # one a second at most
    assert outcome.blockers == ()
    assert took < 30.0


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_bad_when_the_time_for_routes_is_over_is_not_looked_at_again(
    elsewhere: bool,
) -> None:
    async def scenario(bench: Bench) -> Any:
        await without_a_cable_there(bench)
        if elsewhere:
            old_route(bench.switches[FAR])
        else:
            bench.when_moved(lambda: spoil(bench), LEAF)
        return await bench.release()

    look_s = 0.1  # a fifth of `switch_gather_s`: the first look ends just when the time does
    outcome = play(scenario, TWO, switch_gather_s=0.5, release_settle_s=look_s)

    assert bad(outcome)
    assert outcome.watched_s < 1.0  # `switch_poll_s`


def test_a_leaf_elsewhere_that_is_silent_is_waited_for_and_then_unknown() -> None:
    async def scenario(bench: Bench) -> Any:
        await without_a_cable_there(bench)
        bench.rig.site.nvue[FAR].reachable = lambda: False
        return await bench.release()

    outcome = play(scenario, TWO)

    [row] = bad(outcome)
    assert (row.check, row.subject, row.verdict) == (GateCheck.HEALTH, FAR, RowVerdict.UNKNOWN)


# --- descriptions of ports


def test_ports_are_labelled_with_their_tenant_and_without_one_when_they_are_back() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.rig.tenancy.mark = MARK
        await bench.release()
        labels = await bench.rig.tenancy.read_labels(LEAF)
        await bench.releases.reclaim(customer(bench))
        return labels[bench.port], (await bench.rig.tenancy.read_labels(LEAF))[bench.port]

    released, reclaimed = play(scenario, TWO)

    assert released[2:4] == (NODE, "red")
    assert reclaimed[2:4] == (NODE, "-")


# --- cables at intake, and the proof


@pytest.mark.parametrize("heard", [(), (LAST,)], ids=["no port", "one port"])
def test_a_host_is_asked_about_cables_once_a_leaf_hears_it(heard: tuple[str, ...]) -> None:
    async def scenario(bench: Bench) -> Any:
        exchange_cables(bench)
        for name, switch in bench.switches.items():
            if name not in heard:
                switch.neighbours.clear()
        node = bench.node().model_copy(update={"state": State.INTAKE})
        return await bench.releases.list_miscablings(node), len(bench.rig.hosts.calls)

    assert play(scenario, TWO) == ((), len(heard))


def test_a_proof_rounds_its_time_to_the_millisecond() -> None:
    outcome = ReleaseOutcome(MoveOutcome(), 1.0, watched_s=1.23456)
    node = Node(id=NODE, kind=NodeKind.HOST, tenant="red", vrf="RED")

    assert seal_release(node, "RED", outcome, None, 9.0).watched_s == 1.235


def test_the_event_of_a_release_names_the_libraries_that_the_tenant_was_told() -> None:
    node = Node(id=NODE, kind=NodeKind.HOST, tenant="red", vrf="RED")
    nccl = LibraryMinimum(library="nccl", minimum="2.21", tested="2.27")
    proof = seal_release(node, "RED", ReleaseOutcome(MoveOutcome(), 1.0), None, 9.0, (nccl,))

    assert describe_handover(proof).libraries == (str(nccl),)
