"""Ten million steps of `port_soak`, seed after seed, on all processors; may be interrupted.

    python tests/simulation/soak_ports.py [steps] [--model] [--jobs N] [--from SEED] [--kept FILE]

Every seed that was lived to its end is one line of JSON in FILE; begun again, it goes on with the
seeds that are not there. A violation is printed with its seed and ends it: the seed alone replays
it. Prints progress; the last line is JSON. The steps are those of `port_soak`, and nothing else;
with `--model` those of `port_model`, which are smaller and ten thousand times as fast.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from port_model import Model
from port_model_parts import STEP_S
from port_soak import Soak
from virtual_time import run

STEPS = 10_000_000
STEPS_OF_A_MODEL = 250_000
STEPS_OF_A_SEED = 1_000  # the store's journal grows with each; a minute is lost at most


def live(seed: int) -> dict[str, Any]:
    """One seed to its end; what came of it, with `violation` if something must never happen."""
    logging.disable(logging.ERROR)
    gc.disable()  # a tenth of the time; what a seed leaves behind is collected at its end
    began = time.process_time()
    soak = Soak(seed)
    told: dict[str, Any] = {"seed": seed}
    try:
        run(soak.live(STEPS_OF_A_SEED))
    except Exception as error:  # also our own bug: the seed replays it
        told["violation"] = f"{type(error).__name__}: {error}"
    gc.collect()
    return told | {
        "steps": soak.steps.total(),
        "acts": dict(sorted(soak.steps.items())),
        "requests": soak.wire.requests,
        "entered": soak.truth.entered,
        "checks": soak.truth.checks,
        "driverless_s": round(soak.driverless_s, 1),
        "cpu_s": round(time.process_time() - began, 2),
    }


def live_model(seed: int) -> dict[str, Any]:
    """The same with the abstract model."""
    gc.disable()
    began = time.process_time()
    model, made = Model(seed), 0
    told: dict[str, Any] = {"seed": seed}
    try:
        while made < STEPS_OF_A_MODEL:
            made += model.step()
    except Exception as error:
        told["violation"] = f"{type(error).__name__}: {error}"
    gc.collect()
    return told | {
        "steps": made,
        "acts": dict(sorted(model.steps.items())),
        "entered": model.entered,
        "fence_steps": model.fence_steps,
        "driverless_s": round(model.driverless_steps * STEP_S, 1),
        "cpu_s": round(time.process_time() - began, 2),
    }


def finished(kept: Path) -> dict[int, dict[str, Any]]:
    """Seeds that were lived to their end before -> what came of each."""
    found = {}
    for line in kept.read_text().splitlines() if kept.exists() else ():
        try:
            told = json.loads(line)
        except ValueError:
            continue  # cut short
        if "violation" not in told:
            found[told["seed"]] = told
    return found


def seeds(known: Collection[int], first: int) -> Iterator[int]:
    """Those from the first on that are not known yet, for ever."""
    seed = first
    while True:
        if seed not in known:
            yield seed
        seed += 1


def summary(lives: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """How often each event came, in all seeds, and the longest waits."""
    events: Counter[str] = Counter()
    longest = {"driverless_s": 0.0}
    for told in lives:
        events.update(told.get("acts", {}))
        for name in longest:
            longest[name] = max(longest[name], told.get(name, 0.0))
    return {"events": dict(sorted(events.items())), **longest}


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """0: all steps were made, and nothing was violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="?", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--model", action="store_true", help="the abstract model, not the code")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="SEED")
    parser.add_argument("--kept", type=Path)
    given = parser.parse_args()
    given.kept = given.kept or Path(f"build/soak-{'model' if given.model else 'ports'}.jsonl")
    life, of_a_seed = (live_model, STEPS_OF_A_MODEL) if given.model else (live, STEPS_OF_A_SEED)
    given.kept.parent.mkdir(parents=True, exist_ok=True)
    known = finished(given.kept)
    done, began, sitting, bad = sum(t["steps"] for t in known.values()), time.monotonic(), 0, ""
    say(f"{done} of {given.steps} steps were made before, in {len(known)} seeds")
    pool = multiprocessing.get_context("spawn").Pool(given.jobs)
    with pool, given.kept.open("a") as file:
        missing = -(-max(0, given.steps - done) // of_a_seed)
        lives = pool.imap_unordered(life, islice(seeds(frozenset(known), given.first), missing))
        for told in lives:
            file.write(json.dumps(told) + "\n")
            file.flush()
            known[told["seed"]] = told
            done, sitting = done + told["steps"], sitting + told["steps"]
            if "violation" in told:
                bad = f"seed {told['seed']}: {told['violation']}"
                break
            rate = sitting / (time.monotonic() - began)
            say(f"seed {told['seed']}: {done} steps, {rate:.0f} a second")
    if bad:
        say(bad)
    passed_s = time.monotonic() - began
    report = {"steps": done, "wanted": given.steps, "violation": bad, "sitting_steps": sitting}
    report |= {"sitting_s": round(passed_s), "jobs": given.jobs, "seeds": len(known)}
    say(json.dumps(report | summary(known.values())))
    return 1 if bad or done < given.steps else 0


if __name__ == "__main__":
    sys.exit(main())
