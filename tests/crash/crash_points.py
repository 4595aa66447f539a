"""`make soak NAME=crash-points`: the daemon dies at every point of the journey.

With `--every N` only at each N-th, with `--leg NAME` only at those of one leg (`hurt`: of those in
which others hurt the site; `far`: those in which database or devices are far), there from point
`--since N` on, where an earlier run was ended; `--storage`: the ways to blue and to red with shared
storage (a simulated VMS, then a simulated MGS; `--system`: one of them), `--within`: only while
that is read or changed, or in the rest of the handover; `--behind S`: a life
after a death is judged after so many virtual seconds, by what ports and storage showed at each
moment of it, instead of at the end of its leg; `--twice`: whoever takes over dies as well, at each
place that is not on the way without a death; `--awaits` lists the awaits of the path's modules that
this journey does not come to. The last line is JSON.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

from hurt_world import HurtWorld
from legs import FAR_LEGS, HURT_LEGS, JOURNEYS, NAMES
from lives import Run, explore, seconds
from points import OURS, Place
from storage_world import WORLDS

# legs of a journey behind its first one, which all have
GROUPS = {
    "hurt": tuple(leg.name for leg in HURT_LEGS[1:]),
    "far": tuple(leg.name for leg in FAR_LEGS[1:]),
}
PATH = (
    "control/node/reconciler.py",
    "control/node/performer.py",
    "control/node/observer.py",
    "control/node/scheduler.py",
    "control/repairs/repairs.py",
    "control/node/repair_workflow.py",
    "control/campaigns/campaigns.py",
    "control/watch/leaf_watch.py",
    "control/watch/recovery.py",
    "control/watch/isolation_violations.py",
    "execution/",
)
STORED = ("blue", "red")  # legs of a journey with storage


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--every", type=int, default=1)
    legs = (*NAMES, *GROUPS)
    options.add_argument("--leg", choices=legs, help="go to it without deaths, and no further")
    options.add_argument("--since", type=int, default=1, metavar="N", help="of each leg")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--twice", action="store_true", help="and once more behind each death")
    options.add_argument("--storage", action="store_true", help="tenants have shared storage")
    options.add_argument("--within", choices=("storage", "handover"), help="die only there")
    options.add_argument("--behind", type=float, metavar="S", help="judge so long after a death")
    options.add_argument("--system", choices=sorted(WORLDS), help="only with this storage")
    options.add_argument("--awaits", action="store_true")
    given = options.parse_args()
    began = time.monotonic()
    deaths, wanted = Counter[str](), set(_legs(given.leg))
    kinds: Sequence[type[HurtWorld]] = (HurtWorld,)
    if given.storage:
        given.leg = given.leg or STORED[-1]
        parts = [f", {given.within}"] if given.within else ["", ", storage", ", handover"]
        wanted = {leg + part for leg in STORED for part in parts}
        kinds = tuple(kind for name, kind in WORLDS.items() if given.system in (None, name))

    def chosen(leg: str, number: int) -> bool:
        if number % given.every or number < given.since or leg not in wanted:
            return False
        deaths[leg] += 1
        done = deaths.total()
        if done % 25 == 0:
            say(f"{leg}: point {number}, {done} deaths, {time.monotonic() - began:.0f} s")
        return True

    def tell(place: Place, verdict: str) -> None:
        if verdict:
            say(f"{' > '.join(place)}\n    {verdict.strip()}")

    run, twice, bad = Run(), list[Place](), 0
    for last, kind in product(_journeys(given.leg), kinds):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory)
            second = seconds(path, last) if given.twice else None
            one = explore(
                path, chosen, jobs=given.jobs, last=last, tell=tell, second=second,
                kind=kind, behind_s=given.behind)  # fmt: skip
            twice += second.places() if second is not None else []
        if one.wrong:
            say(f"the journey to the end of {last} without a death: {one.wrong}")
        run.add(one)
        bad += sum(map(bool, one.verdicts.values()))
        if not given.storage:
            wanted -= set(one.legs)  # the other journeys go their first leg without deaths
    commits = sum(place[-1].endswith("_commit") for place in run.points)
    say("; ".join(f"{leg}: {count} points" for leg, count in run.legs.items()))
    if given.twice:
        say(f"{len(twice)} more places that only a successor comes to, died at as well")
    waits, met = awaits(), reached([*run.points, *twice])
    say(
        f"{len(run.points)} points ({commits} at commits), {deaths.total()} deaths, "
        f"{bad} of them ended wrong; passed {sum(run.points.values())} times; "
        f"{len(waits & met)} of {len(waits)} awaits of the path's modules suspended on this journey"
    )
    if given.awaits:
        say("\n".join(sorted(f"not on it: {file}:{line}" for file, line in waits - met)))
    told = {"points": len(run.points), "deaths": deaths.total(), "wrong": bad}
    told |= {"second_deaths": len(twice), "journeys_wrong": run.wrong}
    say(json.dumps(told | {"points_of": dict(run.legs), "deaths_of": dict(deaths)}))
    return 1 if bad or run.wrong else 0


def _legs(given: str | None) -> Sequence[str]:
    """The legs that are died in."""
    return NAMES if given is None else GROUPS.get(given, (given,))


def _journeys(given: str | None) -> Sequence[str]:
    """The last leg of each journey that is made."""
    if given is None:
        return [legs[-1].name for legs in JOURNEYS]
    return GROUPS.get(given, (given,))[-1:]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def awaits() -> set[tuple[str, int]]:
    """Every await of the modules that carry an operation out, by file and first line."""
    return {(file, line) for file, line, _ in _spans()}


def reached(points: Iterable[Place]) -> set[tuple[str, int]]:
    """Those of them that some point waits in."""
    spans = list(_spans())
    lines = {tuple(line.rsplit(":", 1)) for place in points for line in place[2:] if ":" in line}
    met = {(file, int(line)) for file, line in lines}
    return {(f, first) for f, first, last in spans for file, at in met if f == file and
            first <= at <= last}  # fmt: skip


def _spans() -> Iterator[tuple[str, int, int]]:
    for file in sorted(Path(OURS).rglob("*.py")):
        name = str(file).removeprefix(OURS)
        if name.startswith(PATH):
            for found in ast.walk(ast.parse(file.read_text())):
                if isinstance(found, ast.Await):
                    yield name, found.lineno, found.end_lineno or found.lineno


if __name__ == "__main__":
    sys.exit(main())
