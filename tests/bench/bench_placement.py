"""How near the placement of tenants is to the optimum: arguments: SITES NODES.

Small sites at random (one or two pods, up to eight units, one to five tenants, some of them
standing already, bound to units or spread, some nodes not certified yet) are placed by the product,
and by HiGHS, which minimizes the same stated cost as an integer program written here. Cost that no
placement can avoid (of the places that tenants stand in already) is taken off on both sides.
Then a fleet is placed at once, for its CPU seconds. The last line is JSON; `over_optimum`
is the sum of the product's costs over the sum of the optima, `worst` the largest single ratio among
sites whose optimum costs at least as much as one unit.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

import highspy
from this_machine import told

from provisioner.planning.tenancy.placement import (
    BROKEN,
    CROWDED,
    RACK,
    TOUCHED,
    UNIT,
    WAIT,
    Area,
    Site,
    Wish,
    cost_placement,
    place_tenants,
)

SOLVED_S = 20.0  # a site that takes the solver longer is left out, and counted


def draw_site(seed: int) -> tuple[Site, list[Wish]]:
    """Return a small site with nodes in every standing, and what its tenants lack."""
    rng = random.Random(seed)
    tenants = rng.randint(1, 5)
    taken, late = seed % 5 * 0.12, 0.15 if seed % 3 == 0 else 0.0
    ready, coming, total = Counter[Area](), Counter[Area](), Counter[Area]()
    held = [Counter[Area]() for _ in range(tenants)]
    for rack in _draw_racks(rng):
        for _ in range(rng.choice([2, 4])):
            total[rack] += 1
            chance = rng.random()
            if chance < taken:
                if rng.random() < 0.5:
                    held[rng.randrange(tenants)][rack] += 1
            elif chance < taken + late:
                coming[rack] += 1
            else:
                ready[rack] += 1
    free = ready + coming
    units = sorted({rack[:UNIT] for rack in total}, key=repr)
    wishes, left = [], free.total()
    for number in range(tenants):
        bound = rng.random() < 0.2
        allowed = frozenset(rng.sample(units, rng.randint(1, len(units))) if bound else ())
        room = sum(n for rack, n in free.items() if not allowed or rack[:UNIT] in allowed)
        count = min(left, room, rng.choice([1, 2, 3, 4, 4, 8, 8, 12, 16]))
        left -= count
        wishes.append(Wish(f"t{number}", count, held[number], allowed, rng.random() < 0.1))
    return Site(ready, coming, total), wishes


def _draw_racks(rng: random.Random) -> list[Area]:
    return [
        (pod, unit, (f"g{group}",), f"r{rack}")
        for pod in range(rng.choice([1, 1, 2]))
        for unit in range(rng.randint(1, 4))
        for group in range(rng.choice([1, 1, 2]))
        for rack in range(rng.choice([1, 2, 3]))
    ]


def solve(site: Site, wishes: Sequence[Wish]) -> float | None:
    """Return the least cost of new places by HiGHS; None: there is none, or it took too long."""
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("time_limit", SOLVED_S)
    model.setOptionValue("mip_rel_gap", 0.0)
    whole = highspy.HighsVarType.kInteger
    racks = [a for a in site.free if len(a) == RACK]
    counts = {
        (w.tenant, rack): model.addVariable(
            0, site.free[rack] if w.may_use(rack) else 0, type=whole
        )
        for w in wishes
        for rack in racks
    }
    for wish in wishes:
        model.addConstr(sum(counts[wish.tenant, rack] for rack in racks) == wish.count)
        standing = Counter[Area]()
        for rack, count in wish.held.items():
            standing.update({rack[:length]: count for length in range(1, RACK + 1)})
        inside = {
            area: sum(counts[wish.tenant, rack] for rack in racks if rack[: len(area)] == area)
            for area in site.free
        }
        if wish.is_spread:
            for level, cost in CROWDED.items():
                most = model.addVariable(0, site.free.total(), obj=cost, type=whole)
                for area in {*site.free, *standing}:
                    if len(area) == level:
                        model.addConstr(most >= standing[area] + inside.get(area, 0))
        else:
            for area in site.free:
                if not standing[area]:
                    stands = model.addVariable(0, 1, obj=TOUCHED[len(area)], type=whole)
                    model.addConstr(inside[area] <= site.free[area] * stands)
    _add_shared_costs(model, site, [w.tenant for w in wishes], counts, racks)
    model.minimize()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    crowded = cost_placement(site, [w for w in wishes if w.is_spread], {})
    return float(model.getObjectiveValue()) - crowded


def _add_shared_costs(
    model: highspy.Highs,
    site: Site,
    tenants: Sequence[str],
    counts: dict[tuple[str, Area], highspy.highs.highs_var],
    racks: Sequence[Area],
) -> None:
    """Add that each place is given once, what is waited for, and wholes that are broken."""
    used = {rack: sum(counts[tenant, rack] for tenant in tenants) for rack in racks}
    for rack in racks:
        model.addConstr(used[rack] <= site.free[rack])
        late = model.addVariable(0, site.free[rack], obj=WAIT)
        model.addConstr(late >= used[rack] - site.ready[rack])
    for area in site.whole:
        inside = sum(used[rack] for rack in racks if rack[: len(area)] == area)
        entered = model.addVariable(0, 1, obj=BROKEN[len(area)], type=highspy.HighsVarType.kInteger)
        filled = model.addVariable(0, 1, obj=-BROKEN[len(area)], type=highspy.HighsVarType.kInteger)
        model.addConstr(inside <= site.free[area] * entered)
        model.addConstr(inside >= site.free[area] * filled)
        model.addConstr(filled <= entered)


def compare(sites: int) -> dict[str, float]:
    """Return the sums of both costs over random sites, and the worst ratio of one."""
    ours = best = worst = 0.0
    solved = left_out = 0
    for seed in range(sites):
        site, wishes = draw_site(seed)
        if not any(w.count for w in wishes):
            continue
        optimum = solve(site, wishes)
        if optimum is None:
            left_out += 1
            continue
        placement = place_tenants(site, wishes)
        assert sum(p.total() for p in placement.values()) == sum(w.count for w in wishes)
        cost = cost_placement(site, wishes, placement) - cost_placement(site, wishes, {})
        assert cost >= optimum - 1e-3, (seed, cost, optimum)
        ours, best, solved = ours + cost, best + optimum, solved + 1
        if optimum >= TOUCHED[UNIT]:
            worst = max(worst, cost / optimum)
        if seed % 25 == 0:
            sys.stderr.write(f"{seed} of {sites} sites\n")
    return {
        "over_optimum": round(ours / best, 4),
        "worst": round(worst, 3),
        "sites": solved,
        "left_out": left_out,
    }


def place_fleet(nodes: int) -> float:
    """Return the CPU seconds of placing 200 tenants on a fleet of which two thirds are free."""
    rng = random.Random(1)
    ready, total = Counter[Area](), Counter[Area]()
    for number in range(nodes):
        unit = number // 32
        rack: Area = (unit // 32, unit, ("leaves",), f"r{number % 32 // 4}")
        total[rack] += 1
        ready[rack] += rng.random() < 0.67
    wishes = [Wish(f"t{n}", rng.randint(1, nodes // 400)) for n in range(200)]
    started = time.process_time()
    place_tenants(Site(ready, Counter(), total), wishes)
    return time.process_time() - started


def main() -> None:
    sites = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 65_536
    compared = compare(sites)
    fleet_s = place_fleet(nodes)
    sys.stdout.write(
        f"{compared['over_optimum']} times the optimum; {nodes} nodes in {fleet_s:.1f} CPU s\n"
    )
    result = {
        **compared,
        "fleet_nodes": nodes,
        "fleet_cpu_s": round(fleet_s, 2),
        "highs": version("highspy"),
        **told(),
    }
    sys.stdout.write(f"{json.dumps(result)}\n")


if __name__ == "__main__":
    main()
