"""Searches for faults of racks that take longer than a suite.

    make soak NAME=racks ARGS="water 10000000"      steps over the gate and the latch, no breach
    make soak NAME=racks ARGS="wires 10000000"      steps at a simulated rack's wires, no breach
    make soak NAME=racks ARGS="leaks 256"           leaks that BMCs tell of, beside the poll
    make soak NAME=racks ARGS="healthy 100"         whole racks, each with timings of its own
    make soak NAME=racks ARGS="mixed 50"            whole racks of mixed versions, with 200 deaths
    make soak NAME=racks ARGS="wave 8 4 20"         whole racks by the daemon's loops, with deaths
    make soak NAME=racks ARGS="wave 8 4 0 150"      the same, by BMCs that take their time
    make soak NAME=racks ARGS="trees FOLDER 2000"   recorded trees, each with 2,000 spoilt values

`water`: 7.4's A1 without the wires, `wires`: with them, from a seed that may follow; `leaks`: A2,
in virtual time, of BMCs that answer in 0.05 to 0.25 s; `healthy`: A8, a rack of 18 trays, 9
switches and 8 shelves, from a seed that may follow; `mixed`: A3, such racks whose units begin with
other versions, and processes that die at random writes; `wave`: one campaign of the daemon over
such racks, so many domains at one time, so many deaths at random writes, and answers of BMCs that
take so many milliseconds (0: none); `trees`: A10, of a folder
with NAME/redfish/v1/.../index.json.
The last line is JSON; the exit code is 1 if anything was found.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heard_site import HeardSite, measure_leaks
from mutated_trees import find_crashes, load_trees, read
from rack_rig import Rig
from rack_wave import Died, Wave
from water_walk import TRAYS, Walk
from wires_walk import WiresWalk

from provisioner.integrations.demo.rack_site import AFTER_NVOS, NEW, OLD, TARGETS
from provisioner.integrations.racks.duty.approval import RackCampaignState
from provisioner.integrations.sim.racks.rack import Times
from provisioner.integrations.twin import loop
from provisioner.ports import Call

FULL = {"trays": 18, "switches": 9, "shelves": 8}
DEATHS = 200
SWITCHED_MAX = 3  # deaths among hosts that are switched: after five in one act a person looks
PART = 100_000
LEAKS = 200
REACTION_S = 2.0


def walk_water(steps: int) -> dict[str, Any]:
    """Walk; a breach raises."""
    counts: Counter[str] = Counter()
    for seed in range(-(-steps // PART)):
        walk = Walk(seed)
        walk.run(min(PART, steps - seed * PART))
        counts += walk.counts
    wanted = [f"given to {name}" for name in (*TRAYS, "p0")]
    return {"steps": steps, **counts, "found": [n for n in wanted if not counts[n]]}


def walk_wires(steps: int, seed: int = 0) -> dict[str, Any]:
    """Walk over one rack after the other; a breach raises."""
    counts: Counter[str] = Counter()
    walked = 0
    while walked < steps:
        with tempfile.TemporaryDirectory() as folder:
            walk = WiresWalk(Path(folder), seed)
            while walk.steps < min(PART, steps - walked):
                walk.act()
            counts += walk.counts
            walked += walk.steps
        say(f"seed {seed}: {walked} steps, {counts['acts']} acts")
        seed += 1
    wanted = ("Critical", "Unavailable", "gone", "deaths", "updates done", "cold reboot done")
    wanted += ("powered by on", "sent aux", "sent shelf on")
    return {"steps": walked, **counts, "found": [name for name in wanted if not counts[name]]}


def time_leaks(racks: int) -> dict[str, Any]:
    """Return how long it takes from an event to the Off, with racks of 18 trays and 9 switches."""

    async def run() -> tuple[HeardSite, list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            site = HeardSite(Path(folder), racks)
            return site, await measure_leaks(site, LEAKS)

    site, late = loop.run(run())
    p99 = late[-(-len(late) * 99 // 100) - 1]
    requests = sum(site.wires.asked.values())
    figures = {"racks": racks, "leaks": len(late), "requests": requests, "p99_s": round(p99, 2)}
    figures |= {"p50_s": round(late[len(late) // 2], 2), "most_s": round(late[-1], 2)}
    return {**figures, "found": [f"p99 {p99}"] if p99 > REACTION_S else []}


def jitter(rig: Rig, rng: random.Random) -> None:
    rig.rack.times = Times(**{k: v * rng.uniform(0.6, 1.4) for k, v in vars(Times()).items()})


def live_to_the_end(rig: Rig) -> list[str]:
    ended = rig.run()
    if isinstance(ended, list):
        return [f"held: {each}" for each in ended]
    outcome, hands = ended
    if outcome.finished:
        return []
    why = [f"held at {key}: {hands.why.get(key, '')}" for key in outcome.held.values()]
    return why or ["it did not finish"]


def check_end(rig: Rig) -> list[str]:
    """Return what does not run what was asked for, by the simulator's own books."""
    found = [f"violation {one}" for one in rig.violations()]
    for n in range(FULL["trays"]):
        wanted = {**NEW["host"], **NEW["hgx"]}
        found += [f"t{n}"] if rig.tray(f"t{n}").active != wanted else []
    for n in range(FULL["switches"]):
        switch = rig.switch(f"s{n}")
        right = switch.active == NEW["switch"] and switch.images[switch.current] == AFTER_NVOS
        found += [] if right else [f"s{n}"]
    for n in range(FULL["shelves"]):
        shelf = rig.shelf(f"p{n}")
        right = set(shelf.flash.values()) == {"3.2.4"} and set(shelf.supplies.values()) == {"0104"}
        found += [] if right else [f"p{n}"]
    return found


def run_healthy(count: int, first: int = 0) -> dict[str, Any]:
    found: list[str] = []
    aux = 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            rig = Rig(Path(folder), targets=TARGETS, **FULL)
            jitter(rig, random.Random(seed))
            told = live_to_the_end(rig) + check_end(rig)
            cycles = Counter(event.unit for event in rig.rack.find("aux"))
            told += [f"{unit} was cycled {n} times" for unit, n in cycles.items() if n > 1]
            aux += len(cycles)
            found += [f"rack {seed}: {each}" for each in told]
        say(f"{seed + 1} racks, {len(found)} found")
    return {"racks": count, "aux_cycles": aux, "found": found[:20]}


def mix(rig: Rig, rng: random.Random) -> Mapping[str, int]:
    """Give units other versions to begin with; return how many bundles each tray needs."""
    needs: dict[str, int] = {}
    for n in range(FULL["trays"]):
        tray = rig.tray(f"t{n}")
        needs[tray.name] = 0
        for bundle in ("host", "hgx"):
            new = rng.random() < 0.5
            tray.active.update(NEW[bundle] if new else OLD[bundle])
            needs[tray.name] += not new
    for n in range(FULL["switches"]):
        if rng.random() < 0.5:
            rig.switch(f"s{n}").active.update(NEW["switch"])
    for n in range(FULL["shelves"]):
        if rng.random() < 0.5:
            rig.shelf(f"p{n}").flash = {"Primary": "3.2.4", "Backup": "3.2.4"}
    return needs


def run_mixed(count: int) -> dict[str, Any]:
    found: list[str] = []
    deaths = 0
    for seed in range(count):
        rng = random.Random(1_000 + seed)
        left = -(-(DEATHS - deaths) // (count - seed))
        switched = SWITCHED_MAX
        gone = False
        with tempfile.TemporaryDirectory() as folder:
            rig = Rig(Path(folder), targets=TARGETS, **FULL)
            needs = mix(rig, rng)

            def die(_url: str, call: Call, own: random.Random = rng) -> None:
                nonlocal left, switched, gone
                if gone:  # a process that died sends nothing more, whatever else it had under way
                    raise Died
                at_host = call.path.endswith("ComputerSystem.Reset")
                if at_host and not switched:
                    return
                if left and call.method != "GET" and own.random() < 0.1:
                    left -= 1
                    switched -= at_host
                    gone = True
                    raise Died

            rig.wires.before = rig.wires.after = die
            told: list[str] | None = None
            while told is None:
                gone = False
                try:
                    told = live_to_the_end(rig)
                except Died:
                    deaths += 1
            told += check_end(rig)
            for name, times in needs.items():
                written = [n for _, n in rig.tray(name).flashed]
                told += [f"{name} was written {written}"] if len(written) > times else []
            found += [f"rack {seed}: {each}" for each in told]
        say(f"{seed + 1} racks, {deaths} deaths, {len(found)} found: {told[:3]}")
    return {"racks": count, "deaths": deaths, "found": found[:20]}


def run_wave(racks: int, at_once: int = 4, deaths: int = 0, answer_ms: int = 0) -> dict[str, Any]:
    """Have the daemon's own loops carry one campaign out over whole racks."""
    with tempfile.TemporaryDirectory() as folder:
        wave = Wave(Path(folder), racks, at_once, answer_s=answer_ms / 1000)
        gc.freeze()  # the simulators; the daemon exempts what lasts, too
        gc.set_threshold(200_000, 20, 200)
        wave.approve()
        began = wave.now()
        state = wave.live(deaths)
        found = [] if state.state is RackCampaignState.DONE else [f"{state.state}: {state.says}"]
        found += [f"{one}" for rig in wave.rigs for one in check_end(rig)] + wave.find_faults()
        took, bound = wave.now() - began, wave.bound()
    figures = {"racks": racks, "at_once": at_once, "deaths": wave.deaths, "found": found[:20]}
    hours = {"makespan_h": round(took / 3600, 2), "bound_h": round(bound / 3600, 2)}
    return {**figures, **hours, "ratio": round(took / bound, 3)}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def spoil_trees(folder: str, each: int) -> dict[str, Any]:
    kinds: dict[str, str] = {}
    found: list[str] = []
    count = 0
    for name, tree in load_trees(Path(folder)).items():
        reading = read(tree)
        kinds[name] = f"{reading.kind} {reading.model} {reading.power}"
        done, wrong = find_crashes(name, tree, each)
        count += done
        found += wrong
        say(f"{name}: {kinds[name]}, {len(wrong)} found")
    return {"trees": kinds, "spoilt": count, "found": found[:20] or ([] if kinds else ["no tree"])}


SEARCHES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "water": walk_water,
    "wires": walk_wires,
    "leaks": time_leaks,
    "healthy": run_healthy,
    "mixed": run_mixed,
    "wave": run_wave,
}


def main() -> int:
    words = sys.argv[1:]
    name = words[0] if words else "water"
    begun = time.process_time()
    if name == "trees":
        folder = words[1] if len(words) > 1 else "."
        figures = spoil_trees(folder, int(words[2]) if len(words) > 2 else 2_000)
    else:
        figures = SEARCHES[name](*([int(word) for word in words[1:]] or [100_000]))
    say(json.dumps({"search": name, **figures, "cpu_s": round(time.process_time() - begun, 1)}))
    return 1 if figures["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
