"""How long campaigns of 512 and 4,096 hosts last, against what their limits imply at least.

    python tests/bench/bench_campaign.py [hosts ...] [--worlds N]

The function that a running campaign asks (`planning/rollout.decide`) drives each fleet in virtual
time: 32 hosts in a scalable unit, 4 in a rack, eight rails; a tenth of them idle, the rest of eight
tenants of very different sizes; three hardware revisions of different work, and every node takes
0.9 to 1.15 times its estimate (the seed is fixed). The policy has canaries, two waves, soaks, and
limits for rack, scalable unit, tenant and fleet; one idle host is always kept. Notice is left out:
it would add the same days to both sides.

The bound is counted here anew, from the true durations: the waves come one after the other, each
with its soak, and none is shorter than its longest node, nor than the work in any domain divided by
how many of it may be out at once. Each size is measured twice: with racks within units, and with
racks that stand in two units. Then random small campaigns run under the checker of
`tests/planning/campaign_soak.py`. Prints a line for each fleet; the last line is JSON: the worst
ratio as `makespan_over_bound`, the CPU time of one decision, and of the random campaigns how many
stood still though a node could begin (`stood_still`) or broke a limit (`breaches`).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import floor
from pathlib import Path

import this_machine

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignState,
    Canary,
    Domain,
    Limit,
    Policy,
    TenantTerms,
    Wave,
)
from provisioner.planning.campaigns.campaign_moves import build_initial_rows
from provisioner.planning.campaigns.campaign_preview import Forecast, forecast_campaign
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.campaigns.waves import soak_s, waves_per_layer

sys.path.insert(0, str(Path(__file__).parents[1] / "planning"))
from campaign_soak import soak

FLEETS = (512, 4096)
WORLDS = 2000  # random campaigns; `make soak NAME=campaigns` runs 100,000
GRAIN_S = 60  # a daemon looks at a campaign once a minute, or when a node is done
POLICY = Policy(
    canary=Canary(size=5, soak_s=3600),
    waves=(Wave(upto=Limit(percent=10), soak_s=1800), Wave()),
    limits={
        Domain.RACK: Limit(percent=50),
        Domain.SCALABLE_UNIT: Limit(percent=25),
        Domain.TENANT: Limit(percent=15),
        Domain.TOTAL: Limit(percent=10),
    },
    tenants=TenantTerms(notice_s=0),
    free_kept=Limit(count=1),
)
TENANTS = ("a",) * 40 + ("b",) * 20 + ("c",) * 12 + ("d",) * 8 + ("e",) * 5 + ("f", "g", "h")
REVISIONS = (("A", 50), ("B", 70), ("C", 95))  # name, minutes


def fleet(hosts: int, chance: random.Random, *, crossing: bool = False) -> list[CampaignNode]:
    """Tenants have neighbouring hosts, as allocations do; every tenth host or so is idle."""
    found, tenant, left = [], "", 0
    for number in range(hosts):
        if not left:
            tenant, left = chance.choice(TENANTS), chance.randint(4, 64)
        left -= 1
        unit = number // 32
        revision, minutes = REVISIONS[chance.choices((0, 1, 2), (6, 3, 1))[0]]
        found.append(
            CampaignNode(
                name=f"node-{number:05d}",
                profile="hgx-h100-bf3",
                revision=revision,
                rack=f"r{(number + 2 * crossing) // 4}",
                unit=f"pod0/su{unit}",
                leaves=tuple(f"leaf-{unit}-{rail}" for rail in range(8)),
                tenant="" if chance.random() < 0.1 else tenant,
                gpus=8,
                steps=6,
                resets=2,
                minutes=minutes,
            )
        )
    return found


def bound_s(
    campaign: Campaign, facts: Sequence[CampaignNode], lasts: Mapping[str, float], seen: Forecast
) -> float:
    """What no schedule can be shorter than."""
    members: dict[tuple[str, str], int] = defaultdict(int)
    for node in facts:
        for key in _domains(node):
            members[key] += 1
    policy, waves = campaign.policy, defaultdict[int, list[CampaignNode]](list)
    for node in facts:
        waves[seen.waves[node.name]].append(node)
    total = 0.0
    for wave, nodes in waves.items():
        work: dict[tuple[str, str], float] = defaultdict(float)
        for node in nodes:
            for key in _domains(node):
                work[key] += lasts[node.name]
        longest = max(lasts[n.name] for n in nodes)
        total += max(longest, *(s / may(policy, key, members[key]) for key, s in work.items()))
        if wave % waves_per_layer(campaign.policy) != len(campaign.policy.waves):
            total += soak_s(campaign, wave)  # the last one's soak is no part of the makespan
    return total


def _domains(node: CampaignNode) -> list[tuple[str, str]]:
    owner = ("tenant", node.tenant) if node.tenant else ("idle", "")
    return [("rack", node.rack), ("scalable_unit", node.unit), ("total", ""), owner]


def may(policy: Policy, key: tuple[str, str], members: int) -> int:
    """How many of a domain may be out of service at once."""
    if key[0] == "idle":
        return members - 1
    percent = policy.limits[Domain(key[0])].percent
    assert percent is not None
    return max(1, floor(members * percent / 100 + 1e-9))


def measure(hosts: int, *, crossing: bool) -> dict[str, float]:
    """One fleet: makespan, bound, CPU time of a decision."""
    chance = random.Random(hosts)
    facts = fleet(hosts, chance, crossing=crossing)
    lasts = {n.name: n.minutes * 60 * chance.uniform(0.9, 1.15) for n in facts}
    campaign = Campaign(
        id="bench", release="new", select="all", policy=POLICY, state=CampaignState.STARTED
    )
    rows = build_initial_rows(campaign, facts)
    decide(campaign, facts, rows, (), 0.0)
    begun = time.process_time()
    decide(campaign, facts, rows, (), 0.0)
    once = time.process_time() - begun
    begun = time.process_time()
    seen = forecast_campaign(campaign, facts, 0.0, lasts_s=lambda n: lasts[n.name], grain_s=GRAIN_S)
    cpu = time.process_time() - begun
    assert len(seen.back) == hosts, (len(seen.back), list(seen.stuck.items())[:3])
    least = bound_s(campaign, facts, lasts, seen)
    hours = range(int(seen.ends_at // 3600) + 2)
    kind = "racks across units" if crossing else "racks within units"
    print(  # noqa: T201
        f"{hosts} hosts, {kind}: {seen.ends_at / 3600:.2f} h, "
        f"at least {least / 3600:.2f} h, "
        f"ratio {seen.ends_at / least:.4f}; {seen.turns} decisions, {cpu:.1f} s of CPU"
    )
    return {
        "hosts": hosts,
        "crossing": crossing,
        "makespan_h": round(seen.ends_at / 3600, 3),
        "bound_h": round(least / 3600, 3),
        "makespan_over_bound": round(seen.ends_at / least, 4),
        "decision_cpu_ms": round(once * 1000, 1),
        "decisions": seen.turns,
        "back_by_hour": [sum(b <= h * 3600 for b in seen.back.values()) for h in hours],
    }


def main() -> None:
    """Every fleet, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts", nargs="*", type=int, default=FLEETS)
    parser.add_argument("--worlds", type=int, default=WORLDS)
    given = parser.parse_args()
    fleets = [measure(n, crossing=c) for n in given.hosts for c in (False, True)]
    worst = max(f["makespan_over_bound"] for f in fleets)
    random_ones = soak(range(given.worlds))
    result = {"makespan_over_bound": worst, **random_ones, "fleets": fleets, **this_machine.told()}
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
