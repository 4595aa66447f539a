"""The order of a release and a reclaim on two leaves: what each part waits for, what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from release_rig import LEAF, MATRIX, NODE, Bench, bad, play, trees

from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.release_sequence import (
    ReleaseOutcome,
    Releases,
    describe_handover,
    seal_release,
)
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.tenant import LibraryMinimum
from provisioner.planning.release import release_probes

NCCL = LibraryMinimum(library="nccl", minimum="2.27")
TWO, LAST = frozenset({3, 7}), "leaf-su0-r7"
OBJECTION = Blocker(reason=Reason.TRESPASS, subject=NODE, detail="revoked", unblock="wait")
ROWS_OF_HOST = {*release_probes.CLASSES, GateCheck.NIC_SETTINGS, GateCheck.NIC_ERRORS}


def silence(bench: Bench, leaf: str = LEAF) -> None:
    bench.rig.site.nvue[leaf].reachable = lambda: False


def spoil(bench: Bench) -> None:
    """A fault that does not pass by itself."""
    bench.leaf.planted.qos["mode"] = "lossy"


def checks(outcome: ReleaseOutcome, verdict: RowVerdict) -> set[GateCheck]:
    return {r.check for r in outcome.rows if r.verdict is verdict}


def alone(bench: Bench, *, rechecks: bool = True) -> Releases:
    """Releases of the bench's site, with looks into hosts or without."""
    rig = bench.rig
    looks = Rechecks(rig.effects, rig.store, MATRIX) if rechecks else None
    return Releases(rig.effects, rig.store, rig.tenancy, looks)


# --- a release


def with_front_end(bench: Bench) -> str:
    """The node's port at the last leaf is north-south; its interface there."""
    node = bench.node()
    ports = tuple(p.model_copy(update={"rail": -1}) if p.switch == LAST else p for p in node.ports)
    bench.rig.nodes[NODE] = node.model_copy(update={"ports": ports})
    return next(p.interface for p in ports if p.switch == LAST)


def test_rails_and_front_end_are_released_together_and_only_rails_carry_rdma() -> None:
    async def scenario(bench: Bench) -> Any:
        port = with_front_end(bench)
        bench.switches[LAST].planted.links[port] = {"mtu": 1500}
        node = bench.node()
        released = await bench.release()
        ask = await bench.releases.build_ask(node, "RED")
        return released, [ask.find_mtu(p) for p in node.ports], bench.vrfs()

    outcome, sizes, vrfs = play(scenario, TWO, front_mtu=1500)

    assert sizes == [9216, 1500]
    assert [r for r in outcome.rows if r.bad] == []
    assert vrfs == ["RED", "RED"]
    assert len([r for r in outcome.rows if r.check is GateCheck.RDMA]) == 1


@pytest.mark.parametrize("leaf", [LEAF, LAST])
def test_a_fault_of_either_plane_takes_both_back(leaf: str) -> None:
    async def scenario(bench: Bench) -> Any:
        with_front_end(bench)
        port = next(p.interface for p in bench.node().ports if p.switch == leaf)
        short = {port: {"mtu": 1400}}
        bench.when_moved(lambda: bench.switches[leaf].planted.links.update(short))
        refused = await bench.release()
        fenced, _, _ = await reclaim(bench)
        return refused, fenced, bench.vrfs()

    refused, fenced, vrfs = play(scenario, TWO)

    assert {r.subject.partition("/")[0] for r in bad(refused)} == {leaf}
    assert refused.blockers
    assert fenced.blockers == ()
    assert vrfs == ["MAINT", "MAINT"]


def test_a_release_reads_before_and_after_and_stands_for_a_while() -> None:
    async def scenario(bench: Bench) -> Any:
        began = bench.rig.clock.now()
        return await bench.release(), began, bench.rig.clock.now()

    outcome, began, ended = play(scenario, TWO)
    once, _, _ = play(scenario, TWO, release_confirm_s=0.0)

    assert (outcome.blockers, outcome.began_at) == ((), began)
    assert [r.switch for r in outcome.before] == [LEAF, LAST]
    assert {vrf for leaf in outcome.before for _, vrf in leaf.ports} == {"MAINT"}
    assert {vrf for leaf in outcome.after for _, vrf in leaf.ports} == {"RED"}
    assert {len(leaf.ports) for leaf in (*outcome.before, *outcome.after)} == {1}
    assert checks(outcome, RowVerdict.PASS) >= ROWS_OF_HOST
    [stands] = [r for r in outcome.rows if r.check is GateCheck.STANDS]
    assert (stands.subject, stands.verdict) == (NODE, RowVerdict.PASS)
    assert stands.seen == f"all rows again after {outcome.watched_s:.0f} s"
    assert 2.0 <= outcome.watched_s - once.watched_s < 3.0
    assert 0.0 < once.watched_s < ended - began
    assert (once.blockers, len(once.after)) == ((), 2)  # without a time to stand: judged once
    assert GateCheck.STANDS not in {r.check for r in once.rows}


def test_a_leaf_that_is_silent_before_a_release_ends_it_before_anything_is_changed() -> None:
    async def scenario(bench: Bench) -> Any:
        silence(bench)
        return await bench.release(), bench.rig.revisions()

    outcome, revisions = play(scenario, TWO)

    assert {(b.reason, b.subject) for b in outcome.blockers} == {(Reason.UNREACHABLE, LEAF)}
    assert (outcome.before, outcome.rows, revisions) == ((), (), {})


def test_hosts_that_are_not_kept_apart_end_it_before_anything_is_changed() -> None:
    async def scenario(bench: Bench) -> Any:
        return await bench.release(), bench.rig.revisions()  # no leaf has the filter

    outcome, revisions = play(scenario, TWO, lookup_networks=("10.64.0.0/16",))

    assert {r.check for r in bad(outcome)} == {GateCheck.HOSTS_APART}
    assert outcome.blockers
    assert (len(outcome.before), revisions) == (2, {})


def test_a_move_that_fails_ends_it_before_the_gate() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.switches[LAST].faults.add("apply_fails")
        return await bench.release()

    outcome = play(scenario, TWO)

    assert [b.subject for b in outcome.blockers] == [LAST]
    assert (outcome.rows, len(outcome.before), len(outcome.moved.revisions)) == ((), 2, 1)


def test_nothing_is_released_into_maintenance() -> None:
    async def scenario(bench: Bench) -> Any:
        with pytest.raises(AssertionError):
            await bench.releases.release(bench.node(), "MAINT")
        return bench.rig.revisions()

    assert play(scenario, TWO) == {}


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_objections_are_read_before_each_leaf_and_before_it_has_to_stand(turn: int) -> None:
    async def scenario(bench: Bench) -> Any:
        times: list[float] = []

        async def objections() -> tuple[Blocker, ...]:
            times.append(bench.rig.clock.now())
            return (OBJECTION,) if len(times) == turn else ()

        outcome = await bench.releases.release(bench.node(), "RED", objections)
        return outcome, len(times), bench.rig.truth(NODE)

    outcome, count, vrfs = play(scenario, TWO)

    assert (outcome.blockers, count) == ((OBJECTION,), turn)
    assert vrfs == [{"MAINT"}, {"MAINT", "RED"}, {"RED"}][turn - 1]
    assert len(outcome.before) == 2
    assert bool(outcome.rows) == (turn == 3)
    assert GateCheck.STANDS not in {r.check for r in outcome.rows}


def test_without_an_objection_it_is_released() -> None:
    async def scenario(bench: Bench) -> Any:
        async def objections() -> tuple[Blocker, ...]:
            return ()

        return await bench.releases.release(bench.node(), "RED", objections)

    assert play(scenario, TWO).blockers == ()


def test_what_is_bad_at_a_leaf_is_not_sent_any_packets() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.when_moved(lambda: spoil(bench))
        outcome = await bench.release()
        return outcome, [name for call in bench.rig.hosts.calls for name in call]

    outcome, asked = play(scenario, TWO)

    assert bad(outcome)
    assert outcome.blockers
    assert asked == []
    assert not ROWS_OF_HOST & {r.check for r in outcome.rows}
    assert GateCheck.STANDS not in {r.check for r in outcome.rows}
    assert len(outcome.after) == 2


def test_what_goes_wrong_while_it_has_to_stand_keeps_it_back() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.when_probed(lambda: spoil(bench))
        return await bench.release()

    outcome = play(scenario, TWO)

    assert bad(outcome)
    assert outcome.blockers
    assert GateCheck.STANDS not in checks(outcome, RowVerdict.PASS)
    assert len(outcome.after) == 2


def test_a_leaf_that_falls_silent_while_it_has_to_stand_leaves_the_last_look() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.when_probed(lambda: silence(bench))
        return await bench.release()

    outcome = play(scenario, TWO)

    [row] = bad(outcome)
    assert (row.check, row.subject, row.verdict) == (GateCheck.HEALTH, LEAF, RowVerdict.UNKNOWN)
    assert row.seen
    assert [r.switch for r in outcome.after] == [LEAF, LAST]


# --- what is waited for


def test_routes_are_waited_for_as_long_as_the_site_says() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.leaf.leaks[bench.prefix] = "MAINT"
        began = bench.rig.clock.now()
        await bench.release()
        return bench.rig.clock.now() - began

    short, long = (play(scenario, TWO, release_settle_s=s) for s in (0.05, 20.0))

    assert 20.0 <= long - short < 26.0


def test_what_does_not_pass_by_itself_is_not_waited_for_once_it_was_well() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.when_probed(lambda: spoil(bench))
        began = bench.rig.clock.now()
        outcome = await bench.release()
        return bool(outcome.blockers), bench.rig.clock.now() - began

    refused, took = play(scenario, TWO, release_settle_s=300.0)

    assert refused
    assert took < 100.0


# --- hosts


def test_a_site_may_send_nothing_from_hosts_and_the_proof_says_so() -> None:
    async def scenario(bench: Bench) -> Any:
        return await bench.release(), bench.rig.hosts.calls

    outcome, calls = play(scenario, TWO, release_probes="off")

    assert (outcome.blockers, calls) == ((), [])
    unasked = {r.check: (r.subject, r.seen) for r in outcome.rows if r.verdict is RowVerdict.NONE}
    assert set(unasked) >= {*ROWS_OF_HOST, GateCheck.CABLES}
    assert {unasked[c] for c in ROWS_OF_HOST} == {(NODE, "the site's settings have them off")}


def test_without_looks_into_hosts_the_proof_says_that_nobody_looked() -> None:
    async def scenario(bench: Bench) -> Any:
        return await alone(bench, rechecks=False).release(bench.node(), "RED")

    outcome = play(scenario, TWO)

    assert outcome.blockers == ()
    unasked = {r.check for r in outcome.rows if r.seen == "the host was not read"}
    assert unasked == {GateCheck.NIC_SETTINGS, GateCheck.NIC_ERRORS, GateCheck.CABLES}
    assert GateCheck.REACHES in checks(outcome, RowVerdict.PASS)


def test_a_fault_at_a_leaf_without_looks_into_hosts_is_a_refusal_all_the_same() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.when_moved(lambda: spoil(bench))
        return await alone(bench, rechecks=False).release(bench.node(), "RED")

    assert play(scenario, TWO).blockers


# --- afterwards


def test_the_watch_judges_what_was_seen_and_not_the_rate_of_errors() -> None:
    async def scenario(bench: Bench) -> Any:
        outcome = await bench.release()
        bench.leaf.planted.errors[bench.port] = 100_000
        rows = await bench.releases.judge_standing(bench.node(), "RED", outcome.after)
        spoil(bench)
        worse = await bench.releases.judge_standing(bench.node(), "RED", outcome.after)
        return rows, worse, bench.releases.list_blockers(worse)

    rows, worse, blockers = play(scenario, TWO)

    assert rows
    assert GateCheck.LINK_ERRORS not in {r.check for r in (*rows, *worse)}
    assert any(r.bad for r in worse)
    assert {b.reason for b in blockers} == {Reason.ISOLATION}


def test_a_proof_has_all_that_was_seen() -> None:
    async def scenario(bench: Bench) -> Any:
        outcome = await bench.release()
        node = bench.node().model_copy(update={"certificate": "c-1"})
        return node, outcome, seal_release(node, "RED", outcome, None, 99.0, (NCCL,))

    node, outcome, proof = play(scenario, TWO)

    assert proof.libraries == (NCCL,)
    assert (proof.node, proof.certificate, proof.tenant) == (NODE, "c-1", "red")
    assert (proof.vrf, proof.confirmed_at, proof.began_at) == ("RED", 99.0, outcome.began_at)
    assert (proof.placements, proof.persisted) == (outcome.moved.placements, True)
    assert (proof.revisions, proof.gate) == (outcome.moved.revisions, outcome.rows)
    assert (proof.before, proof.after) == (outcome.before, outcome.after)
    assert proof.watched_s == round(outcome.watched_s, 3)
    event = describe_handover(proof)
    assert (event.tenant, event.certificate, event.proof) == ("red", "c-1", proof.sha256)
    refused = ReleaseOutcome(outcome.moved, 1.0, blockers=(OBJECTION,))
    with pytest.raises(AssertionError):
        seal_release(node, "RED", refused, None, 99.0)


# --- a reclaim


def customer(bench: Bench) -> Node:
    place = {"state": State.RELEASED, "placement": Placement.CUSTOMER, "vrf": "RED"}
    return bench.node().model_copy(update=place)


def test_a_reclaim_of_no_ports_asks_nothing() -> None:
    async def scenario(bench: Bench) -> Any:
        node = customer(bench).model_copy(update={"ports": ()})
        began = bench.rig.clock.now()
        outcome = await bench.releases.reclaim(node)
        return outcome.placements, bench.rig.clock.now() - began

    placements, took = play(scenario, TWO, reclaim_idle_s=900.0)

    assert (placements, took) == ((), 0.0)


async def reclaim(bench: Bench) -> tuple[Any, float, list[tuple[str, str]]]:
    """What came of a reclaim, how long it took, and what the leaves were told to do."""
    began, sent = bench.rig.clock.now(), len(bench.rig.switches.calls)
    outcome = await bench.releases.reclaim(customer(bench))
    calls = bench.rig.switches.calls[sent:]
    posts = [(name, path) for name, method, path in calls if method == "POST"]
    return outcome, bench.rig.clock.now() - began, posts


def test_a_reclaim_denies_waits_for_silence_and_moves() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        quick = await reclaim(bench)
        for tree in (t for s in (LEAF, LAST) for t in trees(bench.switches[s])):
            tree["interface"][bench.port]["ip"]["vrf"] = "RED"
        bench.leaf.planted.busy.add(bench.port)
        return quick, await reclaim(bench), bench.rig.truth(NODE)

    (outcome, took, posts), (slow, took_slow, _), vrfs = play(scenario, TWO, reclaim_idle_s=50.0)

    assert (outcome.blockers, slow.blockers, vrfs) == ((), (), {"MAINT"})
    assert sorted(name for name, _ in posts) == [LEAF, LEAF, LAST, LAST]
    assert took_slow - took > 30.0


def test_a_reclaim_moves_what_takes_no_filter_without_a_wait() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        bench.leaf.planted.busy.add(bench.port)
        calls, lost = bench.rig.switches.calls, []

        def lose(_number: int, method: str, path: str) -> bool:
            mine = calls[-1][0] == LEAF and method == "POST" and len(lost) < 3
            lost.extend([path] * mine)
            return mine

        bench.rig.switches.lose = lose
        outcome, took, _ = await reclaim(bench)
        return outcome, took, bench.rig.truth(NODE)

    outcome, took, vrfs = play(scenario, TWO, reclaim_idle_s=900.0)

    assert (outcome.blockers, vrfs) == ((), {"MAINT"})
    assert took < 300.0


def test_a_reclaim_denies_only_what_is_still_the_customers() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        for tree in trees(bench.leaf):
            tree["interface"][bench.port]["ip"]["vrf"] = "MAINT"
        return (*await reclaim(bench), bench.rig.truth(NODE))

    outcome, _, posts, vrfs = play(scenario, TWO)

    assert (outcome.blockers, vrfs) == ((), {"MAINT"})
    assert [name for name, _ in posts] == [LAST, LAST]


def test_a_reclaim_of_what_is_fenced_already_waits_for_nothing() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.leaf.planted.busy.add(bench.port)
        return await reclaim(bench)

    outcome, took, posts = play(scenario, TWO, reclaim_idle_s=900.0)

    assert (outcome.blockers, posts) == ((), [])
    assert took < 100.0


def test_a_reclaim_fences_the_other_leaves_where_one_is_silent() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        silence(bench)
        outcome, _, _ = await reclaim(bench)
        return outcome, bench.switches[LAST].get_vrf(bench.port)

    outcome, vrf = play(scenario, TWO)

    assert {(b.reason, b.subject) for b in outcome.blockers} == {(Reason.UNREACHABLE, LEAF)}
    assert vrf == "MAINT"
