"""Handovers and fences by a node's driver: what is recorded, and what stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from driver_bench import Driver, Parts
from release_rig import LEAF, NODE, Bench, play, trees
from test_release_order import LAST, TWO, silence, spoil

from provisioner.control.node.performer import STANDING_TRIES_MAX
from provisioner.model.host_filter import DatabaseMark
from provisioner.model.node import Node, Placement, State, TenantData
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck
from provisioner.model.tenant import PortPlacement, TenantKey

BUSY = Blocker(reason=Reason.BUSY, subject=NODE, detail="it was busy", unblock="Wait.")
SILENT = Blocker(reason=Reason.UNREACHABLE, subject=NODE, detail="no answer", unblock="Wait.")
FAILED = Blocker(reason=Reason.CHECK_FAILED, subject=NODE, detail="bad", unblock="Look.")


def revoke(bench: Bench, tasks: list[Any]) -> Callable[[], None]:
    """A person's act, as soon as a leaf has saved what was moved."""

    async def act() -> None:
        await bench.rig.store.evidence.revoke("c-1", "an alert came", bench.rig.clock.now())

    return lambda: tasks.append(asyncio.ensure_future(act()))


async def execute(bench: Bench, statement: str) -> None:
    """Another writer changes the database."""
    await bench.rig.store.write(lambda c: c.exec_driver_sql(statement))


async def end(driver: Driver, problems: Any) -> Any:
    """The problems, the row, what was refused, and where the ports are."""
    node = await driver.store.nodes.get(NODE)
    return problems, node, await driver.refusals(), driver.bench.rig.truth(NODE)


# --- handovers


def test_a_handover_is_recorded_with_its_proof_and_its_event() -> None:
    async def scenario(bench: Bench) -> Any:
        driver = Driver(bench, Parts(bench))
        during: list[Any] = []

        async def look() -> None:
            during.append(await driver.store.nodes.get(NODE))

        bench.when_moved(lambda: tasks.append(asyncio.ensure_future(look())), LEAF)
        tasks: list[Any] = []
        problems = await driver.release(blockers=(BUSY,))
        rows = await driver.store.journal.list()
        events = [r["detail"] for r in rows if r["kind"] == "released"]
        proof = await driver.store.evidence.get_proof(NODE)
        return (*await end(driver, problems), during[0], events, proof)

    problems, node, refusals, vrfs, during, events, proof = play(scenario, TWO)

    assert (problems, refusals, vrfs) == ((), [], {"RED"})
    assert (node.state, node.placement, node.vrf) == (State.RELEASED, Placement.CUSTOMER, "RED")
    assert (node.served, node.blockers, node.note) == ("red", (), "released to red")
    # while its ports move, the row says neither where they are nor that its disks are clean
    assert (during.placement, during.vrf, during.served) == (Placement.MIXED, "", "red")
    assert (proof.certificate, proof.vrf) == ("c-1", "RED")
    assert proof.gate[-1].check is GateCheck.LIBRARIES  # what came after the gate of the network
    assert GateCheck.STANDS in {r.check for r in proof.gate}
    unknown = [f"{name}: minimum not published" for name in ("NCCL", "DOCA", "CUDA")]
    told = {"tenant": "red", "certificate": "c-1", "proof": proof.sha256, "libraries": unknown}
    assert events == [told]


def test_a_login_that_must_go_and_cannot_come_back_is_refused_before_a_port_moves() -> None:
    async def scenario(bench: Bench) -> Any:
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.release())

    [problem], node, refusals, vrfs = play(scenario, TWO, handover_login="remove")

    assert (problem.reason, problem.subject) == (Reason.NOT_OFFERED, f"{NODE}/login")
    assert (node.state, node.placement) == (State.CERTIFIED, Placement.MAINTENANCE)
    assert (node.served, refusals, vrfs) == ("", [], {"MAINT"})  # nothing was begun


def test_a_tenants_login_that_cannot_be_made_takes_the_node_back() -> None:
    async def scenario(bench: Bench) -> Any:
        store, now = bench.rig.store, bench.rig.clock.now()
        [red] = [t for t in await store.tenants.list() if t.name == "red"]
        key = TenantKey(name="k", public_key="ssh-ed25519 AAAA", added_by="p", added_at=now)
        given = red.model_copy(update={"ssh_keys": (key,)})
        await store.tenants.save(given, new=False, nodes=(), request="r", now=now)
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.release())

    _, node, [rows], vrfs = play(scenario, TWO)

    assert (node.state, node.placement) == (State.CERTIFIED, Placement.MAINTENANCE)
    assert ("login" in rows[0], vrfs) == (True, {"MAINT"})


def test_what_the_gate_refuses_is_recorded_and_the_node_is_fenced() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.when_moved(lambda: spoil(bench) if "RED" in bench.rig.truth(NODE) else None)
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.release())

    problems, node, [rows], vrfs = play(scenario, TWO)

    assert {b.reason for b in problems} == {Reason.ISOLATION}
    assert (node.placement, node.vrf, vrfs) == (Placement.MAINTENANCE, "MAINT", {"MAINT"})
    assert rows
    assert {row.split(":")[0] for row in rows} == {"qos"}


@pytest.mark.parametrize("spoilt", [False, True])
def test_what_a_person_kept_for_a_tenant_is_kept_until_the_tenant_has_it_back(
    spoilt: bool,
) -> None:
    async def scenario(bench: Bench) -> Any:
        if spoilt:
            bench.when_moved(lambda: spoil(bench) if "RED" in bench.rig.truth(NODE) else None)
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.release(tenant_data=TenantData.KEEP))

    _, node, _, _ = play(scenario, TWO)

    assert node.state is (State.CERTIFIED if spoilt else State.RELEASED)
    assert node.tenant_data is (TenantData.KEEP if spoilt else TenantData.SETTLED)


def test_a_fence_that_fails_behind_a_refusal_is_told_beside_it() -> None:
    async def scenario(bench: Bench) -> Any:
        def break_both() -> None:
            spoil(bench)
            silence(bench, LAST)

        bench.when_moved(break_both)
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.release())

    problems, node, _, _ = play(scenario, TWO)

    assert len(problems) > 2  # the gate that has no answer, and the fence
    assert problems[0] in problems[1:]
    assert {b.subject for b in problems} == {LAST}
    assert node.placement is Placement.MIXED


def test_a_revocation_stops_it_before_the_next_leaf() -> None:
    async def scenario(bench: Bench) -> Any:
        tasks: list[Any] = []
        bench.when_moved(revoke(bench, tasks), LEAF)
        parts = Parts(bench)
        driver = Driver(bench, parts)
        problems = await driver.release()
        return (*await end(driver, problems), parts.read_at)

    problems, node, [rows], vrfs, read_at = play(scenario, TWO)

    assert (problems, read_at) == ((), [])  # it is decided anew, by its row
    assert (node.state, node.placement) == (State.CERTIFIED, Placement.MAINTENANCE)
    assert vrfs == {"MAINT"}
    assert "an alert came" in rows[0] or "revoked" in rows[0]


def test_a_tenant_whose_network_became_another_one_does_not_get_the_node() -> None:
    async def scenario(bench: Bench) -> Any:
        async def rename() -> None:
            await execute(
                bench, "UPDATE tenants SET body = replace(body, 'RED', 'RED2') WHERE name = 'red'"
            )

        tasks: list[Any] = []
        bench.when_probed(lambda: tasks.append(asyncio.ensure_future(rename())))
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.release())

    problems, node, [rows], vrfs = play(scenario, TWO)

    assert problems == ()  # a precondition is decided anew at once, not waited for
    assert "has another network now" in str(rows)
    assert (node.placement, vrfs) == (Placement.MAINTENANCE, {"MAINT"})


@pytest.mark.parametrize(
    ("answers", "readings", "problems"),
    [
        ([[SILENT]], 2, None),
        ([[SILENT]] * STANDING_TRIES_MAX, STANDING_TRIES_MAX, (SILENT,)),
        ([[FAILED]], 1, ()),
        ([[SILENT, FAILED]], 1, (SILENT,)),
    ],
    ids=["once silent", "silent", "bad", "both"],
)
def test_a_lost_answer_is_asked_for_again_before_a_release_is_given_up(
    answers: Any, readings: int, problems: Any
) -> None:
    async def scenario(bench: Bench) -> Any:
        parts = Parts(bench, *answers)
        driver = Driver(bench, parts)
        return (*await end(driver, await driver.release()), parts.read_at)

    found, node, refusals, vrfs, read_at = play(scenario, TWO, switch_poll_s=7.0)

    assert [round(b - a) for a, b in pairwise(read_at)] == [7] * (readings - 1)
    assert found == (problems or ())
    if problems is None:
        assert (node.state, refusals, vrfs) == (State.RELEASED, [], {"RED"})
    else:
        assert refusals == [tuple(str(b) for b in answers[-1])]
        assert (node.placement, vrfs) == (Placement.MAINTENANCE, {"MAINT"})


def test_a_fence_that_fails_behind_a_lost_standing_is_told() -> None:
    class Lost(Parts):
        """What is read last is bad, and a leaf falls silent."""

        async def collect(self, node: Node) -> Any:
            silence(bench_of[0], LAST)
            return await super().collect(node)

    bench_of: list[Bench] = []

    async def scenario(bench: Bench) -> Any:
        bench_of.append(bench)
        driver = Driver(bench, Lost(bench, [FAILED]))
        return await end(driver, await driver.release())

    problems, node, [rows], _ = play(scenario, TWO)

    assert rows == (str(FAILED),)
    assert {b.subject for b in problems} == {LAST}
    assert node.placement is Placement.MIXED


def test_what_changes_behind_the_last_look_is_refused_by_the_transaction() -> None:
    async def scenario(bench: Bench) -> Any:
        parts = Parts(bench)
        driver = Driver(bench, parts)

        async def lose_the_stored_parts() -> None:
            await execute(bench, "DELETE FROM inventories")

        parts.before = lose_the_stored_parts
        return await end(driver, await driver.release())

    problems, node, [rows], vrfs = play(scenario, TWO)

    assert problems == ()
    assert len(rows) == 1
    assert NODE in rows[0]
    assert (node.state, node.placement) == (State.CERTIFIED, Placement.MAINTENANCE)
    assert vrfs == {"MAINT"}


# --- fences


TRESPASS = PortPlacement(switch=LEAF, interface="swp1s0", vrf="RED")


def put(bench: Bench, vrf: str) -> None:
    """A foreign hand moves the node's port at one leaf."""
    for tree in trees(bench.leaf):
        tree["interface"][bench.port]["ip"]["vrf"] = vrf


def posted(bench: Bench, since: int) -> list[str]:
    """The leaf of each revision since so many requests."""
    return [n for n, method, _ in bench.rig.switches.calls[since:] if method == "POST"]


async def row(bench: Bench, **changes: Any) -> None:
    node = await bench.rig.store.nodes.get(NODE)
    assert node is not None
    await bench.rig.store.nodes.save(node.model_copy(update=changes))


@pytest.mark.parametrize("seen", [Placement.MIXED, Placement.CUSTOMER])
def test_a_trespass_is_fenced_without_a_wait_and_kept_for_a_person(seen: Placement) -> None:
    async def scenario(bench: Bench) -> Any:
        put(bench, "RED")
        await row(bench, state=State.VALIDATING)
        bench.leaf.planted.busy.add(bench.port)  # it sends, and is not waited for
        began, sent = bench.rig.clock.now(), len(bench.rig.switches.calls)
        driver = Driver(bench, Parts(bench))
        problems = await driver.fence([TRESPASS], seen)
        posts = posted(bench, sent)
        return (*await end(driver, problems), bench.rig.clock.now() - began, posts)

    problems, node, _, vrfs, took, posts = play(scenario, TWO, reclaim_idle_s=900.0)

    assert [(b.reason, b.subject) for b in problems] == [(Reason.TRESPASS, f"{LEAF}/swp1s0")]
    assert (node.placement, node.served, vrfs) == (Placement.MAINTENANCE, "VRF RED", {"MAINT"})
    assert took < 300.0
    assert posts == [LEAF]  # one revision: nothing is denied first


@pytest.mark.parametrize(
    "changes", [{"state": State.DRAINING}, {"state": State.CONVERGING, "taken": True}]
)
def test_a_trespass_of_a_node_that_people_know_of_is_no_question(changes: dict[str, Any]) -> None:
    async def scenario(bench: Bench) -> Any:
        put(bench, "RED")
        await row(bench, **changes)
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.fence([TRESPASS]))

    problems, node, _, vrfs = play(scenario, TWO)

    assert (problems, vrfs) == ((), {"MAINT"})
    assert (node.taken, node.served) == (False, "VRF RED")


def test_a_trespass_whose_fence_is_half_done_is_recorded_as_read_in_this_turn() -> None:
    async def scenario(bench: Bench) -> Any:
        await row(bench, state=State.VALIDATING)
        silence(bench)
        driver = Driver(bench, Parts(bench))
        return await end(driver, await driver.fence([TRESPASS]))

    problems, node, _, _ = play(scenario, TWO)

    assert {b.reason for b in problems} == {Reason.UNREACHABLE}
    assert node.placement is Placement.MIXED


def test_a_customers_node_is_denied_before_it_is_moved_and_labelled_afterwards() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.release()
        bench.rig.tenancy.mark = DatabaseMark("0123abcd" * 4, 1)
        await row(bench, state=State.DRAINING, placement=Placement.CUSTOMER, vrf="RED")
        sent = len(bench.rig.switches.calls)
        driver = Driver(bench, Parts(bench))
        problems = await driver.fence((), Placement.CUSTOMER)
        posts = posted(bench, sent)
        labels = await bench.rig.tenancy.read_labels(LEAF)
        return problems, sorted(posts), labels[bench.port]

    problems, posts, label = play(scenario, TWO)

    assert (problems, posts) == ((), [LEAF, LEAF, LAST, LAST])
    assert label[2:4] == (NODE, "-")


def test_a_node_that_may_be_anywhere_is_fenced_at_once_and_its_ports_are_labelled() -> None:
    async def scenario(bench: Bench) -> Any:
        put(bench, "RED")
        bench.rig.tenancy.mark = DatabaseMark("0123abcd" * 4, 1)
        sent = len(bench.rig.switches.calls)
        driver = Driver(bench, Parts(bench))
        await driver.fence()
        posts = posted(bench, sent)
        kinds = {r["kind"] for r in await driver.store.journal.list()}
        return (await bench.rig.tenancy.read_labels(LEAF))[bench.port], posts, kinds

    label, posts, kinds = play(scenario, TWO)

    assert label[2:4] == (NODE, "-")
    assert posts == [LEAF]  # nothing is denied first
    assert "trespass" not in kinds
    assert "fence" in kinds
