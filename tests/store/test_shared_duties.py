"""Duties that several daemons share on one PostgreSQL: each shard has one owner, and always one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import psycopg
import pytest
from given_events import event_of
from test_seats import LEASE_S, LIMIT_S, Daemon

from provisioner.control.watch import outbox as outbox_module
from provisioner.control.watch import shards as shards_module
from provisioner.control.watch.outbox import Outbox
from provisioner.control.watch.shards import Shards
from provisioner.integrations.site_examination.doctor_commands import examine_daemons
from provisioner.model.integrations.webhook import JournalRow, PostOutcome, Webhook
from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind
from provisioner.planning.watch.shards import LANES, find_shard
from provisioner.ports import Secret
from provisioner.settings import Settings
from provisioner.store import SqlStore, open_store
from provisioner.store.database.postgres import LOCK_SPACE
from provisioner.store.database.seat import LEADER

UNITS = 12


def make_host(unit: int, number: int) -> Node:
    place = Location(scalable_unit=unit, index=number, rack="r")
    return Node(id=f"u{unit}-n{number}", kind=NodeKind.HOST, location=place)


HOSTS = tuple(make_host(unit, number) for unit in range(UNITS) for number in range(4))
ALL = frozenset(find_shard(node) for node in HOSTS)


class Sharer(Daemon):
    """A daemon with its shards, and a duty that records which it left."""

    def __init__(self, database: str, name: str, store: SqlStore, ahead_s: float = 0.0) -> None:
        super().__init__(database, name, ahead_s)
        self.store = store
        self.shards = Shards(store, self.clock, self.cluster)
        self.shards.attend(self)
        self.duty = "looks"
        self.left: list[int] = []
        self.may_leave = asyncio.Event()
        self.may_leave.set()
        self.undone = float("inf")
        self._loop: asyncio.Task[None] | None = None

    async def leave(self, shards: Collection[int]) -> float:
        await self.may_leave.wait()
        self.left += [shard for shard in shards if shard in ALL]
        return self.undone

    async def start(self) -> None:
        await self.cluster.start()
        self._loop = asyncio.create_task(self.shards.run())

    def _end(self, why: str) -> NoReturn:
        self.ends.append(why)
        raise LookupError(why)  # as the end of the process: nothing of it goes on

    async def end(self) -> None:
        """Its process is gone; what it holds is the server's to take away."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            await self.cluster.stop()
        self._loop = None

    @property
    def held(self) -> frozenset[int]:
        return frozenset(find_shard(node) for node in HOSTS if self.shards.holds(node))


@asynccontextmanager
async def site(database: str) -> AsyncIterator[Callable[..., Sharer]]:
    """Yield what makes daemons of one site of twelve units; they end with it."""
    stores, made = [open_store(database)], []
    for node in HOSTS:
        await stores[0].nodes.add(node)

    def make(name: str, ahead_s: float = 0.0) -> Sharer:
        stores.append(open_store(database))
        made.append(Sharer(database, name, stores[-1], ahead_s))
        return made[-1]

    try:
        yield make
    finally:
        for sharer in made:
            await sharer.end()
        for store in stores:
            await store.close()


async def share_out(*sharers: Sharer) -> None:
    """Wait until these hold everything, each its part; at no time do two hold one."""
    part = len(ALL) // len(sharers)
    async with asyncio.timeout(LIMIT_S):
        while True:
            held = [s.held for s in sharers]
            assert sum(map(len, held)) == len(frozenset().union(*held)), "two hold one shard"
            if frozenset().union(*held) == ALL and all(len(h) <= part + 1 for h in held):
                return
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(shards_module, "LOOK_S", 0.1)
    monkeypatch.setattr(outbox_module, "LOOK_S", 0.1)


def test_daemons_that_come_get_a_part_and_one_alone_has_all(database):
    async def scenario() -> list[list[str]]:
        async with site(database) as make:
            a, b, c = make("a", ahead_s=-20.0), make("b", ahead_s=20.0), make("c")
            await a.start()
            await share_out(a)
            await b.start()
            await share_out(a, b)
            await c.start()
            await share_out(a, b, c)
            moved = len(a.left) + len(b.left)
            assert moved <= len(ALL) // 2 + len(ALL) // 3, "more moved than had to"
            await c.end()
            await share_out(a, b)
            return [a.ends, b.ends]

    assert asyncio.run(scenario()) == [[], []]


def test_of_a_daemon_that_is_killed_the_shards_are_taken_with_the_looks_it_may_have_missed(
    database,
):
    async def scenario() -> tuple[float, set[float]]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            await a.start()
            await share_out(a)
            await b.start()
            await share_out(a, b)
            taken = a.held
            killed_at = b.clock.now()
            await a.end()
            await share_out(b)
            return (
                killed_at,
                {b.shards.find_start(n, "looks") for n in HOSTS if find_shard(n) in taken},
            )

    killed_at, since = asyncio.run(scenario())

    assert all(killed_at - 2 * LEASE_S < at <= killed_at for at in since)


def test_a_shard_is_given_only_once_its_duties_ended_and_the_successor_goes_on_from_there(database):
    async def scenario() -> tuple[float, set[float], int]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            await a.start()
            await share_out(a)
            a.may_leave.clear()
            a.undone = a.clock.now() - 7.0  # a turn that was overdue
            await b.start()
            await asyncio.sleep(1.0)
            early = len(b.held)
            a.may_leave.set()
            await share_out(a, b)
            return (
                a.undone,
                {b.shards.find_start(n, "looks") for n in HOSTS if b.shards.holds(n)},
                early,
            )

    undone, since, early = asyncio.run(scenario())

    assert since == {undone}
    assert early == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_daemon_whose_session_the_server_ended_holds_nothing_that_a_peer_takes(database):
    """Cut off, it ends before it acts; its locks went with the session."""

    async def scenario() -> list[str]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            await a.start()
            await share_out(a)
            await b.start()
            await share_out(a, b)
            with psycopg.connect(database, autocommit=True) as person:
                person.execute(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = "
                    "'advisory' AND l.classid = %s::bigint::oid AND l.objid = %s::bigint::oid",
                    (LOCK_SPACE + 1, a.seat.number),
                )
            with pytest.raises(LookupError):
                await a.cluster.take_shards(ALL)
            async with asyncio.timeout(LIMIT_S):
                while b.held != ALL:  # noqa: ASYNC110  (of the database)
                    await asyncio.sleep(0.05)
            return a.ends

    [why, *_] = asyncio.run(scenario())

    assert "the database ended the session" in why


def test_while_a_daemon_of_an_older_version_leads_it_alone_looks(database):
    async def scenario() -> tuple[frozenset[int], frozenset[int]]:
        async with site(database) as make:
            with psycopg.connect(database, autocommit=True) as older:
                older.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK_SPACE, LEADER))
                a = make("a")
                await a.start()
                await asyncio.sleep(1.0)
                beside = a.held
            await share_out(a)
            return beside, a.held

    assert asyncio.run(scenario()) == (frozenset(), ALL)


def test_the_doctor_tells_which_daemon_has_which_units_and_nodes(database):
    async def scenario() -> list[str]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            for one in (a, b):
                await one.start()
            await share_out(a, b)
            for one in (a, b):  # so that nothing moves while it is read
                assert one._loop is not None
                one._loop.cancel()
            examined = await asyncio.to_thread(examine_daemons, database, {})
            told = {e.subject: e.detail for e in examined}
            for one in (a, b):
                units = {h.location.scalable_unit for h in HOSTS if one.shards.holds(h)}
                assert f"{4 * len(units)} nodes of {len(units)} units (" in told[one.cluster.id]
            return list(told.values())

    details = asyncio.run(scenario())

    assert len(details) == 2
    sent = [int(d.partition("and sends ")[2].partition(" ")[0]) for d in details]
    assert sum(sent) == len(LANES)


def test_a_leaf_whose_row_is_damaged_and_tells_no_place_has_one_owner(database):
    """Its ports serve all the same: it is read by one daemon, and by one alone."""

    async def scenario() -> int:
        async with site(database) as make:
            a, b = make("a"), make("b")
            place = Location(scalable_unit=UNITS, rack="r")
            await a.store.nodes.add(Node(id="leaf", kind=NodeKind.SWITCH, location=place))
            with psycopg.connect(database, autocommit=True) as disk:
                disk.execute("UPDATE nodes SET body = '{', changed = 999999 WHERE id = 'leaf'")
            [leaf] = await a.store.nodes.list_set_aside()
            assert leaf.location == Location()
            for one in (a, b):
                await one.start()
            await share_out(a, b)
            async with asyncio.timeout(LIMIT_S):
                while not (  # noqa: ASYNC110  (of the database)
                    owners := sum(one.shards.holds(leaf) for one in (a, b))
                ):
                    await asyncio.sleep(0.02)
            return owners

    assert asyncio.run(scenario()) == 1


ROWS = 24  # of each part of the story


class Receiver:
    """What a webhook received, from whom, in the order of its arrival; of one node never two."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, int]] = []  # daemon, node, row of the journal
        self._coming: set[str] = set()

    async def take(self, sender: str, row: JournalRow) -> PostOutcome:
        assert row.node not in self._coming, f"two of {row.node} are on their way"
        self._coming.add(row.node)
        try:
            await asyncio.sleep(0.01)
            self.got.append((sender, row.node, row.seq))
        finally:
            self._coming.discard(row.node)
        return PostOutcome(delivered=True)

    @property
    def senders(self) -> set[str]:
        return {sender for sender, _, _ in self.got}


class Sender:
    """What sends the notices of one daemon's shards (`ports.WebhookPosts`, and its secrets)."""

    def __init__(self, sharer: Sharer, name: str, receiver: Receiver) -> None:
        self._sharer, self._name, self._receiver = sharer, name, receiver
        chosen = Settings(webhook_parallel=6)
        given: Any = (sharer.store.webhooks, self, self, sharer.clock, chosen, None)
        self._outbox = Outbox(*given, sharer.shards)
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._sharer.start()
        self._sending = asyncio.create_task(self._outbox.run())

    async def end(self) -> None:
        """Its process is gone, whatever was on its way."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._sharer.end()

    async def post(self, _webhook: Webhook, row: JournalRow, *_: object) -> PostOutcome:
        return await self._receiver.take(self._name, row)

    async def current(self, _name: str) -> tuple[str, Secret]:
        return "", Secret("s")

    async def pending(self, _name: str) -> None: ...


async def empty(store: SqlStore, receiver: Receiver, count: int) -> None:
    """Wait until so many rows came, and none is on its way."""
    async with asyncio.timeout(LIMIT_S):
        pending = 1
        while pending or len({seq for _, _, seq in receiver.got}) < count:
            await asyncio.sleep(0.05)
            [standing] = await store.webhooks.list()
            pending = standing.pending


def test_notices_are_shared_each_is_sent_once_and_of_a_node_one_after_the_other(database):
    """Also while shards of notices move; after a death one that was on its way comes again."""

    async def scenario() -> tuple[list[tuple[str, str, int]], set[str], list[Any]]:
        receiver = Receiver()
        async with site(database) as make:
            senders = {name: Sender(make(name), name, receiver) for name in "abc"}
            a, b, c = senders.values()
            store = a._sharer.store
            await store.webhooks.add(
                Webhook(name="w", url="https://w", made_at=1.0, kinds=("sel",)), None, "ada"
            )

            async def happens(count: int) -> None:
                for number in range(count):
                    node = f"n{number % 11}" if number % 5 else ""
                    await store.journal.append(event_of("sel", node, {"said": str(number)}), 1.0)

            await a.start()
            await happens(ROWS)
            await b.start()
            await happens(ROWS)
            await c.start()
            await happens(ROWS)
            await empty(store, receiver, 3 * ROWS)
            whole = list(receiver.got)
            await happens(ROWS)
            await b.end()
            await empty(store, receiver, 4 * ROWS)
            await a.end()
            await c.end()
            return whole, receiver.senders, receiver.got

    whole, senders, got = asyncio.run(scenario())

    assert len({seq for _, _, seq in whole}) == len(whole) == 3 * ROWS
    assert len({seq for _, _, seq in got}) == 4 * ROWS
    assert senders == set("abc")
    for node in {node for _, node, _ in got}:
        came = list(dict.fromkeys(seq for _, about, seq in got if about == node))
        assert came == sorted(came)
