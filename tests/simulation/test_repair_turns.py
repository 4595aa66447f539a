"""The loop over cases, on rows alone: whoever is faster, nobody's word is lost."""

from __future__ import annotations

import pytest
import virtual_time
from given_events import in_state

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.repairs.repairs import Repairs
from provisioner.integrations.twin.loop import VirtualClock
from provisioner.model.case import Case, Origin, Stage
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.settings import Settings
from provisioner.store.sql_store import open_store

SAID, FAILED = "said", "failed"
# in which order: the node goes into quarantine, people say that they are done
ORDERS = {
    "people are done after the node was refused: it is taken in": ([FAILED, SAID], Stage.RETURNING),
    "it fails after people were done: it is looked at again": ([SAID, FAILED], Stage.EVIDENCE),
}


@pytest.mark.parametrize("sentence", ORDERS)
def test_a_word_of_people_is_not_taken_for_a_failure(sentence: str) -> None:
    order, stage = ORDERS[sentence]

    async def story() -> tuple[Node, Case]:
        store, clock = open_store(":memory:", inline=True), VirtualClock()
        book, settings = store.cases, Settings(site="test")
        case_service = CaseService(Context(store, clock, settings), book, None)

        async def submit(_: str) -> None:
            raise AssertionError("nothing is to be done yet")

        fenced = Node(id="n", kind=NodeKind.HOST, state=State.CONVERGING,
                      placement=Placement.MAINTENANCE)  # fmt: skip
        node = await store.nodes.add(fenced)
        case = await case_service.open(node, Origin.OPERATOR, "broken", "somebody")
        assert isinstance(case, Case)
        case = await book.save(case.enter_stage(Stage.HARDWARE, clock.now()), now=clock.now())
        for event in order:
            await clock.sleep(1.0)
            if event == SAID:
                answer = await case_service.record_return(case, "technician", "done")
                assert isinstance(answer, Case)
            else:
                node = await store.nodes.save(in_state(node, State.QUARANTINED, clock.now()))
        await Repairs(Context(store, clock, settings), case_service, None, submit).tick()
        held, now = await store.nodes.get("n"), await book.get(case.id)
        assert held is not None
        assert now is not None
        return held, now

    node, case = virtual_time.run(story())

    assert (node.state, case.stage) == (State.REPAIRING, stage)
