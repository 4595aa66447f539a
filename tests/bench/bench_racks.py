"""A firmware wave over 256 racks (NVL72) in virtual time, and again with 200 deaths of the daemon.

Every tray, NVLink switch and power shelf, from mixed versions. What runs is `provisioner rack plan`
and the plan's executor with its journal; the world, its durations (most of them limits and
assumptions, give or take 10 %) and the checker share no code with it. Not proved by it: the
daemon's own loops, any request to a BMC, real durations, and that a rack behaves like this one.
The bound is that of no order of these acts: the longest domain, and all work over each limit.
The last line is JSON; the exit code is 1 where a rule was broken or the bound is missed by 5 %.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "racks"))

from rack_checker import Checker, Row
from rack_lives import live
from rack_world import World, make_site, make_world

from provisioner.integrations.racks.campaign import CampaignFile, plan_campaign
from provisioner.integrations.racks.plan import RackPlan

RACKS = int(sys.argv[1]) if len(sys.argv) > 1 else 256
DEATHS = 200
RATIO_MAX = 1.05


def main() -> None:
    began = time.process_time()
    site, asked = make_site(RACKS, seed=44)
    campaign = plan_campaign(RackPlan.model_validate(site), CampaignFile.model_validate(asked))
    planned_s = time.process_time() - began
    checker = Checker(site, asked)
    alone, killed = make_world(site, asked), make_world(site, asked)
    finished = live(campaign, alone)[0].outcome().finished
    log = [Row(h.kind, h.on, h.begin_s, h.end_s) for h in alone.log]
    makespan, bound = max(row.end for row in log), checker.bound(log)
    steps = 6 * len(log)
    points = set(random.Random(44).sample(range(1, steps), DEATHS))
    execution, deaths = live(campaign, killed, points)
    violations = [*judge(checker, alone), *judge(checker, killed)]
    for each in violations[:10]:
        sys.stdout.write(f"{each}\n")
    same_end = execution.outcome().finished and killed.running == alone.running
    row = {
        "racks": RACKS,
        "units": len(checker.kind),
        "acts": len(log),
        "held": len(campaign.held),
        "makespan_h": round(makespan / 3600, 2),
        "bound_h": round(bound / 3600, 2),
        "ratio": round(makespan / bound, 4),
        "violations": len(violations),
        "deaths": deaths,
        "same_end_after_deaths": same_end,
        "plan_cpu_s": round(planned_s, 2),
        "cpu_s": round(time.process_time() - began, 1),
    }
    good = finished and same_end and not violations and not campaign.held
    row["ok"] = good and deaths == DEATHS and makespan <= RATIO_MAX * bound
    sys.stdout.write(json.dumps(row) + "\n")
    sys.exit(0 if row["ok"] else 1)


def judge(checker: Checker, world: World) -> list[str]:
    """Return each rule that was broken, each missed version and each second write."""
    return [
        *checker.find_violations([Row(h.kind, h.on, h.begin_s, h.end_s) for h in world.log]),
        *checker.find_missed(world.running),
        *checker.find_repeated(world.flashed),
    ]


if __name__ == "__main__":
    main()
