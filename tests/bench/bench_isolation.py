"""How well and how cheaply culprits are found: `make bench NAME=isolation`; argument: SCALE (1.0)
or one case of parts that fail a share of their tests, such as `leaves+card:0.6:0`, or `rates` for
all of these, `pods` for parts above the leaves, or `planted`: only the culprits that work shows
(`planted_culprits.py`). Every whole run measures all of them.

Synthetic rail-optimised fabrics (units of 32 nodes, 8 rails) with planted faults and 3 % of wrong
results, against testing all pairs once, which would find less: it hears every pair a single time.
The last line is JSON: found_fraction and innocent_condemned over all campaigns,
cost_over_all_pairs of the worst campaign of all.

Then parts that fail only a share of their tests (1, 0.6, 0.3, 0.2), of every kind and in pairs of
kinds, on 96 nodes with `rate_min` 0.3, and of a pod's spines, their uplinks and the superspines,
alone and beside other parts, on 128 nodes in four pods: found_at_60 and found_at_30 are the shares
that were found at these rates, found_at_20 that below the rate that is looked for,
innocents_per_10k the innocent parts condemned per 10,000 nodes tested at any of these rates.

Lower bounds on the node-minutes of anybody who meets the same promise:
* coverage: 99 % found. One pass lets `noise` of the culprits through, two let noise² through; so
  a node must on average be in c tests, noise (2 - c) + noise² (c - 1) <= 1 %: 1.69 at 3 %.
* information: log2 of the number of ways to plant these faults, over what the results of one pair
  test can tell (8 rails, each a binary symmetric channel of capacity 1 - H(noise)).
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb, log2
from pathlib import Path

import this_machine

sys.path.insert(0, str(Path(__file__).parents[1] / "planning"))

from isolation_cases import RATES, Case, Row, find_case, list_cases, run_cases
from planted import World, fabric_of, isolate, name_of, plant, tier_parts
from planted_culprits import FOUND_MIN, plant_all, sum_up

from provisioner.planning.fault_location.isolation_words import Culprit, Fabric, IsolationPolicy

NOISE = 0.03
SEEDS = {64: 16, 128: 8, 256: 4, 512: 2, 1024: 1, 2048: 1}
FAULTS: dict[str, dict[str, int]] = {
    "nothing": {},
    "bad node": {"nodes": 1},
    "bad link": {"links": 1},
    "bad leaf": {"leaves": 1},
    "several": {"nodes": 3, "links": 5, "leaves": 1},
    "slow node and link": {"nodes": 1, "links": 1},
}
SLOW = 0.85  # of the cohort's bandwidth
POD = 64  # nodes of a pod, where there are several
ABOVE = {
    "bad spines of a pod": Culprit.POD_SPINE,
    "bad uplinks of a pod": Culprit.POD_UPLINK,
    "bad superspines": Culprit.SUPERSPINE,
}


@dataclass
class Sum:
    """Over the campaigns of one row."""

    planted: int = 0
    found: int = 0
    innocent: int = 0
    undecided: int = 0
    rounds: int = 0
    costs: list[float] = field(default_factory=list)  # over all pairs
    over_bound: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


def all_pairs_minutes(fabric: Fabric, policy: IsolationPolicy) -> float:
    """Node-minutes of testing every pair once, all rails at once."""
    count = len(fabric.nodes)
    return count * (count - 1) * policy.pair_minutes


def lower_bound_minutes(fabric: Fabric, faults: dict[str, int], policy: IsolationPolicy) -> float:
    """Node-minutes that nobody can stay below (see the module's words)."""
    count, cells = len(fabric.nodes), len(fabric.leaf_of)
    tests_each = (2 * NOISE - NOISE**2 - 0.01) / (NOISE - NOISE**2)
    bits = (
        log2(comb(count, faults.get("nodes", 0)))
        + log2(comb(cells, faults.get("links", 0)))
        + log2(comb(len(fabric.cells_of_leaf), faults.get("leaves", 0)))
    )
    capacity = 1 + NOISE * log2(NOISE) + (1 - NOISE) * log2(1 - NOISE)
    rails = cells / count
    return policy.pair_minutes * max(tests_each * count, 2 * bits / (rails * capacity))


def campaign(fabric: Fabric, name: str, seed: int, policy: IsolationPolicy, into: Sum) -> None:
    """One campaign, added to its row."""
    faults = FAULTS.get(name, {})
    world = plant(World(fabric, random.Random(f"{name} {seed}"), NOISE), **faults)
    if name in ABOVE:
        world.shared = {world.rng.choice(tier_parts(fabric, ABOVE[name]))}
    if name.startswith("slow"):
        world.slow = dict.fromkeys([*world.nodes, *world.links], SLOW)
    began = time.process_time()
    verdicts = isolate(world, policy)
    into.cpu_s += time.process_time() - began
    blamed = {name_of(b) for b in verdicts.condemned}
    into.planted += len(world.planted())
    into.found += len(blamed & world.planted())
    into.innocent += len(blamed - world.planted())
    into.undecided += len(verdicts.undecided)
    into.rounds = max(into.rounds, verdicts.rounds)
    into.costs.append(verdicts.node_minutes / all_pairs_minutes(fabric, policy))
    into.over_bound.append(verdicts.node_minutes / lower_bound_minutes(fabric, faults, policy))


def measure_rates(cases: Sequence[Case]) -> dict[str, float]:
    """Return the figures of parts that fail only a share of their tests."""
    rows: dict[float, list[Row]] = {rate: [] for rate in RATES}
    for case, row in run_cases(cases):
        rows[case.rate].append(row)
        names = "".join(f", missed {m}" for m in row.missed)
        names += "".join(f", innocent {b}" for b in row.blamed)
        say(
            f"{case!s:24} noise {case.noise} {row.found}/{row.planted} found, {row.rounds} rounds, "
            f"{row.minutes:.2f} of all pairs, {row.cpu_s:.0f} CPU s{names}"
        )
    every = [row for listed in rows.values() for row in listed]
    found = {
        f"found_at_{rate * 100:.0f}": round(
            sum(row.found for row in listed) / max(1, sum(row.planted for row in listed)), 4
        )
        for rate, listed in rows.items()
        if listed
    }
    innocent = sum(row.innocent for row in every)
    nodes = sum(case.nodes for case in cases)
    return {
        **found,
        "innocents_per_10k": round(innocent * 10_000 / nodes, 2),
        "rate_campaigns": len(every),
        "rate_cpu_s": round(sum(row.cpu_s for row in every)),
        "rate_cost_over_all_pairs": round(max(row.minutes for row in every), 3),
    }


def say(line: str) -> None:
    """One line of the table, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def measure_pods(scale: float) -> dict[str, float]:
    """Return the figures of parts above the leaves of several pods, under superspines."""
    total = Sum()
    for size, seeds in SEEDS.items():
        for name in ABOVE if size >= 4 * POD else ():
            row = Sum()
            for seed in range(max(1, round(seeds * scale))):
                campaign(fabric_of(size, pod=POD), name, seed, IsolationPolicy(noise=NOISE), row)
            say(
                f"{size:5} {'pods':>11} {name:20} {len(row.costs):9} {row.found}/{row.planted} "
                f"{row.innocent:8} {row.undecided:9} {row.rounds:6} {max(row.costs):10.4f} "
                f"{max(row.over_bound):6.2f} {row.cpu_s:5.1f}"
            )
            for part in ("planted", "found", "innocent", "undecided"):
                setattr(total, part, getattr(total, part) + getattr(row, part))
            total.costs += row.costs
    return {
        "pods_found_fraction": round(total.found / total.planted, 4),
        "pods_innocent_condemned": total.innocent,
        "pods_undecided": total.undecided,
        "pods_campaigns": len(total.costs),
    }


def measure_planted() -> tuple[dict[str, float], bool]:
    """Return the figures of culprits that only work shows, and whether they are as demanded."""
    tallies = plant_all()
    for kind, t in tallies.items():
        say(
            f"{kind:16} {t.found}/{t.planted} found, {t.innocent} innocent among {t.nodes} nodes,"
            f" {t.cpu_s:.1f} CPU s"
        )
    good = all(t.found >= FOUND_MIN * t.planted and not t.innocent for t in tallies.values())
    return sum_up(tallies), good


def main() -> None:
    if sys.argv[1:2] == ["planted"]:
        figures, good = measure_planted()
        say(json.dumps({**figures, **this_machine.told(), "ok": good}))
        sys.exit(0 if good else 1)
    if sys.argv[1:2] == ["rates"]:
        say(json.dumps({**measure_rates(list_cases([0])), **this_machine.told()}))
        return
    if sys.argv[1:2] == ["pods"]:
        say(json.dumps({**measure_pods(1.0), **this_machine.told()}))
        return
    if ":" in "".join(sys.argv[1:2]):
        say(json.dumps(measure_rates([find_case(sys.argv[1])])))
        return
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    whole: dict[str, Sum] = {}
    head = f"{'nodes':>5} {'screened in':>11} {'planted':20} {'campaigns':>9} {'found':>9} "
    head += f"{'innocent':>8} {'undecided':>9} {'rounds':>6} {'/all pairs':>10} {'/bound':>6} CPU s"
    say(head)
    for size, seeds in SEEDS.items():
        fabric = fabric_of(size)
        for mode, policy in (
            ("pairs", IsolationPolicy(noise=NOISE)),
            ("groups of 8", IsolationPolicy(noise=NOISE, group_size=8)),
        ):
            for name in FAULTS:
                row = Sum()
                for seed in range(max(1, round(seeds * scale))):
                    campaign(fabric, name, seed, policy, row)
                total = whole.setdefault(mode, Sum())
                for part in ("planted", "found", "innocent", "undecided"):
                    setattr(total, part, getattr(total, part) + getattr(row, part))
                total.costs += row.costs
                total.over_bound += row.over_bound
                found = f"{row.found}/{row.planted}"
                say(
                    f"{size:5} {mode:>11} {name:20} {len(row.costs):9} {found:>9} "
                    f"{row.innocent:8} {row.undecided:9} {row.rounds:6} {max(row.costs):10.4f} "
                    f"{max(row.over_bound):6.2f} {row.cpu_s:5.1f}"
                )
    pairs = whole["pairs"]
    groups = whole["groups of 8"]
    say(
        json.dumps(
            {
                "found_fraction": round(pairs.found / pairs.planted, 4),
                "innocent_condemned": pairs.innocent,
                "cost_over_all_pairs": round(max(pairs.costs), 4),
                "cost_over_lower_bound": round(max(pairs.over_bound), 2),
                "planted": pairs.planted,
                "undecided": pairs.undecided,
                "campaigns": len(pairs.costs),
                "groups_found_fraction": round(groups.found / groups.planted, 4),
                "groups_innocent_condemned": groups.innocent,
                "groups_cost_over_all_pairs": round(max(groups.costs), 4),
                **measure_pods(scale),
                **measure_rates(list_cases(range(max(1, round(scale))))),
                **measure_planted()[0],
                **this_machine.told(),
            }
        )
    )


if __name__ == "__main__":
    main()
