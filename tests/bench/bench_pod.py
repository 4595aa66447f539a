"""A new OS for all spines and superspines of 4,096 nodes in five stages, plane by plane.

    make bench NAME=pod                        (ARGS="--pods 2" for a smaller one)

The fabric is an address plan's: 16 pods of 8 scalable units of 32 nodes, two planes, 8 rails; 8
spines a pod and plane, and above each spine's number two superspines. The function that a running
campaign asks (`planning/rollout.decide`) drives it in virtual time; each switch takes 20 minutes
times 0.9 to 1.15 (the seed is fixed). Drain, install and reboot themselves are no part of it.

What carries on is counted here anew, by the cables and not by the campaign's groups: at each
moment every leaf has a spine and every spine a superspine, and of each plane at most one switch is
out. The campaign runs twice: with all switches in service, and with one superspine broken, whose
only neighbour has to stay until a person acts. The last line is JSON; exit code 1: a promise broke.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import this_machine

from provisioner.control.campaigns.campaign_facts import planes_of
from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignState,
    Canary,
    Limit,
    Policy,
    Wave,
)
from provisioner.model.node import Node, NodeKind
from provisioner.planning.campaigns.campaign_preview import Forecast, forecast_campaign
from provisioner.planning.places.address_plan import AddressPlan, Names, Widths
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports, SwitchPlace, Uplink, list_switch_groups

MINUTES = 20
UNITS, HOSTS, PLANES, SPINES, SUPERSPINES = 8, 32, 2, 8, 2
NAMES = Names(
    leaf="leaf-p{plane}-pod{pod}-su{unit}-r{number}",
    spine="spine-p{plane}-pod{pod}-{number}",
    superspine="superspine-p{plane}-{number}",
)
POLICY = Policy(
    canary=Canary(size=2, soak_s=3600),
    waves=(Wave(upto=Limit(percent=10), soak_s=1800), Wave()),
    failure_budget=Limit(count=1),
)


@dataclass(frozen=True)
class Fabric:
    nodes: tuple[CampaignNode, ...]
    above: Mapping[str, frozenset[str]]  # switch -> what its cables lead up to


def build(pods: int) -> Fabric:
    plan = AddressPlan(
        tiers=3, pods=pods, units=UNITS, nodes=HOSTS, planes=PLANES, spines=SPINES,
        superspines=SUPERSPINES, widths=Widths(plane=1, unit=7), names=NAMES,
    )  # fmt: skip
    ports = Ports(Addressing(plan))
    lower = [
        SwitchPlace(tier, pod, unit, number, plane)
        for tier, units, count in (("leaf", UNITS, plan.leaves), ("spine", 1, SPINES))
        for pod in range(pods)
        for unit in range(units)
        for number in range(count)
        for plane in range(PLANES)
    ]
    above: dict[str, frozenset[str]] = {}
    for place in lower:
        ends = [ports.find_uplink_ends(Uplink(place, n)) for n in range(ports.count_uplinks(place))]
        above[ends[0][0][0]] = frozenset(upper[0] for _, upper in ends)
    upper = sorted(frozenset().union(*above.values()))
    names = [*above, *(name for name in upper if name not in above)]
    switches = [
        CampaignNode(
            name=name,
            kind=NodeKind.SWITCH,
            selected=name in upper,
            planes=planes_of(Node(id=name, kind=NodeKind.SWITCH), plan),
            groups=list_switch_groups(name, plan),
            steps=1,
            resets=1,
            minutes=MINUTES,
        )
        for name in names
    ]
    hosts = [
        CampaignNode(
            name=f"node-{number:05d}",
            selected=False,
            unit=f"pod{number // (UNITS * HOSTS)}/su{number // HOSTS % UNITS}",
            tenant=f"tenant-{number // 256}",
            gpus=8,
        )
        for number in range(pods * UNITS * HOSTS)
    ]
    return Fabric((*hosts, *switches), above)


def measure(fabric: Fabric, broken: frozenset[str] = frozenset()) -> dict[str, Any]:
    """One campaign; what it took, and what was left at the worst moment."""
    chance = random.Random(7)
    lasts = {n.name: MINUTES * 60 * chance.uniform(0.9, 1.15) for n in fabric.nodes}
    facts = [
        n.model_copy(update={"in_service": False, "selected": False}) if n.name in broken else n
        for n in fabric.nodes
    ]
    campaign = Campaign(
        id="bench", release="os", select="kind=switch", policy=POLICY, state=CampaignState.STARTED
    )
    begun = time.process_time()
    seen = forecast_campaign(campaign, facts, 0.0, lasts_s=lambda n: lasts[n.name], grain_s=60)
    cpu_s = time.process_time() - begun
    planes = {n.name: n.planes for n in facts}
    held = {name: hold for name, hold in (seen.stuck | seen.held).items() if name not in seen.back}
    worst, most, cut = look(seen, fabric.above, planes, broken)
    return {
        "switches": sum(n.selected for n in facts),
        "done": len(seen.back),
        "held": len(held),
        "held_because": sorted({hold.why[:160] for hold in held.values()})[:3],
        "hours": round(seen.ends_at / 3600, 1),
        "decisions": seen.turns,
        "decision_cpu_ms": round(cpu_s * 1000 / max(1, seen.turns), 1),
        "uplinks_left_percent": round(worst * 100, 1),
        "out_of_a_plane": most,
        "cut_off": cut,
    }


def look(
    seen: Forecast,
    above: Mapping[str, frozenset[str]],
    planes: Mapping[str, Sequence[int]],
    broken: frozenset[str],
) -> tuple[float, int, int]:
    """Return the least share of uplinks that a switch had, the most switches of one plane that the
    campaign had out, and the switches that were cut off at some moment.
    """
    worst, most = 1.0, 0
    cut: set[str] = set()
    below: dict[str, list[str]] = {}
    for name, uppers in above.items():
        for upper in uppers:
            below.setdefault(upper, []).append(name)
    events = sorted(
        [(at, 1, name) for name, at in seen.began.items()]
        + [(at, 0, name) for name, at in seen.back.items()]
    )
    out: set[str] = set()
    for _, begins, name in events:
        if not begins:
            out.discard(name)
            continue
        out.add(name)
        most = max([most, *Counter(p for each in out for p in planes[each]).values()])
        for lower in below.get(name, ()):
            share = len(above[lower] - out - broken) / len(above[lower])
            worst = min(worst, share)
            cut |= {lower} if not share else set()
    return worst, most, len(cut)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=16)
    given = parser.parse_args()
    fabric = build(given.pods)
    whole = measure(fabric)
    superspine = min(n.name for n in fabric.nodes if any("spine number" in g for g in n.groups))
    hurt = measure(fabric, frozenset({superspine}))
    result: dict[str, Any] = {
        "nodes": sum(n.kind is NodeKind.HOST for n in fabric.nodes),
        "all_in_service": whole,
        "one_superspine_broken": {"broken": superspine, **hurt},
        **this_machine.told(),
    }
    result["ok"] = (
        whole["cut_off"] == hurt["cut_off"] == 0
        and whole["out_of_a_plane"] == 1
        and whole["done"] == whole["switches"]
        and 0 < hurt["held"] == hurt["switches"] - hurt["done"]
    )
    sys.stdout.write(json.dumps(result) + "\n")
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
