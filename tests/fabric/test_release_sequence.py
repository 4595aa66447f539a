"""Release and reclaim of one node: order, proof, and what is found after somebody was cut short."""

from __future__ import annotations

import asyncio
from typing import Any

from release_faults import starts_otherwise
from release_rig import FEW, LEAF, PEER, Bench, play, trees

from provisioner.control.context import Context
from provisioner.control.watch.release_watch import ReleaseWatch
from provisioner.execution.tenancy.release_sequence import seal_release
from provisioner.model.certificate import Certificate
from provisioner.model.node import Node, Placement, State
from provisioner.model.operation import OperationStatus
from provisioner.model.recovery import GateCheck
from provisioner.model.tenant import ReleaseProof
from provisioner.planning.release import release_probes as release_proof

CERTIFICATE = Certificate(
    id="c-1",
    node="su0-n00",
    release="spectrum-x-1.3.0",
    profile="hgx-h100-bf3",
    serials=("S1",),
    versions=(),
    boot_id="b",
    location="sim/pod0/su0/rack/n00",
    ports=(),
    report_digest="",
    matrix_digest="",
    issued_at=1.0,
    expires_at=2.0,
)


def _released(bench: Bench) -> Node:
    """The node as it is stored once it is its tenant's."""
    changes = {
        "state": State.RELEASED,
        "placement": Placement.CUSTOMER,
        "vrf": "RED",
        "certificate": "c-1",
    }
    return bench.node().model_copy(update=changes)


async def _proof(bench: Bench) -> ReleaseProof:
    outcome = await bench.release()
    node = bench.node().model_copy(update={"certificate": "c-1"})
    return seal_release(node, "RED", outcome, CERTIFICATE, bench.rig.clock.now())


def _noted(bench: Bench, *kinds: str) -> list[tuple[str, str, str]]:
    found = [e for s in bench.switches.values() for e in s.log if e.kind in kinds]
    return [(e.kind, e.subject, e.detail) for e in sorted(found, key=lambda e: e.time)]


def test_a_release_takes_one_revision_a_leaf_and_one_leaf_at_a_time() -> None:
    async def scenario(bench: Bench) -> Any:
        outcome = await bench.release()
        return outcome, bench.rig.revisions(), _noted(bench, "vrf", "config_saved")

    outcome, revisions, noted = play(scenario)

    assert len(outcome.moved.revisions) == 8
    assert set(revisions.values()) == {1}
    order = [(kind, subject.partition("/")[0]) for kind, subject, _ in noted]
    leaves = [f"leaf-su0-r{n}" for n in range(8)]
    assert order == [(kind, leaf) for leaf in leaves for kind in ("vrf", "config_saved")]


def test_what_another_daemon_has_not_saved_yet_of_another_nodes_port_holds_nobody_up() -> None:
    async def scenario(bench: Bench) -> Any:
        [other] = [p.interface for p in bench.node(PEER).ports if p.switch == LEAF]
        bench.when_moved(lambda: starts_otherwise(bench.leaf, other))
        outcome = await bench.release()
        return outcome, bench.leaf.startup == bench.leaf.applied

    outcome, saved = play(scenario)

    assert (outcome.blockers, saved) == ((), False)
    assert all(leaf.saved for leaf in outcome.after)


def test_the_proof_is_sealed_and_belongs_to_one_certificate() -> None:
    proof = play(_proof)

    assert release_proof.list_proof_objections(proof, CERTIFICATE) == ()
    assert [r.switch for r in proof.after] == [f"leaf-su0-r{n}" for n in range(8)]
    assert {vrf for leaf in proof.before for _, vrf in leaf.ports} == {"MAINT"}
    assert {vrf for leaf in proof.after for _, vrf in leaf.ports} == {"RED"}

    other = CERTIFICATE.model_copy(update={"id": "c-2"})
    forged = CERTIFICATE.model_copy(update={"serials": ("S2",)})
    assert release_proof.list_proof_objections(proof, other) == (
        "it belongs to another certificate",
    )
    assert release_proof.list_proof_objections(proof, forged) == (
        "its certificate was changed since",
    )
    assert release_proof.list_proof_objections(proof, None) == ("its certificate is not there",)
    touched = proof.model_copy(update={"tenant": "blue"})
    assert release_proof.list_proof_objections(touched, CERTIFICATE) == (
        "it was changed after it was sealed",
    )


def test_a_proof_of_the_first_kind_is_read_and_not_believed() -> None:
    old = ReleaseProof.model_validate_json(
        '{"node":"su0-n00","certificate":"c-1","tenant":"red","placements":[],"persisted":true}'
    )

    assert release_proof.list_proof_objections(old, CERTIFICATE) == (
        "it is of version 1, which had no gate and no seal",
    )


def test_a_reclaim_denies_every_port_before_it_moves_one() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        for switch in bench.switches.values():
            switch.log.clear()
        seen: list[bool] = []

        def look(kind: str) -> None:
            if kind == "vrf" and not seen:
                entries = [
                    bench.switches[p.switch].operational["interface"][p.interface]
                    for p in bench.node().ports
                ]
                seen.extend("provisioner_deny4" in e["acl"] for e in entries)

        for switch in bench.switches.values():
            noted = switch.log_event
            switch.log_event = lambda *given, noted=noted: (noted(*given), look(given[1]))[0]
        outcome = await bench.releases.reclaim(_released(bench))
        left = [tree["interface"][bench.port]["acl"] for tree in trees(bench.leaf)]
        return outcome, seen, left, bench.rig.truth("su0-n00")

    outcome, seen, left, truth = play(scenario)

    assert outcome.blockers == ()
    assert seen.count(True) == 7  # all but the one that has just been moved, with its filter
    assert truth == {"MAINT"}
    assert [set(acls) for acls in left] == [{"HOSTS"}] * 3


def test_a_port_that_does_not_fall_silent_is_moved_after_a_while_all_the_same() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        bench.leaf.planted.busy.add(bench.port)
        began = bench.rig.clock.now()
        outcome = await bench.releases.reclaim(_released(bench))
        return outcome, bench.rig.clock.now() - began, bench.rig.truth("su0-n00")

    quick = play(lambda b: _timed(b), FEW)
    outcome, took, truth = play(scenario, FEW, reclaim_idle_s=100.0)

    assert (outcome.blockers, truth) == ((), {"MAINT"})
    assert took > quick + 60.0


async def _timed(bench: Bench) -> float:
    await bench.release()
    began = bench.rig.clock.now()
    await bench.releases.reclaim(_released(bench))
    return bench.rig.clock.now() - began


def test_a_reclaim_that_was_cut_short_is_ended_by_the_next_one_from_wherever_it_stopped() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        first = asyncio.create_task(bench.releases.reclaim(_released(bench)))
        while bench.rig.truth("su0-n00") != {"RED", "MAINT"}:
            await bench.rig.clock.sleep(0.5)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        outcome = await bench.releases.reclaim(_released(bench))
        back = [e for e in _noted(bench, "vrf") if e[2] == "MAINT -> RED"]
        return outcome, bench.rig.truth("su0-n00"), back

    outcome, truth, back = play(scenario)

    assert outcome.blockers == ()
    assert truth == {"MAINT"}
    assert len(back) == 8  # of the release: none went back there since


# --- the watch


async def _watched(bench: Bench, act: Any) -> tuple[Node, list[str], list[bool]]:
    """A released node, what happens to it, and what the watch makes of that in two looks."""
    proof = await _proof(bench)
    store = bench.rig.store
    node = await store.nodes.save(_released(bench))
    now = bench.rig.clock.now()
    operation = await store.operations.open(node.id, "journey", now)
    operation, _ = await store.operations.record(operation, proof=proof, now=now)
    await store.operations.end(operation, OperationStatus.DONE, "")
    submitted: list[str] = []

    async def submit(operation: str) -> None:
        submitted.append(operation)

    watch = ReleaseWatch(
        Context(store, bench.rig.clock, bench.rig.effects.settings), bench.rig.tenancy, submit
    )
    act(bench)
    taken = []
    for _ in range(2):
        await watch.check_ports(await store.nodes.get(node.id))
        taken.append((await store.nodes.get(node.id)).state is State.DRAINING)
        if taken[-1]:
            break
    return await store.nodes.get(node.id), submitted, taken


def test_a_port_that_is_found_elsewhere_takes_the_node_back_at_once() -> None:
    def stray(bench: Bench) -> None:
        for tree in trees(bench.leaf):
            tree["interface"][bench.port]["ip"]["vrf"] = "BLUE"

    node, _, taken = play(lambda b: _watched(b, stray), FEW)

    assert taken == [True]
    assert (node.state, node.placement) == (State.DRAINING, Placement.MIXED)
    assert node.tenant == "red"
    assert LEAF in node.note


def test_a_leak_in_the_watch_after_a_release_takes_the_node_back_at_once() -> None:
    def leak(bench: Bench) -> None:
        bench.leaf.leaks[bench.prefix] = "BLUE"

    node, _, taken = play(lambda b: _watched(b, leak), FEW)

    assert taken == [True]
    assert GateCheck.REMAINDER.value in node.note


def test_another_fault_takes_it_back_only_if_it_stands() -> None:
    def lossy(bench: Bench) -> None:
        bench.leaf.planted.qos["mode"] = "lossy"

    node, _, taken = play(lambda b: _watched(b, lossy), FEW)

    assert taken == [False, True]
    assert node.placement is Placement.CUSTOMER  # known: it is denied first, then moved


def test_a_leaf_that_is_silent_takes_nobody_back() -> None:
    def silent(bench: Bench) -> None:
        bench.rig.site.nvue[LEAF].reachable = lambda: False

    _, _, taken = play(lambda b: _watched(b, silent), FEW)

    assert taken == [False, False]
