"""The time after a start until every BMC of a fleet was read once, by the defaults of the settings.

    make bench NAME=first-round                (ARGS="--nodes 256" for a quick one)

Computed for 65,536 nodes with eleven BMCs each by the code that paces a first round; a first look's
requests are counted at a few nodes. Shown at the pace of the whole fleet in virtual time with fewer
nodes, in their share of `watch_first_s` and of half an hour between two looks: watch, lanes, budget
and client are the daemon's. Every BMC answers after 50 ms as the simulated host's BMC does.

The last line is JSON; exit code 1 if one of the two takes longer than its time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))
sys.path.insert(0, str(Path(__file__).parents[1] / "watch"))

import this_machine
from budgeted_fleet import watch_fleet
from virtual_time import run

from provisioner.planning.watch.watch_rules import FIRST_REQUESTS, compute_extra_rate
from provisioner.settings import Settings

NODES, LOOK_S, MUST_S = 65_536, 1800.0, 7200.0
NAMES = ("host", *(f"card{number}" for number in range(10)))
COUNTED, ONCE_S = 8, 300.0  # nodes whose first looks alone are counted
NO_SWEEPS_S = 1e6


def count_requests(folder: Path) -> float:
    """Return the requests of a BMC's first look."""
    watch = partial(watch_fleet, folder, COUNTED, ONCE_S - 1.0, NAMES)
    fleet, _, _, glances = run(
        watch(watch_requests_per_s=1000.0, watch_node_s=ONCE_S, watch_s=NO_SWEEPS_S)
    )
    assert sum(map(len, glances.values())) == COUNTED, "a node was looked at twice, or never"
    return len(fleet.asked) / (COUNTED * len(NAMES))


def compute_round(nodes: int, each: float, settings: Settings) -> dict[str, float]:
    """Return the pace of a first round over a fleet, and its seconds."""
    bmcs = nodes * len(NAMES)
    per_s = settings.watch_requests_per_s
    pace = per_s + compute_extra_rate(bmcs, settings.watch_first_s, per_s)
    return {
        "requests_s": pace,
        "first_round_s": max(bmcs * each / pace, settings.watch_node_s),
        "first_round_most_s": bmcs * FIRST_REQUESTS / pace,
        "by_the_budget_alone_s": bmcs * each / per_s,
    }


def play_round(folder: Path, nodes: int, settings: Settings) -> dict[str, float]:
    """Run the watch at the pace of the whole fleet; return what its first round took."""
    share = nodes / NODES
    within_s = settings.watch_first_s * share
    watch = partial(watch_fleet, folder, nodes, 1.1 * within_s + 15.0, NAMES)
    fleet, watcher, _, glances = run(
        watch(
            watch_requests_per_s=settings.watch_requests_per_s,
            watch_node_s=settings.watch_node_s * share,
            watch_first_s=within_s,
            watch_s=NO_SWEEPS_S,
        )
    )
    began = min(fleet.asked)
    ended = max((times[0] for times in glances.values()), default=began)
    return {
        "nodes": nodes,
        "bmcs": nodes * len(NAMES),
        "within_s": within_s,
        "first_round_s": ended - began,
        "requests_s": sum(at <= ended for at in fleet.asked) / max(ended - began, 1e-9),
        "not_read": nodes - len(glances) + (watcher.eyes.budget.extra_per_s > 0.0),
    }


def bench(nodes: int) -> dict[str, Any]:
    """Return the figures of the whole fleet, and those of the played one."""
    settings = Settings(watch_node_s=LOOK_S)
    with tempfile.TemporaryDirectory() as folder:
        each = count_requests(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        played = play_round(Path(folder), nodes, settings)
    whole = compute_round(NODES, each, settings)
    in_time = played["first_round_s"] <= played["within_s"] and not played["not_read"]
    return {
        "nodes": NODES,
        "bmcs": NODES * len(NAMES),
        **{name: round(value, 1) for name, value in whole.items()},
        "requests_of_a_bmc": round(each, 2),
        "virtual": {name: round(value, 1) for name, value in played.items()},
        "reached": in_time and round(whole["first_round_most_s"]) <= MUST_S,
    }


def main() -> int:
    """Print the JSON; 0: two hours are enough, computed and played."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024, help="of the fleet in virtual time")
    figures = {**this_machine.told(), **bench(parser.parse_args().nodes)}
    for name, value in figures.items():
        sys.stdout.write(f"{name:>22}  {value}\n")
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0 if figures["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
