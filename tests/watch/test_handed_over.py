"""What a daemon has of nodes whose shard a peer takes over: subscriptions, turns, looks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from given_events import in_state
from serving import HOST, Serving, world

from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import PortReport
from provisioner.control.watch.event_feeds import EventFeeds, Way
from provisioner.control.watch.shards import LEAVE_S, Shards
from provisioner.control.watch.watched_nodes import ReadQueue, WatchedNodes
from provisioner.control.watch.watcher import Watcher, WatchParts
from provisioner.execution.actions.reach import Reach
from provisioner.model.alert import Classification, Signal, Subscription
from provisioner.model.location import Location
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.planning.watch import watch_rules
from provisioner.planning.watch.shards import find_shard
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
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
        await old.restore({"n1"})
        await new.restore({"n2"})
        told = [await one.take_delivery("e1", POSTED) for one in (old, new)]
        old.hand_over({"n1"})
        await new.restore({"n1"})
        told += [await one.take_delivery("e1", POSTED) for one in (old, new)]
        await old.restore({"n1"})
        told.append(await old.take_delivery("e1", POSTED))
        await store.close()
        assert len(heard) == told.count(200)
        return told

    assert asyncio.run(scenario()) == [200, 503, 503, 200, 200]


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


SPOILT = "UPDATE subscriptions SET body = '{' WHERE node IN ('n0', 'n2', 'n3')"


def test_when_shards_move_only_the_subscriptions_of_nodes_that_came_are_read() -> None:
    """A row that is damaged meanwhile is met by who reads it, and by nobody else."""
    held: set[int] = {0}

    class Some(Shards):
        def holds(self, node: Node | None) -> bool:
            return node is not None and node.location.scalable_unit in held

    async def scenario() -> list[tuple[set[str], set[str]]]:
        store, clock, found = open_store(":memory:"), WallClock(), []
        for unit in range(4):
            node = Node(id=f"n{unit}", kind=NodeKind.HOST, location=Location(scalable_unit=unit))
            await store.nodes.add(node)
            made = MADE.model_copy(update={"id": f"e{unit}", "node": node.id})
            await store.alerts.put_subscription(made)
        shards, nobody = Some(store, clock), None  # no BMC is asked here
        parts = WatchParts(store.alerts, lambda: "s", listener="https://d0")
        reach = Reach(nobody, nobody, nobody)  # type: ignore[arg-type]
        context = Context(store, clock, Settings())
        watcher = Watcher(context, parts, reach, _submit_none, shards=shards)
        for unit in (0, 1, 2):
            held.add(unit)
            shards.generation += 1
            await watcher._group_nodes()
            found.append((set(watcher.feeds.subscribed), set(store.nodes.find_damaged())))
            if not unit:
                await store.write(lambda c: c.exec_driver_sql(SPOILT))
        await store.close()
        return found

    assert asyncio.run(scenario()) == [
        ({"n0"}, set()),
        ({"n0", "n1"}, set()),
        ({"n0", "n1"}, {"n2"}),
    ]


async def _submit_none(_node: str) -> None: ...


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


@pytest.mark.parametrize(
    ("listener", "way"),
    [("https://d0", Way.SUBSCRIPTION), ("https://d1", Way.UNPROVED), ("", Way.UNPROVED)],
)
def test_a_subscription_to_a_peers_listener_tells_us_nothing(listener: str, way: Way) -> None:
    async def scenario() -> Way:
        store = open_store(":memory:")
        eyes: Any = None  # no BMC is asked here

        async def receive(*_: Any) -> None: ...

        feeds = EventFeeds(
            store.alerts, WallClock(), eyes, receive, streams=None, listener=listener,
            new_secret=lambda: "s", streams_max=0,
        )  # fmt: skip
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.alerts.put_subscription(MADE)
        await feeds.restore({"n1"})
        found = feeds.find_way("n1", "host")
        await store.close()
        return found

    assert asyncio.run(scenario()) is way


class Standing(Shards):
    """Shards of a daemon beside others, in which nothing moves."""

    def __init__(self, serving: Serving, *, ours: bool, leads: bool) -> None:
        super().__init__(serving.world.store, serving.world.clock)
        self._ours = ours
        self._leads = leads

    @property
    def leads(self) -> bool:
        return self._leads

    def holds(self, node: Node | None) -> bool:
        return self._ours


class Optics:
    """The optic of the host's first port dies, the second is well, nothing is known of the third,
    and that of a port that the host has no more was dying.
    """

    def __init__(self) -> None:
        self.cables: list[str] = []

    async def read_hosts(self, nodes: Mapping[str, Node]) -> None:
        self.cables = sorted(f"{port.switch}/{port.interface}" for port in nodes[HOST].ports)

    def list_standing(self) -> dict[str, dict[str, Signal | None]]:
        first, second, *_ = self.cables
        dying = {port: make_signal("OpticDegrades", "watch.optics", port) for port in (first, GONE)}
        return {HOST: {**dying, second: None}}


GONE = "leaf-9/swp1"


def make_signal(ident: str, source: str, target: str = "p") -> Signal:
    kinds = (Classification.SENSOR_WARNING,)
    return Signal(node=HOST, id=ident, target=target, classifications=kinds, source=source, at=1.0)


@pytest.mark.parametrize(
    ("ours", "leads", "standing"),
    [
        (True, True, {"OpticDegrades"}),  # all of it is counted here, and levelled as its own
        (True, False, {"OpticDegrades", "LinkFlap"}),  # the leader has what it was told
        (False, False, {"LinkFlap"}),  # the optics are their new owner's to judge
    ],
)
def test_alerts_of_a_node_are_written_by_the_daemon_that_looks_after_it(
    tmp_path: Path, ours: bool, leads: bool, standing: set[str]
) -> None:
    async def scenario() -> set[str]:
        serving = Serving(world(tmp_path, watch_s=1e6, watch_node_s=1e6))
        await serving.release()
        try:
            await serving.start(streams=False)
            watcher: Any = serving.watcher
            watcher._shards = Standing(serving, ours=ours, leads=leads)
            watcher.optics = Optics()
            await watcher.keeper.level(
                HOST, {"watch.told": [make_signal("LinkFlap", "watch.told")]}
            )
            if ours:
                at = serving.world.clock.now()
                watcher.ports.take(PortReport(node=HOST, port="p", counters=None, link="up", at=at))
            await serving.world.clock.sleep(20.0)
            return {ident for ident, _ in await serving.standing()}
        finally:
            await serving.stop()
            await serving.world.store.close()

    assert virtual_time.run(scenario()) == standing


def test_what_the_leader_was_told_of_a_peers_node_is_forgotten_once_that_serves_no_more(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[bool, Any, Any]:
        serving = Serving(world(tmp_path, watch_s=1e6, watch_node_s=1e6))
        await serving.release()
        try:
            await serving.start(streams=False)
            watcher: Any = serving.watcher
            watcher._shards = watcher._fleet._shards = Standing(serving, ours=False, leads=True)
            await serving.world.clock.sleep(20.0)
            at = serving.world.clock.now() - 600
            await watcher.count([PortReport(node=HOST, port="rail0", link="down", at=at)])
            told = await serving.until(lambda s: ("LinkDown", "rail0") in s, 60)
            gone = in_state(await serving.node(), State.QUARANTINED, serving.world.clock.now())
            await serving.world.store.nodes.save(gone)
            await serving.world.clock.sleep(60)
            return told, watcher.ports.list_nodes(), await serving.standing()
        finally:
            await serving.stop()
            await serving.world.store.close()

    assert virtual_time.run(scenario()) == (True, frozenset(), {})


def test_subscriptions_of_a_node_that_serves_no_more_end_and_hold_up_no_handing_over(
    tmp_path: Path,
) -> None:
    """A BMC that does not answer takes longer than a shard may take to be given away."""

    async def scenario() -> tuple[int, float, int]:
        serving = Serving(world(tmp_path))
        await serving.release()
        clock, book = serving.world.clock, serving.world.store.alerts
        try:
            await serving.start(streams=False, listener="https://192.0.2.1")
            await clock.sleep(900)
            made = len(await book.list_subscriptions())
            for bmc in serving.world.site.machines[HOST].bmcs.values():
                bmc.gone_until = clock.now() + 3600
            gone = in_state(await serving.node(), State.QUARANTINED, clock.now())
            await serving.world.store.nodes.save(gone)
            await clock.sleep(6.0)
            began = clock.now()
            await serving.watcher.leave({find_shard(gone)})
            took = clock.now() - began
            await clock.sleep(7200)
            return made, took, len(await book.list_subscriptions())
        finally:
            await serving.stop()
            await serving.world.store.close()

    made, took, left = virtual_time.run(scenario())

    assert made
    assert took < LEAVE_S + 1.0
    assert left == 0


def test_what_a_daemon_knows_nothing_of_ends_no_alert_of_another(tmp_path: Path) -> None:
    """A new owner has no days of optics yet; a port that the host has no more accuses nobody."""

    async def scenario() -> tuple[set[str], list[str]]:
        serving = Serving(world(tmp_path, watch_s=1e6, watch_node_s=1e6))
        await serving.release()
        try:
            await serving.start(streams=False)
            watcher: Any = serving.watcher
            watcher.optics = optics = Optics()
            await optics.read_hosts({HOST: await serving.node()})
            before = [*optics.cables, GONE]
            said = [make_signal("OpticDegrades", "watch.optics", port) for port in before]
            await watcher.keeper.level(HOST, {"watch.optics": said})
            await serving.world.clock.sleep(20.0)
            return {target for _, target in await serving.standing()}, before
        finally:
            await serving.stop()
            await serving.world.store.close()

    standing, (first, second, third, *more) = virtual_time.run(scenario())
    assert standing == {first, third, *more[:-1]}
    assert second not in standing
