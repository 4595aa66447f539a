"""What a daemon has of nodes whose shard a peer takes over: subscriptions, turns, looks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.control.watch.event_feeds import EventFeeds
from provisioner.control.watch.shards import Shards
from provisioner.control.watch.watched_nodes import ReadQueue, WatchedNodes
from provisioner.model.alert import Subscription
from provisioner.model.location import Location
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.planning.watch import watch_rules
from provisioner.runtime.wall_clock import WallClock
from provisioner.store import open_store

MADE = Subscription(
    id="e1", node="n1", bmc="host", context="", destination="https://d0/e1", made_at=0.0,
    path="/redfish/v1/EventService/Subscriptions/1", delivers=True,
)  # fmt: skip
POSTED = {"Events": [{"MessageId": "ResourceEvent.1.0.ResourceChanged", "Message": "x"}]}


def test_an_event_of_a_node_that_was_given_away_is_not_taken_until_it_comes_back() -> None:
    async def scenario() -> list[int]:
        store = open_store(":memory:")
        heard: list[str] = []

        async def receive(node: str, _bmc: str, _document: Any) -> None:
            heard.append(node)

        eyes: Any = None  # no BMC is asked here
        old, new = (
            EventFeeds(
                store.alerts, WallClock(), eyes, receive, streams=None, listener="https://d0",
                new_secret=lambda: "s", streams_max=0,
            )
            for _ in range(2)
        )  # fmt: skip
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.alerts.put_subscription(MADE)
        await old.restore(lambda name: name == "n1")
        await new.restore(lambda name: name != "n1")
        told = [await one.take_delivery("e1", POSTED) for one in (old, new)]
        old.hand_over("n1")
        await new.restore(lambda _: True)
        told += [await one.take_delivery("e1", POSTED) for one in (old, new)]
        await old.restore(lambda _: True)
        told.append(await old.take_delivery("e1", POSTED))
        await store.close()
        assert len(heard) == told.count(200)
        return told

    assert asyncio.run(scenario()) == [200, 404, 503, 200, 200]


def test_a_watch_has_the_nodes_of_its_shards_and_learns_when_these_move() -> None:
    held: set[int] = set()

    class Some(Shards):
        def __init__(self) -> None:
            self.generation = 0

        def holds(self, node: Node | None) -> bool:
            return node is not None and node.location.scalable_unit in held

    def host(unit: int) -> Node:
        bmc = BmcRef(name="host", url=f"https://n{unit}")
        place = Location(scalable_unit=unit)
        node = Node(id=f"n{unit}", kind=NodeKind.HOST, state=State.RELEASED, location=place)
        return node.model_copy(update={"bmcs": (bmc,)})

    shards, nodes = Some(), [host(0), host(1)]
    fleet = WatchedNodes(shards)
    fleet.take(nodes)
    assert (fleet.watched, set(fleet.all)) == ({}, {"n0", "n1"})
    held, shards.generation = {0, 1}, 1
    fleet.take(nodes)  # not one of them changed
    assert sorted(fleet.entered) == ["n0", "n1"]
    held, shards.generation = {1}, 2
    fleet.take(nodes)
    assert (list(fleet.watched), fleet.left) == (["n1"], ["n0"])


def test_looks_of_a_shard_that_is_left_end_before_and_none_of_them_begins() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        began: list[str] = []
        ended: list[str] = []

        async def look(name: str) -> None:
            began.append(name)
            await asyncio.sleep(0.05)
            ended.append(name)

        queue = ReadQueue(2, look)
        queue.due(["a1", "a2", "a3", "b1"])
        await asyncio.sleep(0)
        await queue.leave({"a1", "a2", "a3"})
        after = list(ended)
        while queue.running:  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0.01)
        return after, began

    ended, began = asyncio.run(scenario())

    assert ended == ["a1", "a2"]
    assert began == ["a1", "a2", "b1"]


@pytest.mark.parametrize("late_s", [-5.0, 0.0, 0.3, 200.0])
def test_a_turn_that_began_a_little_early_or_late_is_followed_by_the_next_one(
    late_s: float,
) -> None:
    due = watch_rules.find_next_turn("n1", 300.0, 1_000_000.0)
    for _ in range(1000):
        later = watch_rules.find_later_turn("n1", 300.0, due, due + late_s)
        assert later == pytest.approx(due + 300.0, abs=1e-3)
        due = later
