"""Many histories of two and three daemons on one database, each judged; `make soak NAME=history`.

    python tests/simulation/check_history.py [histories] [--jobs N] [--seed FIRST] [--only NUMBER]
    python tests/simulation/check_history.py [histories] --plant "no fence of epochs"

A trunk is one journey of a small site, driven by whole daemons under virtual time. Every minute or
so the process forks: the child goes on from there for a quarter of an hour in which daemons are
killed, stopped, cut off and failed over, and is judged. The trunk itself has a little trouble, goes
on to its rest, and is judged as a whole. `--seed S --only N` replays history N of trunk S.
`--plant` takes a protection away (`history_plants.py`) and ends with the first history that shows
it; 1 if none does. A trunk that such a history has branched from goes no further.

Prints each anomaly with its seed; the last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from history_check import check
from history_plants import PLANTS, shows
from history_trouble import Trouble
from history_world import SENT_WITHIN_S, ClusterWorld
from virtual_time import run

HISTORIES = 1000
FORK_S = (40.0, 100.0)  # between two forks of a trunk, in virtual seconds
BRANCH_S = 420.0  # what a branch lives: a release; most of a drain with its reboot
TRUNK_S = 12 * 3600.0  # in which a site with a little trouble comes to its rest
STRIKES = 10
SHOWN_MAX = 20


def report(world: ClusterWorld, seed: str, struck: Counter[str]) -> dict[str, Any]:
    """The judgement of one history, as plain data."""
    return {
        "seed": seed,
        "daemons": world.count,
        "writes": len(world.history.writes),
        "intents": len(world.history.intents),
        "drivers": len(world.history.taken),
        "entries": len(world.history.entered),
        "calls": len(world.history.calls),
        "lives": world.lives,
        "struck": dict(struck),
        "anomalies": check(world.history, SENT_WITHIN_S),
    }


async def branch(world: ClusterWorld, seed: str) -> dict[str, Any]:
    """One history from where its trunk stands."""
    world.rng.seed(seed)
    world.chance.seed(seed)
    world.wire.lost = world.chance.choice((0.0, 0.0, 0.02, 0.1))
    trouble = Trouble(world, f"{seed}/trouble", STRIKES, world.chance.choice((30.0, 90.0)))
    trouble.begin()
    await world.run(BRANCH_S)
    trouble.end()
    await world.end()
    return report(world, seed, trouble.struck)


async def trunk(
    seed: int, branches: int, only: int | None, file: Path, planted: str = ""
) -> dict[str, Any]:
    """One journey to its rest, with its branches, which leave their reports in `file`.

    It ends with the first branch that shows what was `planted`.
    """
    with tempfile.TemporaryDirectory() as folder:
        world = ClusterWorld(Path(folder), seed, members=2 + seed % 2, lost=0.0)
        await world.take_in()
        await world.start_members()
        trouble = Trouble(world, f"{seed}/trouble", 3 if seed % 3 else 0, 1500.0)
        trouble.begin()
        made, until = 0, world.clock.now() + TRUNK_S
        rests = False
        shown = False
        while (
            world.clock.now() < until and not rests and not shown and (only is None or made <= only)
        ):
            rests = await world.run(world.chance.uniform(*FORK_S))
            if made < branches and not rests:
                if only in (None, made):
                    await forked(world, f"{seed}/{made}", file)
                    shown = planted != "" and _shown(planted, file)
                made += 1
        trouble.end()
        await world.end()
        told = report(world, str(seed), trouble.struck)
        if rests and not told["entries"]:
            told["anomalies"].append("it came to its rest, and no port was heard to enter a VRF")
        if not rests and not shown and only is None:
            stood = [f"{n.id} {n.state}" for n in await world.store.nodes.list()]
            told["anomalies"].append(f"no rest within {TRUNK_S:.0f} s: {stood}")
        return told


async def forked(world: ClusterWorld, seed: str, file: Path) -> None:
    """Live a branch in a child, whose report is a line of `file`, and wait for its end."""
    loop = asyncio.get_running_loop()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222  (virtual time stands still)
        if status:
            _append(file, {"seed": seed, "anomalies": [f"the branch ended with {status}"]})
        return
    code = 1
    asyncio._set_running_loop(loop)  # it knows itself by the process's number
    try:
        _append(file, await branch(world, seed))
        code = 0
    except BaseException as error:
        _append(file, {"seed": seed, "anomalies": [f"the branch failed: {error!r}"]})
        code = 0
    finally:
        os._exit(code)


def _shown(planted: str, file: Path) -> bool:
    """Whether the newest branch shows the absence of a protection."""
    told = json.loads(file.read_text().splitlines()[-1])
    return any(shows(planted, a) for a in told["anomalies"])


def _append(file: Path, told: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps(told) + "\n")


def grow(given: tuple[int, int, int | None], planted: str = "") -> list[dict[str, Any]]:
    """One trunk with its branches; the reports of all."""
    seed, branches, only = given
    if planted:
        PLANTS[planted][0](setattr)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "branches"
        file.touch()
        try:
            last = run(trunk(seed, branches, only, file, planted))
        except Exception as error:
            last = {"seed": str(seed), "anomalies": [f"the trunk failed: {error!r}"]}
        return [*map(json.loads, file.read_text().splitlines()), last]


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def summary(reports: list[dict[str, Any]], took_s: float) -> dict[str, Any]:
    """All histories in one record."""
    struck: Counter[str] = Counter()
    for told in reports:
        struck.update(told.get("struck", {}))
    bad = [t for t in reports if t["anomalies"]]
    names = ("writes", "intents", "drivers", "entries", "calls", "lives")
    return {
        "histories": len(reports),
        **{name: sum(t.get(name, 0) for t in reports) for name in names},
        "blows": dict(sorted(struck.items())),
        "anomalies": sum(len(t["anomalies"]) for t in bad),
        "bad_seeds": [t["seed"] for t in bad][:SHOWN_MAX],
        "seconds": round(took_s),
    }


def search(planted: str, histories: int, seed: int, jobs: int) -> int:
    """Tell in how many histories the absence of a protection shows; 0 if it does."""
    began, lived, found = time.monotonic(), 0, list[dict[str, Any]]()
    # a process for each trunk: what was taken away is taken away once
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        trunks = [(seed + n, 11, None) for n in range(histories // 12 + 1)]
        for told in pool.imap(partial(grow, planted=planted), trunks):
            for number, one in enumerate(told, lived + 1):
                if any(shows(planted, a) for a in one["anomalies"]):
                    found.append({"history": number, "seed": one["seed"]})
            lived += len(told)
            say(f"{lived} histories, {len(found)} show it")
            if found or lived >= histories:
                break
    first = found[0] if found and found[0]["history"] <= histories else {"history": 0, "seed": ""}
    took_s = round(time.monotonic() - began)
    counts = {"lived": lived, "show": len(found), "seconds": took_s}
    say(
        json.dumps({"planted": planted, "first": first["history"], "seed": first["seed"], **counts})
    )
    return 0 if first["history"] else 1


def main() -> int:
    """0: as many histories as were asked for, and no anomaly in any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("histories", nargs="?", type=int, default=HISTORIES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one branch of the trunk --seed, again")
    parser.add_argument("--plant", choices=PLANTS, help="take this protection away")
    given = parser.parse_args()
    if given.plant:
        return search(given.plant, given.histories, given.seed, given.jobs)
    began, reports, seed = time.monotonic(), list[dict[str, Any]](), given.seed
    if given.only is not None:
        reports = grow((seed, given.only + 1, given.only))[:-1]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        while given.only is None and len(reports) < given.histories:
            missing = given.histories - len(reports)
            trunks = [(seed + n, min(missing, 60), None) for n in range(given.jobs)]
            seed += given.jobs
            for told in pool.imap_unordered(grow, trunks):
                reports += told
                bad = [f"  {t['seed']}: {a}" for t in told for a in t["anomalies"]]
                say(f"{len(reports)} histories" + "".join("\n" + b for b in bad[:SHOWN_MAX]))
    for told in reports if given.only is not None else ():
        say("\n".join(told["anomalies"]))
    found = summary(reports, time.monotonic() - began)
    say(json.dumps(found))
    return 1 if found["anomalies"] or not reports else 0


if __name__ == "__main__":
    sys.exit(main())
