"""A new OS for all spines and superspines of 4,096 nodes in five stages, plane by plane.

    make bench NAME=pod                        (ARGS="--pods 2" for a smaller one)
    make bench NAME=pod ARGS=--leaves          (of the 2,048 leaves instead)

The fabric is an address plan's: 16 pods of 8 scalable units of 32 nodes, two planes, 8 rails; 8
spines a pod and plane, and above each spine's number two superspines. The function that a running
campaign asks (`planning/rollout.decide`) drives it in virtual time; each switch takes 20 minutes
times 0.9 to 1.15 (the seed is fixed). Drain, install and reboot themselves are no part of it.

What carries on is counted here anew, by the cables and not by the campaign's groups: at each
moment every leaf has a spine and every spine a superspine, and of each plane at most one switch is
out. The campaign runs twice: with all switches in service, and with one superspine broken, whose
only neighbour has to stay until a person acts.

With `--leaves` the leaves are upgraded: each takes a rail from the 32 hosts below it, which have to
be drained until it is back; all others serve with all their rails. The last line is JSON; exit
code 1: a promise broke.
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
from typing import Any, NoReturn

import this_machine

from provisioner.control.campaigns.campaign_facts import planes_of
from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignState,
    Canary,
    Domain,
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
    # a leaf takes an eighth of a tenant's hosts with it
    limits={Domain.TENANT: Limit(percent=25), Domain.TOTAL: Limit(percent=25)},
)


@dataclass(frozen=True)
class Fabric:
    nodes: tuple[CampaignNode, ...]
    above: Mapping[str, frozenset[str]]  # switch -> what its cables lead up to


def build(pods: int, *, leaves: bool = False) -> Fabric:
    """The whole fabric, in which all switches above the leaves are selected, or all leaves."""
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
    place_of: dict[str, SwitchPlace] = {}
    for place in lower:
        ends = [ports.find_uplink_ends(Uplink(place, n)) for n in range(ports.count_uplinks(place))]
        name = ends[0][0][0]
        above[name] = frozenset(upper[0] for _, upper in ends)
        if place.tier == "leaf":
            place_of[name] = place
    upper = sorted(frozenset().union(*above.values()))
    names = [*above, *(name for name in upper if name not in above)]
    switches = [
        CampaignNode(
            name=name,
            kind=NodeKind.SWITCH,
            selected=name in place_of if leaves else name in upper,
            unit=_name_unit(place_of.get(name)),
            rails=(place_of[name].number,) if name in place_of else (),
            planes=planes_of(Node(id=name, kind=NodeKind.SWITCH), plan),
            groups=list_switch_groups(name, plan),
            steps=1,
            resets=1,
            minutes=MINUTES,
        )
        for name in names
    ]
    leaves_of: dict[str, list[str]] = {}
    for name, place in place_of.items():
        leaves_of.setdefault(_name_unit(place), []).append(name)
    hosts = [
        CampaignNode(
            name=f"node-{number:05d}",
            selected=False,
            unit=(unit := f"pod{number // (UNITS * HOSTS)}/su{number // HOSTS % UNITS}"),
            leaves=tuple(leaves_of[unit]) if leaves else (),
            tenant=f"tenant-{number // 256}",
            gpus=8,
        )
        for number in range(pods * UNITS * HOSTS)
    ]
    return Fabric((*hosts, *switches), above)


def _name_unit(place: SwitchPlace | None) -> str:
    return "" if place is None else f"pod{place.pod}/su{place.unit}"


def _forecast(nodes: Sequence[CampaignNode]) -> tuple[Forecast, float]:
    """One campaign, and the CPU seconds of a decision."""
    chance = random.Random(7)
    lasts = {n.name: MINUTES * 60 * chance.uniform(0.9, 1.15) for n in nodes}
    campaign = Campaign(
        id="bench", release="os", select="kind=switch", policy=POLICY, state=CampaignState.STARTED
    )
    begun = time.process_time()
    seen = forecast_campaign(campaign, nodes, 0.0, lasts_s=lambda n: lasts[n.name], grain_s=60)
    return seen, (time.process_time() - begun) / max(1, seen.turns)


def measure(fabric: Fabric, broken: frozenset[str] = frozenset()) -> dict[str, Any]:
    """One campaign; what it took, and what was left at the worst moment."""
    facts = [
        n.model_copy(update={"in_service": False, "selected": False}) if n.name in broken else n
        for n in fabric.nodes
    ]
    seen, cpu_s = _forecast(facts)
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
        "decision_cpu_ms": round(cpu_s * 1000, 1),
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


def measure_leaves(fabric: Fabric) -> dict[str, Any]:
    """A campaign of all leaves: hosts that were not drained while a leaf of theirs was out, and
    the share of hosts that served at the worst moment.
    """
    seen, cpu_s = _forecast(fabric.nodes)
    hosts = [n for n in fabric.nodes if n.kind is NodeKind.HOST]
    below: dict[str, set[str]] = {}
    for host in hosts:
        for leaf in host.leaves:
            below.setdefault(leaf, set()).add(host.name)
    short = [n for leaf in seen.began for n in below[leaf] - set(seen.displaced[leaf])]
    planes = {n.name: n.planes for n in fabric.nodes}
    events = sorted(
        [(at, 1, name) for name, at in seen.began.items()]
        + [(at, 0, name) for name, at in seen.back.items()]
    )
    out: set[str] = set()
    most = drained = 0
    for _, begins, name in events:
        (out.add if begins else out.discard)(name)
        most = max([most, *Counter(p for leaf in out for p in planes[leaf]).values()])
        drained = max(drained, len(set().union(*(seen.displaced[leaf] for leaf in out))))
    return {
        "leaves": sum(n.selected for n in fabric.nodes),
        "done": len(seen.back),
        "held": len((seen.stuck.keys() | seen.held.keys()) - seen.back.keys()),
        "hours": round(seen.ends_at / 3600, 1),
        "decisions": seen.turns,
        "decision_cpu_ms": round(cpu_s * 1000, 1),
        "hosts_short_of_a_rail": len(short),
        "hosts_serving_percent": round(100 * (1 - drained / len(hosts)), 2),
        "out_of_a_plane": most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=16)
    parser.add_argument("--leaves", action="store_true")
    given = parser.parse_args()
    fabric = build(given.pods, leaves=given.leaves)
    nodes = {"nodes": sum(n.kind is NodeKind.HOST for n in fabric.nodes)}
    if given.leaves:
        tell(nodes | (found := measure_leaves(fabric)), ok=keeps_rails(found))
    whole = measure(fabric)
    superspine = min(n.name for n in fabric.nodes if any("spine number" in g for g in n.groups))
    hurt = measure(fabric, frozenset({superspine}))
    tell(
        {
            **nodes,
            "all_in_service": whole,
            "one_superspine_broken": {"broken": superspine, **hurt},
        },
        ok=whole["cut_off"] == hurt["cut_off"] == 0
        and whole["out_of_a_plane"] == 1
        and whole["done"] == whole["switches"]
        and 0 < hurt["held"] == hurt["switches"] - hurt["done"],
    )


def keeps_rails(found: dict[str, Any]) -> bool:
    whole = found["done"] == found["leaves"]
    return whole and not found["hosts_short_of_a_rail"] and found["out_of_a_plane"] == 1


def tell(found: dict[str, Any], *, ok: bool) -> NoReturn:
    sys.stdout.write(json.dumps({**found, **this_machine.told(), "ok": ok}) + "\n")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
