"""What watching 65,536 nodes costs at one look each per 30 minutes, as a share of a core.

    make bench NAME=watch                      (ARGS="--served 4 --nodes 4096" for a quick one)

Looks are real: `Watcher._look` over HTTPS at a simulated site that another process serves, eleven
BMCs to a node, with the vault, the pins, the sessions and the alerts' rows of a daemon. There are
three kinds: "open" (connection and session are there), "closed" (the connection was idle and is
closed, the session lives) and "expired" (the session is over too, as after 30 minutes).
Each is measured where BMCs offer no events (one request each) and where they post events to us (the
subscription is looked at as well). What comes by event is measured as it is handed to the watch.

The bookkeeping is run at full size: that many rows in a SQLite file, a round of the watch (every 5
s), a tick of the scheduler (every 20 s), while some nodes change. Only CPU time of this process
counts, all threads; nothing is guessed but the product. The last line is JSON; `polled_share` is
the share of a core where no BMC sends events, `polled_bound` the TLS handshakes in it alone, one of
which is measured in memory after each look, and `polled_ratio` the one over the other. `bare_ratio`
is what a blocking socket with one GET costs over its handshake, measured beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bench_api
import this_machine
from served_bmcs import Served, taken_in
from sqlalchemy import Connection, insert

from provisioner.adapters import bounded_http
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.control.context import Context
from provisioner.control.node.scheduler import Scheduler
from provisioner.control.watch.watcher import ROUND_S, Watcher, WatchParts
from provisioner.daemon.data import Data, open_data
from provisioner.execution.actions.reach import Reach
from provisioner.integrations.sim.hardware.clock import server_context
from provisioner.model.node import Node, State
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.rows import node_rows
from provisioner.store.schema import schema

NODES, LOOK_S, MUST = 65_536, 1800.0, 0.5
LISTENER = "https://127.0.0.1:9/v1/redfish/events"
WAYS = (("polled", "", True), ("polled_by_sessions", "", False), ("events", LISTENER, True))
IDLE_S = 4.0  # an idle connection is closed after this here, so that nobody waits for 20 s
CHANGES = 25  # nodes that change between two rounds: 5 a second
EVENTS_A_DAY = 24.0  # of one BMC, healthy: "a few an hour" (control/event_feeds)
EVENT = {
    "@odata.type": "#Event.v1_7_0.Event",
    "Events": [
        {
            "MessageId": "ResourceEvent.1.0.ResourceChanged",
            "Message": "One or more resource properties have changed.",
            "MessageSeverity": "OK",
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        }
    ],
}


async def nobody(_: str) -> None:
    """No operation is opened here."""


async def cpu_of(work: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    await work()
    return time.process_time() - began


async def looks(
    data: Data, served: Served, rounds: int, listener: str, *, basic: bool
) -> dict[str, float]:
    """CPU milliseconds of a look at a node of each kind, and its requests."""
    transport = RedfishTransport(watch_basic=basic)
    nodes = await taken_in(data, served, transport)
    clock = WallClock()
    settings = Settings(watch_requests_per_s=10_000.0)
    reach = Reach(transport, None, data.vault)  # type: ignore[arg-type]  # no switch is asked
    parts = WatchParts(data.store.alerts, os.urandom(24).hex, listener=listener)
    watcher = Watcher(Context(data.store, clock, settings), parts, reach, nobody)
    await watcher.feeds.restore([node.id for node in await data.store.nodes.list()])
    watcher._nodes = {n.id: n for n in nodes}
    turns = {n.id: watcher._first(n, clock.now(), clock.now()) for n in nodes}

    async def all_nodes() -> None:
        for node in nodes:  # one after the other, as 36 a second are
            await watcher._look(node, turns[node.id])

    async def all_nodes_and_handshakes() -> float:
        """CPU seconds of the looks; after each a handshake, in the state that it left."""
        spent = 0.0
        for node in nodes:
            spent += await cpu_of(partial(watcher._look, node, turns[node.id]))
            shaken.append(handshakes(1))
            if basic and not listener:
                bare.append(bare_read(node.bmcs[0].url))
        return spent

    seen: dict[str, list[float]] = {"open": [], "closed": [], "expired": []}
    shaken: list[float] = []
    bare: list[float] = []
    repeats = 5 if basic and not listener else 1
    try:
        await all_nodes()  # vendors and ways are asked for once
        await all_nodes()
        for _ in range(rounds):
            seen["open"].append(await cpu_of(all_nodes))
            await asyncio.sleep(IDLE_S + 1.0)
            seen["closed"].append(await cpu_of(all_nodes))
            await asyncio.sleep(IDLE_S + 1.0)
            before, bare_before = served.forget_sessions(), len(bare)
            for _ in range(repeats):  # with Basic there is nothing that the first look opens
                seen["expired"].append(await all_nodes_and_handshakes())
            requests = served.forget_sessions() - before - len(bare) + bare_before
        first = next(iter(watcher._nodes))
        events = await cpu_of(partial(_hear, watcher, first, "host", 500))
    finally:
        await watcher.close()
        await transport.close()
    each = {k: 1000 * statistics.median(v) / len(nodes) for k, v in seen.items()}
    one = {"event": 1000 * events / 500, "handshake": statistics.median(shaken)}
    one |= {"bare": statistics.median(bare)} if bare else {}
    return each | {"requests_expired": requests / repeats / len(nodes)} | one


def handshakes(times: int = 400, *, served: bool = False) -> float:
    """CPU milliseconds of the client's part of one TLS handshake in memory, of so many in a row;
    `served`: of the server's.

    The server's certificate is the simulated BMCs' (P-256); nothing is verified, as with a pin.
    """
    server = _server_context()
    spent = 0.0
    for _ in range(times):
        ways = [ssl.MemoryBIO() for _ in range(2)]
        client = bounded_http.bare_context().wrap_bio(ways[0], ways[1])
        peer = server.wrap_bio(ways[1], ways[0], server_side=True)
        for _ in range(3):
            began = time.thread_time()
            _advance(client)
            between = time.thread_time()
            _advance(peer)
            spent += time.thread_time() - between if served else between - began
    return 1000 * spent / times


def bare_read(url: str) -> float:
    """CPU milliseconds of one GET by a blocking socket: what Python's `ssl` takes at the least."""
    place = urlsplit(url)
    asked = f"GET /redfish/v1/ HTTP/1.1\r\nHost: {place.hostname}\r\nConnection: close\r\n\r\n"
    began = time.thread_time()
    with (
        socket.create_connection((place.hostname or "", place.port or 443), 10.0) as plain,
        bounded_http.bare_context().wrap_socket(plain) as bmc,
    ):
        bmc.sendall(asked.encode())
        if not bmc.recv(65_536).startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{url}: no answer of 200")
    return 1000 * (time.thread_time() - began)


@cache
def _server_context() -> ssl.SSLContext:
    return server_context("bench", "127.0.0.1")


def _advance(side: ssl.SSLObject) -> None:
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()


async def _hear(watcher: Watcher, node: str, bmc: str, times: int) -> None:
    """Events as the listener hands them over, parsed from their JSON."""
    from provisioner.adapters.redfish.eventing.events import read_document

    text = json.dumps(EVENT)
    for _ in range(times):
        await watcher.receive(node, bmc, read_document(json.loads(text)))


class Blind(Watcher):
    """A watch whose looks are measured elsewhere: it begins them, and they end at once."""

    begun = 0

    async def _look(self, node: Node, turns: Any) -> None:
        self.begun += 1
        self.looked[node.id] = self._clock.now()
        turns.glance_at = self._clock.now() + self._settings.watch_node_s

    async def _sweep(self, node: Node, turns: Any) -> None:
        turns.sweep_at = self._clock.now() + self._settings.watch_s


class SteppedClock:
    """Time passes when it is told to."""

    def __init__(self) -> None:
        self.at = time.time()

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        await asyncio.sleep(0)


async def bookkeeping(data: Data, count: int) -> dict[str, float]:
    """CPU milliseconds of a round of the watch and of a tick of the scheduler, at full size."""

    def fill(connection: Connection, numbers: range) -> None:
        rows = []
        for number in numbers:
            made = bench_api.node(number).model_copy(
                update={"state": State.RELEASED, "certificate": f"c{number}"}
            )
            rows.append({"id": made.id, **node_rows._columns(made), "changed": number})
        connection.execute(insert(schema.nodes), rows)

    for begin in range(0, count, 1024):
        numbers = range(begin, min(begin + 1024, count))
        await data.store.write(partial(fill, numbers=numbers))
    clock, settings = SteppedClock(), Settings(watch_node_s=LOOK_S, watch_s=LOOK_S)
    reach = Reach(None, None, data.vault)  # type: ignore[arg-type]  # nobody is asked
    context = Context(data.store, clock, settings)
    watcher = Blind(context, WatchParts(data.store.alerts, lambda: "s"), reach, nobody)
    scheduler = Scheduler(context, nobody, watcher.keeper.list_held_nodes)
    first = 1000 * await cpu_of(watcher.run_round)
    rounds, ticks = [], []
    for turn in range(8):
        changed = (await data.store.nodes.list())[turn * CHANGES : (turn + 1) * CHANGES]
        await asyncio.gather(
            *(data.store.nodes.save(n.model_copy(update={"note": f"{turn}"})) for n in changed)
        )
        await clock.sleep(ROUND_S)
        rounds.append(1000 * await cpu_of(watcher.run_round))
        ticks.append(1000 * await cpu_of(scheduler.tick))
    await watcher.close()
    return {
        "first_round": first,
        "round": statistics.median(rounds),
        "tick": statistics.median(ticks),
        "looks_begun_per_round": watcher.begun / 9,
    }


def shares(
    nodes: int, bmcs: float, look: Mapping[str, float], kept: Mapping[str, float], events: float
) -> dict[str, float]:
    """Shares of a core, from the milliseconds that were measured."""
    per_s = nodes / LOOK_S
    told = {
        "looks": per_s * look["expired"] / 1000,
        "events": nodes * bmcs * events / 86400.0 * look["event"] / 1000,
        "rounds": kept["round"] / 1000 / ROUND_S,
        "ticks": kept["tick"] / 1000 / Settings().poll_s,
    }
    return told | {"all": sum(told.values())}


async def bench(served_nodes: int, rounds: int, count: int) -> dict[str, Any]:
    """Everything, measured; then the product."""
    bounded_http.KEEPALIVE_S = IDLE_S
    served = Served(served_nodes)
    found: dict[str, Any] = {"look_cpu_ms": {}}
    try:
        for way, listener, basic in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                async with open_data(Path(folder) / "data", time.time()) as data:
                    seen = found["look_cpu_ms"][way] = await looks(
                        data, served, rounds, listener, basic=basic
                    )
                    sys.stdout.write(f"{way}: {rounded(seen)}\n")
                    sys.stdout.flush()
    finally:
        served.close()
    with tempfile.TemporaryDirectory() as folder:
        async with open_data(Path(folder) / "data", time.time()) as data:
            found["bookkeeping_cpu_ms"] = await bookkeeping(data, count)
    bmcs = len(served.bmcs) / served_nodes
    found["bmcs_per_node"] = bmcs
    kept = found["bookkeeping_cpu_ms"]
    found["share_of_a_core"] = {
        way: shares(count, bmcs, look, kept, EVENTS_A_DAY if way == "events" else 0.0)
        for way, look in found["look_cpu_ms"].items()
    }
    found["handshake_cpu_ms"] = found["look_cpu_ms"]["polled"]["handshake"]
    per_s = count * bmcs / LOOK_S
    found["polled_bound"] = per_s * found["handshake_cpu_ms"] / 1000
    found["polled_share"] = found["share_of_a_core"]["polled"]["all"]
    found["polled_ratio"] = found["polled_share"] / found["polled_bound"]
    bare_ms = found["look_cpu_ms"]["polled"]["bare"]
    found["bare_ratio"] = bare_ms / found["handshake_cpu_ms"]
    return found


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def main() -> int:
    """Print the figures and the JSON; exit code 1 if polling passes half a core."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--served", type=int, default=3)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--nodes", type=int, default=NODES)
    asked = ask.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        found = rounded(runner.run(bench(asked.served, asked.rounds, asked.nodes)))
    told = {
        **this_machine.told(),
        "nodes": asked.nodes,
        "look_every_s": LOOK_S,
        **found,
        "reached": found["polled_share"] <= MUST,
    }
    for name, value in told.items():
        sys.stdout.write(f"{name:>22}  {value}\n")
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if told["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
