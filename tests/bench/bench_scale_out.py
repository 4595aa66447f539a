"""One, two and three daemons watch one fleet on one PostgreSQL: what the watch costs each of them.

    make bench NAME=scale-out                  (ARGS="--nodes 4096 --minutes 1" for a quick one)

A daemon is a process with its seat, its shards, the whole watch and nothing else: `Cluster` and
`Shards` as in production, `Watcher.run` over the shards that it holds. The rows of the fleet are in
a real PostgreSQL server; its BMCs are answered for by another process over HTTPS, each at an
address of its own, all in a network namespace without a way out. Each look is made once in half an
hour, most BMCs tell by themselves and are asked once a day (`--polled`: each at every look).
`--look` shortens both, so that a smaller fleet asks for as many looks a second as a large one.

Measured in each run, after all shards have their owners: CPU seconds of each daemon, all threads;
rows that the server wrote; and looks. `share_of_3` is the CPU of the busiest of three daemons
as a part of that of the one alone, for as many looks. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "real" / "postgres"))

import this_machine  # noqa: E402
import watched_fleet  # noqa: E402
from bench_watch import LOOK_S, rounded  # noqa: E402
from bench_watch_whole import DAY_S, Ours, alone, say  # noqa: E402
from bench_watch_whole import settings as watch_settings  # noqa: E402
from postgres_server import PASSWORD, Server  # noqa: E402
from watched_fleet import LISTENER, Fleet, Kind  # noqa: E402

from provisioner.control.watch.shards import Shards  # noqa: E402
from provisioner.control.watch.watcher import WatchParts  # noqa: E402
from provisioner.daemon.cluster import clock_of, open_cluster  # noqa: E402
from provisioner.daemon.data import open_data  # noqa: E402
from provisioner.planning.watch.membership import WorksBy  # noqa: E402
from provisioner.runtime.event_loop import new_event_loop  # noqa: E402
from provisioner.runtime.wall_clock import WallClock  # noqa: E402

MUST = 0.40
LEASE_S = 120.0  # all processes share a few cores here, and none is to lose its seat
WRITTEN = (
    "SELECT tup_inserted + tup_updated + tup_deleted, xact_commit FROM pg_stat_database "
    "WHERE datname = current_database()"
)


# one daemon, in a process of its own


async def daemon(asked: argparse.Namespace) -> None:
    """Take a seat and a part of the shards; at each line heard, say what was spent and done."""
    folder = Path(asked.folder)
    told_s = 0.0 if asked.polled else DAY_S * asked.look / LOOK_S
    times = {"watch_node_s": asked.look, "watch_told_s": told_s, "watch_silent_s": DAY_S}
    chosen = watch_settings(sweeps=False).model_copy(update={**times, "lease_s": LEASE_S})
    clock = clock_of(asked.database, WallClock())
    served: Any = SimpleNamespace(bmcs=json.loads((folder.parent / "bmcs.json").read_text()))
    async with (
        open_data(folder, time.time(), asked.database) as opened,
        open_cluster(asked.database, chosen, clock, WorksBy(), data=folder) as shared,
    ):
        assert shared is not None
        data: Any = SimpleNamespace(
            store=opened.store, vault=opened.vault, master=opened.master, clock=clock
        )
        shards = Shards(data.store, clock, shared[0])
        book = data.store.alerts
        parts = WatchParts(
            book, lambda: os.urandom(24).hex(), listener=f"{LISTENER}/v1/redfish/events"
        )
        ours = Ours(data, parts, asked, folder, shards, chosen)
        kinds = await ours.kinds(served)
        holding = asyncio.create_task(shards.run(), name="shards")
        await answer(f"seated {shared[0].number}")
        await heard()
        await ours.after_a_day(kinds)
        for turns in ours.watcher._turns.values():
            turns.asked = dict.fromkeys(turns.asked, clock.now())
        running = asyncio.create_task(ours.watcher.run(), name="watch")
        await answer(f"{len(ours.watcher._nodes)}")
        while await heard():
            began, cpu = clock.now(), time.process_time()
            await heard()
            looked = sum(at >= began for at in ours.watcher.looked.values())
            spent = time.process_time() - cpu
            await answer(json.dumps({"cpu_s": spent, "looks": looked}))
        for task in (running, holding):
            task.cancel()
        await asyncio.gather(running, holding, return_exceptions=True)
        ours.transport._lines.clear()
        await ours.transport.close()


async def answer(text: str) -> None:
    await asyncio.to_thread(say, text)


async def heard() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


class Member:
    """A daemon's process, as this one sees it."""

    def __init__(self, url: str, folder: Path, asked: argparse.Namespace) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "master.key").write_bytes((folder.parent / "d0" / "master.key").read_bytes())
        (folder / "master.key").chmod(0o600)
        command = [sys.executable, __file__, "--daemon", "--database", url, "--folder", str(folder)]
        command += ["--look", str(asked.look), *(["--polled"] if asked.polled else [])]
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("on\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"a daemon ended: {self.log.read_text()[-2000:]}"
        return line

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


# the runs


def read_written(server: Server, database: str) -> tuple[int, int]:
    """Rows written and transactions committed so far; the server tells with a second's delay."""
    time.sleep(2.0)
    [line] = server.sql(database, WRITTEN)
    rows, commits = line.split("|")
    return int(rows), int(commits)


def run_daemons(
    count: int, server: Server, database: str, folder: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """So many daemons for some minutes."""
    with ExitStack() as ends:
        members = []
        for number in range(count):
            members.append(Member(server.url(database), folder / f"d{number + 1}", asked))
            ends.callback(members[-1].end)
        for member in members:
            member.hear()
        time.sleep(asked.settle)  # all are seated: the shards find their owners
        for member in members:
            member.tell()
        nodes = [int(member.hear()) for member in members]
        assert sum(nodes) == asked.nodes, f"not every node has one owner: {nodes}"
        time.sleep(asked.warm)
        before = read_written(server, database)
        began = time.perf_counter()
        for member in members:
            member.tell()
        time.sleep(60.0 * asked.minutes)
        for member in members:
            member.tell()
        told = [json.loads(member.hear()) for member in members]
        wall = time.perf_counter() - began
        after = read_written(server, database)
    looks = sum(one["looks"] for one in told)
    return {
        "daemons": count,
        "nodes": nodes,
        "wall_s": wall,
        "cpu_s": [one["cpu_s"] for one in told],
        "looks": looks,
        "rows_written_per_look": (after[0] - before[0]) / max(looks, 1),
        "load": this_machine.told()["load"],
    }


async def fill(url: str, folder: Path, served: Fleet, count: int) -> None:
    """Write the rows of the fleet, and what daemons need of the simulated BMCs."""
    async with open_data(folder / "d0", time.time(), url) as data:
        asked: Any = SimpleNamespace(sweeps=False, events=24.0)
        parts = WatchParts(data.store.alerts, lambda: "")
        ours = Ours(data, parts, asked, folder / "d0")
        kinds: list[list[Kind]] = await ours.kinds(served)
        await watched_fleet.fill(data, count, kinds, data.clock.now())
        await ours.transport.close()
    (folder / "bmcs.json").write_text(json.dumps(served.bmcs))


def bench(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All runs on one database."""
    server, served = Server(), Fleet(asked.served)
    try:
        server.start("-c", "max_connections=100")
        os.environ["PGPASSWORD"] = PASSWORD
        database = server.make()
        asyncio.run(fill(server.url(database), folder, served, asked.nodes))
        server.sql(database, "ANALYZE")
        say(f"made {asked.nodes} nodes")
        runs = []
        for count in asked.daemons:
            runs.append(run_daemons(count, server, database, folder, asked))
            say(json.dumps(rounded(runs[-1])))
    finally:
        served.close()
        server.remove()
    alone_run = next(run for run in runs if run["daemons"] == 1)
    per_look = {r["daemons"]: max(r["cpu_s"]) / max(r["looks"], 1) for r in runs}
    shares = {f"share_of_{n}": cost / per_look[1] for n, cost in per_look.items()}
    written = {f"rows_per_look_{r['daemons']}": r["rows_written_per_look"] for r in runs}
    return {
        "nodes": asked.nodes,
        "polled": asked.polled,
        "look_s": asked.look,
        "minutes": asked.minutes,
        "cpu_s_alone": alone_run["cpu_s"][0],
        "cpu_s": {str(r["daemons"]): r["cpu_s"] for r in runs},
        "looks": {str(r["daemons"]): r["looks"] for r in runs},
        **shares,
        **written,
        "reached": shares.get("share_of_3", 1.0) <= MUST,
    }


def plot(found: dict[str, Any]) -> dict[str, Any]:
    """The line of docs/figures.jsonl, which the page of plots is drawn from."""
    counts = [int(count) for count in found["looks"]]
    return {
        "plot": f"Several daemons: the watch of {found['nodes']:,} nodes",
        "command": f"make bench NAME=scale-out, load {found['load']}",
        "taken": time.strftime("%Y-%m-%d"),
        "x": "daemons",
        "at": [str(count) for count in counts],
        "y": "CPU for a look, of one alone",
        "lines": {
            "the busiest daemon": [found[f"share_of_{count}"] for count in counts],
            "an equal part": [round(1 / count, 3) for count in counts],
        },
    }


def main() -> int:
    """Print the figures and the JSON; exit code 1 if three daemons do not share enough."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--nodes", type=int, default=16_384)
    ask.add_argument("--minutes", type=float, default=3.0)
    ask.add_argument("--settle", type=float, default=60.0, help="seconds until shards have owners")
    ask.add_argument("--warm", type=float, default=30.0, help="seconds before each measurement")
    ask.add_argument("--served", type=int, default=3, help="simulated nodes behind all addresses")
    ask.add_argument("--look", type=float, default=LOOK_S, help="seconds between two of a node")
    ask.add_argument("--polled", action="store_true", help="no BMC tells anything by itself")
    ask.add_argument("--daemons", type=int, nargs="+", default=[1, 2, 3])
    ask.add_argument("--daemon", action="store_true", help=argparse.SUPPRESS)
    ask.add_argument("--database", default="", help=argparse.SUPPRESS)
    ask.add_argument("--folder", default="", help=argparse.SUPPRESS)
    ask.set_defaults(sweeps=False, events=24.0)
    asked = ask.parse_args()
    if asked.daemon:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(daemon(asked))
        return 0
    alone(sys.argv[1:], __file__)
    with tempfile.TemporaryDirectory() as folder:
        found = {**this_machine.told(), **rounded(bench(asked, Path(folder)))}
    for name, value in found.items():
        say(f"{name:>22}  {value}")
    say(json.dumps(plot(found)))
    say(json.dumps(found))
    return 0 if found["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
