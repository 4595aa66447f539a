"""What plans cost: run with `.venv/bin/python`; arguments: MIXED FLEET VECTORS.

A mixed node has 13 pins and ten cards at any mixture of four levels, so each pin is up to three
hops away; it is planned by a daemon that holds the matrix (`p99_ms`), and with nothing computed
before (`p99_fresh_ms`). A fleet is planned with one cache; each node
has an inventory of its own, as a site would have. A shipped move is a plan between two releases of
one line of `firmware_matrix.yaml`, for a node at the older one's pins, with nothing computed
before. All times are CPU seconds of this process. The
last line is JSON.
"""

from __future__ import annotations

import json
import platform
import random
import sys
import time
from collections.abc import Sequence
from itertools import combinations, islice, pairwise, product
from math import log
from pathlib import Path

from provisioner import components
from provisioner.components import ComponentKind
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release, Requirement
from provisioner.model.plan import Disruption, Neighbour
from provisioner.planning.matrix.diff import compare_releases
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.matrix.standing import list_lines
from provisioner.planning.path.planner import PlanCache, PlanningNode, plan_fleet
from provisioner.runtime.event_loop import exempt_heap

SEED = 1
SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
LEVELS = ("1.0", "1.1", "1.2", "1.3")  # of everything that is not listed below
CHAINS = {
    "hgx.bundle": tuple(f"HGX-H100x8_0002_23010{n}.1.0" for n in range(1, 5)),
    "bluefield.bundle": tuple(f"2.{n}.0-10" for n in (6, 7, 9, 10)),
    "bluefield.bmc": tuple(f"BF-24.0{n}-10" for n in range(1, 5)),
    "bluefield.nic": tuple(f"32.4{n}.1000" for n in range(4)),
    "supernic.nic": tuple(f"32.4{n}.1000" for n in range(4)),
    "nic.cx7": tuple(f"28.4{n}.1000" for n in range(4)),
    "nic.config": ("none", "RA1.1", "RA1.2", "RA1.3"),
}
HOST = (
    "host.driver",
    "host.fabric_manager",
    "host.doca",
    "host.spcx_cc",
    "host.bmc",
    "host.bios",
    "nic.config",
)
CARDS = ("bluefield.bundle", "supernic.nic", "nic.cx7")  # one of them for each of the ten cards
PINS = (*HOST, "hgx.bundle", "bluefield.bundle", "bluefield.nic", "bluefield.bmc", *CARDS[1:])
LEAF = (Neighbour(node="leaf", versions={"switch.os": ("5.12.1.100",)}),)


def build_matrix() -> Matrix:
    """Return a matrix in which each component climbs from any older version by one or two."""
    edges: dict[str, tuple[Edge, ...]] = {}
    for kind in PINS:
        chain = CHAINS.get(kind, LEVELS)
        edges[kind] = tuple(
            Edge(
                from_versions=chain[max(0, number - 2) : number],
                to=to,
                activates_by=components.ALL[kind].activation,
                carries={"bluefield.nic": f"32.4{number}.1000"}
                if kind == "bluefield.bundle"
                else {},
                requires={"host.bmc": ">=1.1"} if kind == "hgx.bundle" else {},
                artifact="file",
                sha256="0" * 64,
                evidence="bench",
            )
            for number, to in enumerate(chain[1:], 1)
        )
    contents = {
        version: {"hgx.gpu": f"96.00.0{n}.00.01", "hgx.bmc": f"HGX-22.10-1-rc{n}"}
        for n, version in enumerate(CHAINS["hgx.bundle"])
    }
    pins = {
        kind: Pin(version=CHAINS.get(kind, LEVELS)[-1], optional=kind not in HOST) for kind in PINS
    }
    profile = Profile(match=Match(), pins=pins)
    return Matrix(
        releases={"r": Release(profiles={"p": profile}, requires=_build_rules())},
        edges=edges,
        bundles={"hgx.bundle": contents},
    )


def _build_rules() -> tuple[Requirement, ...]:
    """Return the rules of the shipped matrix: on the driver's partner, the leaf, and DOCA-Host."""
    conditions = [({"host.driver": ">0"}, {"host.fabric_manager": "=host.driver"})]
    for kind in ("bluefield.nic", "supernic.nic"):
        conditions.append(({kind: ">=32.42"}, {"switch.os": ">=5.11.0.0026"}))
        conditions.append(({kind: ">=32.43"}, {"host.doca": ">=1.2"}))
    return tuple(
        Requirement(name=f"rule {number}", when=when, needs=needs, reason="tested together")
        for number, (when, needs) in enumerate(conditions)
    )


def build_mixed_node(rng: random.Random, name: str) -> Inventory:
    """Return a node with ten cards of any kinds at any levels; the NIC of a DPU at its own."""
    driver = rng.randrange(4)
    level = {kind: rng.randrange(4) for kind in HOST} | {"host.fabric_manager": driver}
    level["host.driver"] = driver
    rows = [(kind, "0", CHAINS.get(kind, LEVELS)[n]) for kind, n in level.items()]
    rows += _list_baseboard(rng.randrange(4))
    for number in range(1, 11):
        kind, slot = rng.choice(CARDS), f"CARD_{number}"
        rows.append((kind, slot, rng.choice(CHAINS[kind])))
        if kind == "bluefield.bundle":
            rows.append(("bluefield.nic", slot, rng.choice(CHAINS["bluefield.nic"])))
            rows.append(("bluefield.bmc", slot, rng.choice(CHAINS["bluefield.bmc"])))
    return _build_inventory(name, rows)


def build_vectors(count: int) -> list[tuple[int, ...]]:
    """Return distinct levels of baseboard, BlueField, driver, DOCA, host BMC, BIOS and SuperNIC."""
    ranges = (range(3), range(4), range(3), range(4), range(3), range(4), range(4))
    return list(islice(product(*ranges), count))


def build_node(name: str, vector: tuple[int, ...]) -> Inventory:
    """Return one node of the fleet; 41 components."""
    bundle, card, driver, doca, bmc, bios, nic = vector
    levels = (driver, driver, doca, 3, bmc, bios, 3)
    rows = [(kind, "0", CHAINS.get(kind, LEVELS)[n]) for kind, n in zip(HOST, levels, strict=True)]
    rows += _list_baseboard(bundle)
    for number in range(1, 3):
        slot = f"CARD_{number}"
        rows += [
            (kind, slot, CHAINS[kind][card])
            for kind in ("bluefield.bundle", "bluefield.nic", "bluefield.bmc")
        ]
    rows += [("supernic.nic", f"NIC_{n}", CHAINS["supernic.nic"][nic]) for n in range(1, 9)]
    rows += [("host.psu", f"PSU_{n}", "0204.0201") for n in range(6)]
    return _build_inventory(name, rows)


def _list_baseboard(bundle: int) -> list[tuple[str, str, str]]:
    gpus = [("hgx.gpu", f"GPU_SXM_{n}", f"96.00.0{bundle}.00.01") for n in range(1, 9)]
    return [*gpus, ("hgx.bmc", "BMC_0", f"HGX-22.10-1-rc{bundle}")]


def _build_inventory(name: str, rows: Sequence[tuple[str, str, str]]) -> Inventory:
    return Inventory(
        node=name,
        vendor="bench",
        components=tuple(
            Component(kind=k, slot=s, version=v, source=f"/{k}/{s}", bmc="host") for k, s, v in rows
        ),
    )


def measure_mixed(count: int, *, fresh: bool) -> list[float]:
    """Return the CPU milliseconds of each mixed node, sorted.

    With `fresh`, nothing is kept from one node to the next, not even what the matrix says.
    """
    rng, matrix, times = random.Random(SEED), build_matrix(), []
    kept = PlanCache(matrix, components.ALL, production=True)
    exempt_heap()  # as a daemon does
    for number in range(count):
        node = PlanningNode(build_mixed_node(rng, f"n{number}"), "r", "p", neighbours=LEAF)
        begun = time.process_time()
        cache = PlanCache(matrix, components.ALL, production=True) if fresh else kept
        plan = cache.plan(node)
        times.append((time.process_time() - begun) * 1000)
        assert not plan.blockers, plan.blockers
    return sorted(times)


def find_p99(times: Sequence[float]) -> float:
    """Return the time that 99 of 100 do not exceed; the times are sorted."""
    return times[max(0, -(-99 * len(times) // 100) - 1)]


def measure_fleet(count: int, distinct: int) -> tuple[float, int]:
    """Return the CPU seconds of a whole fleet and the number of plans that were computed."""
    vectors = build_vectors(distinct)
    nodes = [
        PlanningNode(build_node(f"n{i}", vectors[i % len(vectors)]), "r", "p", neighbours=LEAF)
        for i in range(count)
    ]
    cache = PlanCache(build_matrix(), components.ALL, production=True)
    begun = time.process_time()
    plans = plan_fleet(nodes, cache)
    took = time.process_time() - begun
    assert not any(plan.blockers for plan in plans)
    return took, cache.searches


def measure_shipped() -> tuple[list[float], int]:
    """Return the CPU milliseconds of each shipped move, sorted, and the number of releases."""
    matrix, times = parse([(SHIPPED.name, SHIPPED.read_text())]), []
    for line in list_lines(matrix):
        for older, newer in combinations(line, 2):
            begun = time.process_time()
            moves = compare_releases(matrix, older, newer)
            if moves:
                times += [(time.process_time() - begun) * 1000 / len(moves)] * len(moves)
    return sorted(times), len(matrix.releases)


def build_parts(size: int, levels: Sequence[str] = LEVELS) -> tuple[PlanCache, PlanningNode]:
    """Return a node of independent components at the first level, which are pinned to the last."""
    kinds = {
        f"part.n{n}": ComponentKind(
            name=f"part.n{n}",
            title="a part",
            grammar="dotted",
            method="playbook_host_software",
            disruption=Disruption.NONE,
            duration_s=60,
        )
        for n in range(size)
    }
    ways = (Activation.COLD_BOOT, Activation.WARM_REBOOT, Activation.BMC_RESET)
    pins = {kind: Pin(version=levels[-1]) for kind in kinds}
    matrix = Matrix(
        releases={"r": Release(profiles={"p": Profile(match=Match(), pins=pins)})},
        edges={
            kind: tuple(
                Edge(from_versions=(start,), to=to, activates_by=ways[n % 3], evidence="bench")
                for start, to in pairwise(levels)
            )
            for n, kind in enumerate(kinds)
        },
    )
    node = PlanningNode(_build_inventory("n", [(k, "0", levels[0]) for k in kinds]), "r", "p")
    return PlanCache(matrix, kinds, production=True), node


def measure_growth(sizes: Sequence[int], repeats: int = 5) -> dict[int, float]:
    """Return for each number of independent components the CPU milliseconds of one plan."""
    out = {}
    for size in sizes:
        times = []
        for _ in range(repeats):
            cache, node = build_parts(size)
            begun = time.process_time()
            plan = cache.plan(node)
            times.append((time.process_time() - begun) * 1000)
            assert len(plan.steps) >= 3 * size
        out[size] = min(times)
    return out


def find_exponent(times: dict[int, float]) -> float:
    """Return the slope of the times over the sizes, both as logarithms: 2 is quadratic."""
    (first, least), *_, (last, most) = sorted(times.items())
    return log(most / least) / log(last / first)


def main(mixed: int, fleet: int, distinct: int) -> None:
    """Print the costs of single plans, of a fleet, and of more components."""
    times, cold = measure_mixed(mixed, fresh=False), measure_mixed(mixed, fresh=True)
    fleet_s, searches = measure_fleet(fleet, distinct)
    shipped, releases = measure_shipped()
    growth = measure_growth((10, 20, 40, 80))
    report = {
        "p99_ms": round(find_p99(times), 1),
        "median_ms": round(times[len(times) // 2], 1),
        "largest_ms": round(times[-1], 1),
        "p99_fresh_ms": round(find_p99(cold), 1),
        "median_fresh_ms": round(cold[len(cold) // 2], 1),
        "mixed_nodes": mixed,
        "fleet_cpu_s": round(fleet_s, 1),
        "fleet_nodes": fleet,
        "distinct_vectors": distinct,
        "searches": searches,
        "p99_shipped_ms": round(find_p99(shipped), 1),
        "shipped_moves": len(shipped),
        "shipped_releases": releases,
        "growth_ms": {str(size): round(ms, 1) for size, ms in growth.items()},
        "growth_exponent": round(find_exponent(growth), 2),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    arguments = [int(a) for a in sys.argv[1:]]
    main(*(arguments + [1_000, 65_536, 2_000][len(arguments) :]))
