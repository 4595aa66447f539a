"""How soon faults accuse a version, and how often an innocent one; argument: WORLDS.

Three kinds of worlds, each from its own seed, so that a run repeats:

- *null*: campaigns whose release changes nothing, judged after every day; none may be held.
- *planted*: half of a fleet fails 1.5 times as often; node-days until a campaign is held, against
  Wald's bound for a test that knows the ratio (Annals of Mathematical Statistics 16, 1945): the
  logarithm of 1/α by the mean information of a fault.
- *mixed*: fleets with twelve versions, of which one, or one rack, feed or lot, or nothing is bad:
  the false accusations.

The last line is JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from math import log
from typing import Any

from provisioner.planning.certification.certification import DAY_S
from provisioner.planning.certification.fault_rates import (
    ALPHA_HOLD,
    Interval,
    Stay,
    find_suspects,
    weigh_faults,
)

RATE = 0.02  # faults of a node in a day without the effect
FACTOR = 1.5  # of the planted regressions
NODES = 400
# what may be bad beside a version, of each kind one
PLACES = (
    [f"rack=r{n}" for n in range(NODES // 16)],
    [f"pdu=p{n}" for n in range(7)],
    [f"tag=lot-{n}" for n in range(5)],
)
SHARE_ALLOWED = 1.3  # of the node-days that theory needs


def live(nodes: range, rate: float, days: float, rng: random.Random) -> Iterator[Interval]:
    """Yield the times at risk of nodes that are repaired within an hour."""
    for _ in nodes:
        at = 0.0
        while at < days * DAY_S:
            end = at + rng.expovariate(rate) * DAY_S
            yield Interval(at, min(end, days * DAY_S), end <= days * DAY_S, suspect=False)
            at = end + 3600.0


def live_two(factor: float, days: float, rng: random.Random) -> list[Interval]:
    """Return both halves of a fleet; one of them has the suspect."""
    quiet = list(live(range(NODES // 2), RATE, days, rng))
    suspect = live(range(NODES // 2), RATE * factor, days, rng)
    return quiet + [interval._replace(suspect=True) for interval in suspect]


def is_held(intervals: list[Interval], until: float) -> bool:
    cut = [
        i if i.ends_at <= until else i._replace(ends_at=until, failed=False)
        for i in intervals
        if i.begins_at < until
    ]
    return weigh_faults(cut).log_e >= -log(ALPHA_HOLD)


def find_first_day(intervals: list[Interval], days: range) -> int | None:
    """Return the first day on which the evidence holds a campaign; it may fall again after it."""
    return next((day for day in days if is_held(intervals, day * DAY_S)), None)


def measure_null(worlds: int) -> int:
    """Return how many of the worlds without an effect were ever held in four weeks."""
    held = 0
    for seed in range(worlds):
        rng = random.Random(seed)
        intervals = live_two(1.0, 28, rng)
        held += find_first_day(intervals, range(1, 29)) is not None
    return held


def measure_planted(worlds: int) -> dict[str, Any]:
    """Return the mean node-days until a regression is found, and those that theory needs."""
    share = FACTOR / (1 + FACTOR)
    information = share * log(2 * share) + (1 - share) * log(2 * (1 - share))
    faults = -log(ALPHA_HOLD) / information
    theory = faults / (RATE * (1 + FACTOR) / 2)
    found: list[float] = []
    for seed in range(worlds):
        days = 320
        intervals = live_two(FACTOR, days, random.Random(10_000 + seed))
        day = find_first_day(intervals, range(2, days, 2))
        assert day is not None, "not found at all"
        found.append(day * NODES)
    mean = sum(found) / len(found)
    return {
        "planted_node_days": round(mean),
        "theory_node_days": round(theory),
        "planted_by_theory": round(mean / theory, 3),
    }


def measure_mixed(worlds: int) -> dict[str, Any]:
    """Return how many accusations were made, and how many of them were false."""
    accused = false = bad = caught = 0
    for seed in range(worlds):
        rng = random.Random(20_000 + seed)
        names = [f"part{n}" for n in range(12)]
        sets = {
            f"s{n}": {name: rng.choice("AB") for name in names[:4]}
            | {name: rng.choice("AAB") for name in names[4:]}
            for n in range(6)
        }
        marks = {
            f"n{node}": [f"rack=r{node // 16}", f"pdu=p{node % 7}", f"tag=lot-{rng.randrange(5)}"]
            for node in range(NODES)
        }
        guilty = rng.choice([*names, *(rng.choice(kind) for kind in PLACES), None, None])
        bad += guilty is not None
        stays = []
        for node in range(NODES):
            digest = rng.choice(sorted(sets))
            slow = guilty in marks[f"n{node}"] or sets[digest].get(guilty or "") == "B"
            for i in live(range(1), RATE * (3.0 if slow else 1.0), 60, rng):
                stays.append(Stay(f"n{node}", i.begins_at, i.ends_at, i.failed, digest))
        for suspect in find_suspects(stays, sets, marks):
            if suspect.accused:
                right = any(guilty in (pin, pin.partition("=")[0]) for pin in suspect.what)
                accused += 1
                false += not right
                caught += right
    return {
        "accused": accused,
        "false_accusations": false,
        "bad_worlds": bad,
        "right_accusations": caught,
    }


def main(worlds: int) -> None:
    """Run all three and print their figures."""
    begun = time.process_time()
    report: dict[str, Any] = {"null_worlds": worlds, "held_null_worlds": measure_null(worlds)}
    sys.stdout.write(f"of {worlds} worlds without an effect {report['held_null_worlds']} held\n")
    report |= measure_planted(max(worlds // 20, 5))
    report |= measure_mixed(max(worlds // 20, 5))
    report["cpu_s"] = round(time.process_time() - begun, 1)
    report["good"] = (
        report["held_null_worlds"] == 0
        and report["planted_by_theory"] <= SHARE_ALLOWED
        and report["false_accusations"] <= 0.05 * max(report["accused"], 1)
    )
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["1000"])[0]))
