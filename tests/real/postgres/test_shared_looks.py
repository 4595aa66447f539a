"""Looks are shared by real processes on PostgreSQL: none is lost, none doubled in ordinary days."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from postgres_server import Server
from proxy import Cable

from provisioner.daemon.cluster import LOST
from provisioner.model.location import Location
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.store import open_store

pytestmark = pytest.mark.long  # minutes of waiting; tests/store/test_shared_duties.py is shorter
PROGRAM = Path(__file__).with_name("looking_daemon.py")
LEASE_S = 6.0
SLOW_LEASE_S = 30.0  # a beat asks several times, half a second each
INTERVAL_S = 20.0
LIMIT_S = 300.0
KILLED = -signal.SIGKILL
UNITS, HOSTS = 12, 4
NODES = {f"u{unit}-n{number}": unit for unit in range(UNITS) for number in range(HOSTS)}


@dataclass
class Looker:
    """One process, and where it writes its looks."""

    name: str
    file: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self, server: Server, url: str, lease_s: float, ahead_s: float) -> None:
        command = [sys.executable, str(PROGRAM), url, self.name]
        with self.file.open("ab") as out, self.file.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(lease_s), str(INTERVAL_S), str(ahead_s)],
                stdout=out, stderr=log, env=server.environment,
            )  # fmt: skip

    @property
    def looks(self) -> list[dict[str, object]]:
        lines = self.file.read_text().splitlines(keepends=True) if self.file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def nodes_since(self, at: float) -> set[str]:
        return {str(look["node"]) for look in self.looks if float(str(look["due"])) > at}


class Site:
    """Twelve units on one database, and what looks at them."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.database = server.make()
        self.lookers: list[Looker] = []
        self.lost_seat: list[Looker] = []  # these end
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        store = open_store(self.server.url(self.database))
        for name, unit in NODES.items():
            place = Location(scalable_unit=unit, rack="r")
            bmc = BmcRef(name="host", url=f"https://{name}")
            await store.nodes.add(
                Node(id=name, kind=NodeKind.HOST, state=State.RELEASED, location=place, bmcs=(bmc,))
            )
        await store.close()

    def start(self, ahead_s: float = 0.0, port: int = 0, lease_s: float = LEASE_S) -> Looker:
        looker = Looker(f"d{len(self.lookers)}", self.folder / f"d{len(self.lookers)}.looks")
        looker.start(self.server, self.server.url(self.database, port), lease_s, ahead_s)
        self.lookers.append(looker)
        return looker

    def end(self) -> None:
        for looker in self.lookers:
            looker.process.kill()
            looker.process.wait()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + LIMIT_S
        while not holds():
            logs = [one.file.with_suffix(".log").read_text()[-800:] for one in self.lookers]
            assert time.monotonic() < ends, (what, logs)
            staying = [one for one in self.lookers if one not in self.lost_seat]
            ended = [one.name for one in staying if one.process.poll() not in (None, KILLED)]
            assert not ended, (what, ended, logs)
            time.sleep(0.2)

    def shared_by(self, *lookers: Looker, since: float = 0.0) -> bool:
        """Whether each of these, and nobody else, looks, and together they look at every node."""
        seen = [one.nodes_since(since) for one in lookers]
        return all(seen) and set().union(*seen) == NODES.keys()

    def made(self) -> dict[str, list[tuple[float, float]]]:
        """Node -> when each of its looks was due, and when it began."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for one in self.lookers:
            for look in one.looks:
                found[str(look["node"])].append((float(str(look["due"])), float(str(look["at"]))))
        return found

    def lost(self) -> dict[str, list[int]]:
        """Node -> the turns up to its last look that none began for.

        A look that is late makes up for all turns since it was due, as far as to the one that
        begins right after it (`find_later_turn`).
        """
        found = {}
        for node, looks in self.made().items():
            first = min(looks)[0]
            seen: set[int] = set()
            for due, began in looks:
                until = max(due, began + INTERVAL_S / 64)
                seen |= set(
                    range(round((due - first) / INTERVAL_S), int((until - first) // INTERVAL_S) + 1)
                ) | {round((due - first) / INTERVAL_S)}
            if missing := [turn for turn in range(max(seen)) if turn not in seen]:
                found[node] = missing
        return found

    def doubled(self) -> dict[str, list[float]]:
        """Node -> the turns that two looks were begun for."""
        counted = {n: Counter(round(due, 1) for due, _ in made) for n, made in self.made().items()}
        doubles = {n: [due for due, times in c.items() if times > 1] for n, c in counted.items()}
        return {node: dues for node, dues in doubles.items() if dues}

    def newest(self) -> float:
        return max(float(str(look["due"])) for one in self.lookers for look in one.looks)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(memory=True)
    try:
        server.start("-c", "fsync=off")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
            yield server
    finally:
        server.remove()


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as ends:
        made = Site(server, tmp_path)
        ends.callback(made.end)
        yield made


def test_daemons_that_come_share_the_looks_and_no_turn_is_lost_or_doubled(site: Site) -> None:
    """Their clocks are a minute apart."""
    a = site.start(ahead_s=-30.0)
    site.until(lambda: site.shared_by(a), "one looks at all")
    b = site.start(ahead_s=28.0)
    c = site.start()
    site.until(lambda: bool(b.looks and c.looks), "the others look")
    since = site.newest()
    site.until(lambda: site.shared_by(a, b, c, since=since), "three look at all")
    until = since + 2 * INTERVAL_S
    site.until(lambda: site.newest() > until, "and go on")

    assert site.lost() == {}
    assert site.doubled() == {}
    parts = [one.nodes_since(since) for one in (a, b, c)]
    assert sum(map(len, parts)) == len(NODES), "a node had two owners"
    assert max(map(len, parts)) <= len(NODES) / 3 + HOSTS


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_of_a_daemon_that_ends_or_stands_still_no_turn_is_lost(site: Site, sign: int) -> None:
    a, b = site.start(), site.start()
    site.until(lambda: bool(a.looks and b.looks), "both look")
    since = site.newest()
    site.until(lambda: site.shared_by(a, b, since=since), "two look at all")
    a.process.send_signal(sign)
    since = site.newest()
    site.until(lambda: site.shared_by(b, since=since), "the other one looks at all")

    assert site.lost() == {}
    if sign == signal.SIGSTOP:
        before = len(a.looks)
        a.process.send_signal(signal.SIGCONT)
        assert a.process.wait(timeout=LIMIT_S) == LOST
        assert len(a.looks) == before, "it looked although its lease was over"


def test_an_owner_that_is_cut_off_ends_before_a_peer_looks_and_no_turn_is_lost(
    site: Site,
) -> None:
    """It still reaches the BMCs, and its clock is half a minute ahead."""

    async def scenario() -> None:
        cable = Cable(site.server.port)
        await cable.open()
        a, b = site.start(port=cable.port, ahead_s=28.0), site.start()
        await asyncio.to_thread(site.until, lambda: bool(a.looks and b.looks), "both look")
        since = site.newest()
        both = lambda: site.shared_by(a, b, since=since)  # noqa: E731
        await asyncio.to_thread(site.until, both, "two look at all")
        owned = a.nodes_since(since)
        site.lost_seat.append(a)
        cable.cut()
        assert await asyncio.to_thread(a.process.wait, LIMIT_S) == LOST
        began = [float(str(look["at"])) for look in a.looks]
        since = site.newest()
        alone = lambda: site.shared_by(b, since=since)  # noqa: E731
        await asyncio.to_thread(site.until, alone, "the other one looks at all")
        await cable.close()
        taken = [float(str(look["at"])) for look in b.looks if look["node"] in owned]
        assert taken
        assert min(taken) > max(began), "a peer looked while it might have"

    asyncio.run(scenario())

    assert site.lost() == {}


def test_with_a_database_at_half_a_second_no_turn_is_lost_or_doubled(site: Site) -> None:
    async def scenario() -> None:
        cable = Cable(site.server.port)
        await cable.open()
        a = site.start(port=cable.port, lease_s=SLOW_LEASE_S)
        await asyncio.to_thread(site.until, lambda: site.shared_by(a), "one looks at all")
        cable.delay_s = 0.5
        b = site.start(port=cable.port, lease_s=SLOW_LEASE_S)
        await asyncio.to_thread(site.until, lambda: bool(b.looks), "the other one looks")
        since = site.newest()
        both = lambda: site.shared_by(a, b, since=since)  # noqa: E731
        await asyncio.to_thread(site.until, both, "two look at all")
        await cable.close()

    asyncio.run(scenario())

    assert site.lost() == {}
    assert site.doubled() == {}
