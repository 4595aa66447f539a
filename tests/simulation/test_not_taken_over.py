"""A machine that was never taken over is neither repaired nor written to."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from rig import World

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.integrations.sim.faults.faults import Rule
from provisioner.integrations.twin.wires import MemoryBmcs
from provisioner.model.case import Case, Origin, Stage
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.repair import case_policy
from provisioner.ports import BmcAddress, Call, Reply

HOST, HOUR_S = "su0-n00", 3600.0
LOOK_S = 1.5 * HOUR_S  # quarantine comes within minutes, and each look for repairs within one


class WatchedBmcs(MemoryBmcs):
    """Records each request that may change something in a BMC of the host."""

    writes: list[tuple[str, str]]

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method != "GET" and HOST in bmc.url:
            self.writes.append((call.method, call.path))
        return await super().request(bmc, call)


async def try_to_take_over(world: World) -> list[tuple[str, str]]:
    """Run a daemon that repairs for hours; the host refuses our password and lacks a GPU."""
    refusal = Rule(
        "refused",
        "replace",
        path="/redfish/v1/AccountService/Accounts/*",
        method="PATCH",
        value={"status": 403, "body": None, "headers": {}},
        endpoint=f"{HOST}/host",
    )
    world.site.faults.add(refusal)
    world.site.machines[HOST].devices["GPU_SXM_5"].present = False
    watched = WatchedBmcs(world.services, world.wire)
    watched.writes = []
    await world.take_in()
    world.transport = watched
    await world.start()
    await world.clock.sleep(LOOK_S)
    return watched.writes


@pytest.mark.slow
def test_no_case_is_opened_and_nothing_is_written_before_a_machine_is_ours(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, nodes=1, seed=5)
        book = world.cases = world.store.cases
        try:
            writes = await try_to_take_over(world)
            node = await world.store.nodes.get(HOST)
            assert node is not None
            assert node.state is State.QUARANTINED
            assert Reason.BILL_OF_MATERIALS in {b.reason for b in node.blockers}
            assert await book.list(HOST) == ()
            assert {path.rpartition("/")[0] for _, path in writes} <= {
                "/redfish/v1/AccountService/Accounts"
            }
            begun = len(writes)

            case_service = CaseService(
                Context(world.store, world.clock, world.settings), book, None
            )
            opened = await case_service.open(node, Origin.OPERATOR, "look at it", "jane")
            assert isinstance(opened, Case)
            await world.clock.sleep(LOOK_S)
            case = (await book.list(HOST))[0]
            assert case.stage is Stage.HARDWARE
            assert "It was not taken over" in case.note
            assert case.tries == ()
            assert len(watched_writes(world)) == begun

            await case_service.retire(case, world.clock.now(), "not ours", "jane")
            await world.clock.sleep(HOUR_S)
            node = await world.store.nodes.get(HOST)
            assert node is not None
            assert node.state is State.RETIRED
            assert len(watched_writes(world)) == begun
        finally:
            if world.daemon is not None:
                await world.crash()
            await world.store.close()

    virtual_time.run(main())


def watched_writes(world: World) -> list[tuple[str, str]]:
    assert isinstance(world.transport, WatchedBmcs)
    return world.transport.writes


COUNTED = Blocker(
    reason=Reason.BILL_OF_MATERIALS, subject="n/gpu", detail="7 found, 8 wanted", unblock="Decide."
)
OURS = BmcRef(name="host", url="https://b.test", rotated=True)
CASES = {
    "a node of ours is repaired": ("p", (OURS,), True),
    "one without a profile is a question for a person": ("", (OURS,), False),
    "one whose card is not ours too": (
        "p", (OURS, BmcRef(name="DPU_0", url="https://d.test")), False
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", CASES)
def test_only_a_node_that_was_taken_over_gets_a_case_by_itself(sentence: str) -> None:
    profile, bmcs, faulty = CASES[sentence]
    node = Node(id="n", kind=NodeKind.HOST, state=State.QUARANTINED, blockers=(COUNTED,),
                profile=profile, bmcs=bmcs, placement=Placement.MAINTENANCE)  # fmt: skip

    assert case_policy.is_repairable(node, 2) is faulty
