"""Watching 65,536 nodes, measured as a whole: all loops, on the clock of the wall, over M minutes.

    make bench NAME=watch-whole                (ARGS="--nodes 4096 --minutes 1" for a quick one)

This process is the daemon's watch and nothing else: a SQLite file of so many released nodes with 11
BMCs each, `Watcher.run`, `Scheduler.run`, the HTTPS listener for events, the file of `watch
status`, settings as docs/scale.md has them for that size. Two others are the world: one answers for
all BMCs, each at an address of its own; one posts 24 events a day of each BMC, each over a new
connection with a whole TLS handshake: hardly a connection is kept open for an hour. The three are
in a network namespace of their own, without a way out.

What a daemon has after its first day is there at the start: ways, sessions that have expired,
subscriptions, and when each BMC was asked, so that 8 BMCs a second are asked for the first time of
their day. CPU time of this process counts, all threads. Without `--sweeps` no versions are read:
sweeps take what `watch_requests_per_s` leaves them. The last line is JSON. With few nodes and many
events (`--nodes 256 --events 100000`) `event_in_handshakes` is what an event costs, as a multiple
of our part of its connection's handshake, which is measured in memory each second of the same time,
and `bare_event_in_handshakes` is the same of a server that does nothing but answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import this_machine
import watched_fleet
from bare_server import bare_event_in_handshakes
from bench_watch import EVENTS_A_DAY, LOOK_S, MUST, NODES, handshakes, nobody, rounded
from processes import family, used
from watched_fleet import LISTENER, Fleet, Kind, posting, told

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing.subscriptions import Offer, read_offer
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.session import SESSIONS, Login
from provisioner.adapters.redfish.transport import Line, RedfishTransport
from provisioner.control.context import Context
from provisioner.control.node.scheduler import Scheduler
from provisioner.control.watch.shards import Shards
from provisioner.control.watch.watcher import Watcher
from provisioner.daemon.data import Data, open_data
from provisioner.daemon.event_supervisor import MODULE
from provisioner.daemon.events import open_watch
from provisioner.execution.actions.reach import Reach
from provisioner.model.node import BmcRef, Node
from provisioner.planning.watch import watch_rules
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.event_loop import new_event_loop
from provisioner.settings import Settings

DAY_S = 86400.0
NEVER_S = 1e9
INSIDE = "BENCH_WATCH_INSIDE"


def settings(*, sweeps: bool) -> Settings:
    """As docs/scale.md has them for 65,536 nodes."""
    return Settings(
        watch_node_s=LOOK_S,
        watch_told_s=DAY_S,
        watch_silent_s=3 * LOOK_S,
        watch_s=DAY_S if sweeps else NEVER_S,
        watch_parts_s=7 * DAY_S if sweeps else NEVER_S,
        watch_requests_per_s=100.0,
        watch_first_s=0.0,  # as after its first day
        operations_max=4096,
    )


class Ours:
    """Our side: everything that a daemon has of the watch."""

    def __init__(
        self,
        data: Data,
        parts: Any,
        asked: argparse.Namespace,
        folder: Path,
        shards: Shards | None = None,
        chosen: Settings | None = None,
    ) -> None:
        """`shards`: whose nodes are watched; None: all."""
        self.data, self.asked = data, asked
        self.settings = chosen or settings(sweeps=asked.sweeps)
        logins = LoginGovernor(memory=folder / "failed-logins")
        self.transport = RedfishTransport(self.settings.requests_max, governor=logins)
        reach = Reach(self.transport, None, data.vault)  # type: ignore[arg-type]  # hosts only
        context = Context(data.store, data.clock, self.settings)
        self.watcher = Watcher(context, parts, reach, nobody, shards=shards)
        held = self.watcher.keeper.list_held_nodes
        self.scheduler = Scheduler(context, nobody, held)
        self.ways: dict[str, tuple[Redfish, Offer]] = {}

    async def kinds(self, served: Fleet) -> list[list[Kind]]:
        """The served BMCs by node; each is asked once for its way, as a daemon does."""
        found: dict[str, list[Kind]] = {}
        for name, (url, username, password) in served.bmcs.items():
            port = int(url.rpartition(":")[2])
            url = f"https://127.0.0.1:{port}"
            pin = await self.transport.fingerprint(BmcAddress(url))
            kind = Kind(name, port, username, password, pin)
            found.setdefault(name.partition("/")[0], []).append(kind)
            address = BmcAddress(url, username, Secret(password), pin)
            quirk = await self.watcher.eyes.reach.quirk(address)
            client = Redfish(self.transport, address, quirk)
            assert await client.service.read_system() is not None
            self.ways[name] = client, await read_offer(client.service)
            await self.transport.forget(address)
        return list(found.values())

    async def after_a_day(self, kinds: list[list[Kind]]) -> None:
        """What a daemon knows that has asked every BMC once, and was told by it since."""
        self.watcher.may_watch = lambda: False
        await self.watcher.run_round()
        self.watcher.may_watch = lambda: True
        dice, now = random.Random(3), self.data.clock.now()
        for number, node in enumerate(tuple(self.watcher._nodes.values())):
            if number % 256 == 0:
                await asyncio.sleep(0.0)  # whoever holds a seat renews it meanwhile
            turns = self.watcher._turns[node.id]
            last = self.watcher.looked[node.id] = turns.glance_at - LOOK_S
            turns.began_at = now - DAY_S
            for bmc, kind in zip(node.bmcs, kinds[number % len(kinds)], strict=True):
                came = watch_rules.turn_came(f"{node.id}/{bmc.name}", DAY_S, last)
                turns.asked[bmc.name] = last - (last - came) // LOOK_S * LOOK_S
                turns.heard[bmc.name] = now - dice.uniform(0.0, DAY_S / self.asked.events)
                self._known(node, bmc, kind)

    def _known(self, node: Node, bmc: BmcRef, kind: Kind) -> None:
        """A BMC's way, and the session of yesterday."""
        client, offered = self.ways[kind.name]
        eyes, secret = self.watcher.eyes, Secret(kind.password)
        address = BmcAddress(bmc.url, kind.username, secret, bmc.pin)
        eyes._offers.setdefault(node.id, {})[bmc.url] = offered
        for reach in (eyes._urgent, eyes._patient) if self.asked.sweeps else (eyes._urgent,):
            mine = Redfish(reach.transport, address, client.quirk)
            mine.service._found.system = client.service._found.system
            reach._quirks[bmc.url] = client.quirk
            reach._clients[node.id, bmc.name] = mine
        over = Login(kind.username, secret, Secret("0" * 40), f"{SESSIONS}/{kind.port}")
        self.transport._lines[bmc.url] = Line(login=over, login_address=address)

    def since(self, began: float) -> dict[str, float]:
        """What was done since then, and how fresh everything is."""
        now, watcher = self.data.clock.now(), self.watcher
        turns = watcher._turns.values()
        return {
            "looks": sum(at >= began for at in watcher.looked.values()),
            "bmcs_asked": sum(at >= began for t in turns for at in t.asked.values()),
            "sweeps_begun": sum(t.sweep_at - self.settings.watch_s >= began for t in turns),
            "oldest_look_s": now - min(watcher.looked.values()),
            "oldest_answer_s": now - min(at for t in turns for at in t.asked.values()),
            "oldest_word_s": now - min(at for t in turns for at in t.heard.values()),
            "looks_under_way": len(watcher._looking.running),
        }


def memory_mb() -> float:
    """Resident, of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def events_process_cpu_s() -> float:
    """CPU seconds of the process that takes events; 0: there is none."""
    pids = family(os.getpid())
    names = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids}
    return sum(used(pid)[0] for pid, name in names.items() if MODULE in name)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def bench(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Make the fleet, warm up, measure."""
    served = Fleet(asked.served)
    try:
        async with open_data(folder, time.time()) as data:
            settings = Settings(events_process=asked.process)
            site: Any = SimpleNamespace(plan=None, settings=settings)
            watch = open_watch(
                LISTENER, (), folder, data.store, data.clock, None, data.master, site
            )
            async with watch as parts:
                ours = Ours(data, parts, asked, folder)
                kinds = await ours.kinds(served)
                await watched_fleet.fill(data, asked.nodes, kinds, data.clock.now())
                say(f"made {asked.nodes} nodes, {memory_mb():.0f} MB, process {os.getpid()}")
                await ours.after_a_day(kinds)
                assert parts.attach is not None
                parts.attach(ours.watcher)
                try:
                    return await measured(ours, served, asked)
                finally:
                    ours.transport._lines.clear()  # else yesterday's sessions are logged out of
                    await ours.transport.close()
    finally:
        served.close()


async def measured(ours: Ours, served: Fleet, asked: argparse.Namespace) -> dict[str, Any]:
    """The loops on the clock of the wall; CPU of this process over the minutes."""
    bmcs = sum(len(n.bmcs) for n in ours.watcher._nodes.values())
    per_s = bmcs * asked.events / DAY_S
    loops = [asyncio.create_task(one.run()) for one in (ours.watcher, ours.scheduler)]
    try:
        while not ours.watcher.feeds.subscribed:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(1.0)
        with posting(bmcs, per_s, kept=ours.asked.kept) as poster:
            await asyncio.sleep(asked.warm)
            requests, served_cpu = await asyncio.to_thread(served.asked)
            before = await asyncio.to_thread(told, poster)
            memory, began = memory_mb(), ours.data.clock.now()
            apart = events_process_cpu_s()
            wall, cpu = time.perf_counter(), time.process_time()
            ours_ms, beside_s = await handshakes_beside(60.0 * asked.minutes)
            cpu, wall = time.process_time() - cpu - beside_s, time.perf_counter() - wall
            apart = events_process_cpu_s() - apart
            found = ours.since(began)
            events = await asyncio.to_thread(told, poster)
            now_requests, now_served_cpu = await asyncio.to_thread(served.asked)
            grown = memory_mb() - memory
    finally:
        ended = await _ended(loops)
    return {
        "wall_s": wall,
        "cpu_s": cpu + apart,
        "events_process_cpu_s": apart,
        "all_that_was_due": found["looks"] / wall >= 0.95 * asked.nodes / LOOK_S
        and events.get("200", 0) / wall >= 0.95 * per_s,
        "share_of_a_core": (cpu + apart) / wall,
        **per_event(cpu + apart, events.get("200", 0), ours_ms),
        "bare_event_in_handshakes": await bare_event_in_handshakes(),
        **found,
        "looks_per_s": found["looks"] / wall,
        "requests_per_s": (now_requests - requests) / wall,
        "events_per_s": events.get("200", 0) / wall,
        "events": {k: v for k, v in events.items() if k != "cpu"},
        "alerts_raised": len(await ours.data.store.read(_alerts)),
        "memory_mb": memory_mb(),
        "memory_grown_mb": grown,
        "others_share_of_a_core": {
            "bmcs": (now_served_cpu - served_cpu) / wall,
            "poster": (events["cpu"] - before["cpu"]) / wall,
        },
        "loops_that_failed": ended,
    }


async def handshakes_beside(wall_s: float) -> tuple[float, float]:
    """Our part of a TLS handshake in ms, measured each second while the loops run; CPU seconds."""
    end, spent, found = time.perf_counter() + wall_s, 0.0, []
    while time.perf_counter() < end:
        began = time.thread_time()
        found.append(handshakes(5, served=True))
        spent += time.thread_time() - began
        await asyncio.sleep(1.0)
    return statistics.median(found), spent


def per_event(cpu_s: float, events: float, ours_ms: float) -> dict[str, float]:
    """What an event cost with all else in it, over our part of a TLS handshake."""
    event_ms = 1000 * cpu_s / max(1.0, events)
    return {
        "event_cpu_ms": event_ms,
        "handshake_cpu_ms": ours_ms,
        "event_in_handshakes": event_ms / ours_ms,
    }


def _alerts(connection: Any) -> Any:
    from provisioner.store.repositories.alerts import read_alerts

    return read_alerts(connection, "")


async def _ended(loops: list[asyncio.Task[None]]) -> list[str]:
    """Stop the loops; what they died of, if they did."""
    died = [repr(task.exception()) for task in loops if task.done()]
    for task in loops:
        task.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    return died


def alone(arguments: list[str], script: str = __file__) -> None:
    """Go on in a network namespace of one's own: its loopback is all there is."""
    if not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        command = ["unshare", "--net", *root, sys.executable, script, *arguments]
        os.execvp(command[0], command)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def main() -> int:
    """Print the figures and the JSON; exit code 1 if half a core is passed."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--nodes", type=int, default=NODES)
    ask.add_argument("--minutes", type=float, default=5.0)
    ask.add_argument("--warm", type=float, default=60.0, help="seconds before")
    ask.add_argument("--events", type=float, default=EVENTS_A_DAY, help="a day of each BMC")
    ask.add_argument("--served", type=int, default=3, help="simulated nodes behind all addresses")
    ask.add_argument("--sweeps", action="store_true", help="versions of each node daily, too")
    ask.add_argument("--process", action="store_true", help="events in a process of their own")
    ask.add_argument("--kept", action="store_true", help="senders keep their connections")
    asked = ask.parse_args()
    if asked.events <= 0:
        ask.error(
            "--events is above 0; a watch without events is measured by `make bench NAME=watch`"
        )
    alone(sys.argv[1:])
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        found = rounded(runner.run(bench(asked, Path(folder))))
    whole = {
        **this_machine.told(),
        "nodes": asked.nodes,
        "sweeps": asked.sweeps,
        "connections_kept": asked.kept,
        "events_process": asked.process,
        **found,
        "reached": found["share_of_a_core"] < MUST
        and found["all_that_was_due"]
        and not found["loops_that_failed"],
    }
    for name, value in whole.items():
        say(f"{name:>22}  {value}")
    say(json.dumps(whole))
    return 0 if whole["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
