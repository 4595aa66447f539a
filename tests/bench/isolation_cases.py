"""Cases of the fault location's bench: parts that fail only a share of their tests.

Each case plants one part of each of its kinds in a fabric of 96 nodes (of 128 nodes in four pods
under superspines, where a part above the leaves of a pod is planted), and runs a campaign that
looks for rates of 0.3 and above. A case that was recorded by the same code is not run again:
`build/bench-isolation.jsonl` has one line for each, with a digest of the code that it rests on.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "planning"))

import planted
from planted import World, fabric_of, isolate, name_of, plant, shared_parts, tier_parts

from provisioner.planning import fault_location
from provisioner.planning.fault_location.isolation_words import (
    Culprit,
    Fabric,
    IsolationPolicy,
    Part,
)

NOISES = (0.03, 0.08)
SHARED = ("card", "rack", "feed", "spine", "rail")
ABOVE = ("pod_spine", "pod_uplink", "superspine")  # of fabrics with pods
PODS_NODES = 128  # four pods of two units: of three, the paths of two are all paths
RATES = (1.0, 0.6, 0.3, 0.2)  # the last is below `rate_min`: for information
NODES = 96  # three units: with two, the uplinks of both and the spines between are one
RECORDS = Path(__file__).parents[2] / "build" / "bench-isolation.jsonl"
DRIVERS = ("fabric_", "collectives")  # modules of sessions on real nodes: no case rests on them
POLICY = IsolationPolicy(rate_min=0.3, miss_risk=0.05, rounds_max=200)


@dataclass(frozen=True)
class Case:
    """One campaign: one part of each kind, all failing this share of their tests."""

    kinds: tuple[str, ...]
    rate: float
    seed: int
    noise: float

    @property
    def nodes(self) -> int:
        return NODES if set(self.kinds).isdisjoint(ABOVE) else PODS_NODES

    def __str__(self) -> str:
        return f"{'+'.join(self.kinds) or 'nothing'}:{self.rate}:{self.seed}"


@dataclass(frozen=True)
class Row:
    """The outcome of one campaign."""

    planted: int
    found: int
    innocent: int
    rounds: int
    minutes: float  # of nodes, over those of testing all pairs once
    cpu_s: float
    missed: tuple[str, ...]
    blamed: tuple[str, ...]  # the innocents


def list_cases(seeds: Sequence[int], rates: Sequence[float] = RATES) -> list[Case]:
    """Return one case of every kind and pair of kinds for each rate and seed."""
    parts = ("nodes", "links", "leaves", "uplinks")
    singles = [(kind,) for kind in (*parts, *SHARED)]
    cases = [*singles, *(a + b for a, b in combinations(singles, 2))]
    cases += [(kind,) for kind in ABOVE]
    cases += [(kind, "links") for kind in ABOVE]
    # all paths between pods cover those of each pod
    cases += [("pod_spine", "pod_uplink"), ("pod_spine", "superspine")]
    return [
        Case(kinds, rate, seed, NOISES[(number + seed) % 2])
        for rate in rates
        for number, kinds in enumerate(cases)
        for seed in seeds
    ]


def find_case(text: str) -> Case:
    """Return the case of this name, such as `leaves+card:0.6:3`."""
    seed = int(text.rpartition(":")[2])
    rate = float(text.split(":")[1])
    return next(case for case in list_cases([seed], [rate]) if str(case) == text)


def plant_distinct(fabric: Fabric, rng: random.Random, kinds: tuple[str, ...]) -> World:
    """Plant one part of each kind so that no test could mistake the parts for others.

    Drawn again: a part whose cells another planted part covers (a node on a bad feed), and one
    whose uncovered cells are also all the uncovered cells of a part that is sound.
    """
    while True:
        world = World(fabric, rng)
        counts = {k: kinds.count(k) for k in ("nodes", "links", "leaves", "uplinks")}
        plant(world, **counts)
        for above in sorted(set(kinds) & set(ABOVE)):
            world.shared.add(rng.choice(tier_parts(fabric, Culprit(above))))
        for kind in sorted(set(kinds) & set(SHARED)):
            names = [p.name for p in fabric.shared if p.kind == kind]
            world.shared.add((Culprit(kind), rng.choice(names or [f"rail {r}" for r in range(8)])))
        if is_distinct(world):
            return world


def is_distinct(world: World) -> bool:
    """Return whether each planted part shows on cells that point to it alone."""
    cells = cells_of_parts(world.fabric)
    every = [(part.kind, part.name, part.rail) for part in cells]
    bad = [part for part, key in zip(cells, every, strict=True) if key in world.planted()]
    for part in bad:
        others = {c for other in bad if other != part for c in cells[other]}
        # what fails within a leaf fails to other leaves too, and so on to other pods
        covered = {(node, rail, far) for node, rail, near in others for far in range(near, 3)}
        alone = cells[part] - covered
        sound = (cells[other] - covered for other in cells if other not in bad)
        if not alone or alone in sound:
            return False
    return True


def cells_of_parts(fabric: Fabric) -> dict[Part, set[tuple[str, int, int]]]:
    """Return part -> its cells, with how far a test goes that it can fail: 0 within the leaf, 1 to
    other leaves, 2 to other pods.
    """
    cells: dict[Part, set[tuple[str, int, int]]] = {}
    for (node, rail), parts in fabric.parts_of.items():
        for far, listed in enumerate(parts):
            for part in listed:
                cells.setdefault(part, set()).add((node, rail, far))
    return cells


def run_case(case: Case) -> Row:
    """Return the outcome of one campaign."""
    nodes = case.nodes
    fabric = fabric_of(nodes, shared=shared_parts(nodes))
    if nodes == PODS_NODES:
        fabric = fabric_of(nodes, unit=16, shared=shared_parts(nodes, unit=16), pod=32)
    rng = random.Random(f"{case.kinds} {case.rate} {case.seed} {case.noise}")
    world = plant_distinct(fabric, rng, case.kinds)
    world.noise = case.noise
    world.rate = case.rate
    began = time.process_time()
    verdicts = isolate(world, POLICY)
    spent = time.process_time() - began
    blamed = {name_of(b) for b in verdicts.condemned}
    missed = world.planted() - blamed
    return Row(
        planted=len(world.planted()),
        found=len(blamed & world.planted()),
        innocent=len(blamed - world.planted()),
        rounds=verdicts.rounds,
        minutes=verdicts.node_minutes / (nodes * (nodes - 1) * POLICY.pair_minutes),
        cpu_s=spent,
        missed=tuple(sorted(map(_describe, missed))),
        blamed=tuple(sorted(map(_describe, blamed - world.planted()))),
    )


def _describe(part: tuple[Culprit, str, int]) -> str:
    kind, name, rail = part
    return f"{kind} {name}" if rail < 0 else f"{kind} {name} rail {rail}"


def digest_code() -> str:
    """Return the digest of the code that a case rests on."""
    where = Path(inspect.getfile(fault_location)).parent
    rules = [f for f in sorted(where.glob("*.py")) if not f.name.startswith(DRIVERS)]
    files = [*rules, Path(inspect.getfile(planted)), Path(__file__)]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def run_cases(cases: Sequence[Case]) -> Iterator[tuple[Case, Row]]:
    """Run every case that is not recorded yet, and return all rows as they become known."""
    code = digest_code()
    recorded = _read_records(code)
    yield from ((case, recorded[case]) for case in cases if case in recorded)
    waiting = [case for case in cases if case not in recorded]
    RECORDS.parent.mkdir(exist_ok=True)
    workers = int(os.environ.get("BENCH_WORKERS", "0")) or os.cpu_count()
    # a campaign is one core's work, and leaves no cycles to collect
    with ProcessPoolExecutor(workers, initializer=gc.disable) as pool:
        running = {pool.submit(run_case, case): case for case in waiting}
        for done in as_completed(running):
            case = running[done]
            row = done.result()
            record = {"code": code, "case": asdict(case), "row": asdict(row)}
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            yield case, row


def _read_records(code: str) -> dict[Case, Row]:
    if not RECORDS.exists():
        return {}
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    return {
        _case(record["case"]): _row(record["row"]) for record in records if record["code"] == code
    }


def _case(stored: dict[str, Any]) -> Case:
    return Case(**{**stored, "kinds": tuple(stored["kinds"])})


def _row(stored: dict[str, Any]) -> Row:
    named = {key: tuple(stored[key]) for key in ("missed", "blamed")}
    return Row(**{**stored, **named})
