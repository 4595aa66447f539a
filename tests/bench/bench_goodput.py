"""Effective training time of 16,384 GPUs over a year, by policy: the frontier of spares.

    make bench NAME=goodput                    (ARGS="--days 30" for a quick one)

`goodput_year.py` plays the faults of one synchronous job on 2,048 hosts. Rates: Meta's Llama 3
paper (419 unexpected interruptions in 54 days on 16,384 GPUs, by cause) and Meta's RSC-1 (6.50
failures of 1,000 node-days, the same causes). The planners of this program choose spares, remedies
and tests; `forecast_campaign` gives the time for which an upgrade of all hosts at once stops the
job. What they do not decide is stated on the first line: the job's own restart and checkpoints,
and the hours until people have worked on a host.

Each policy is played at two bounds, because nobody publishes how often which remedy cures: the
first one always does, or nothing does but people. The frontier lists the policies that no other
beats with as few spares; the last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys

import bench_campaign
import this_machine
from goodput_year import DAY_S, NODES, Policy, Times, Year, list_rates, play_year

from provisioner.model.campaign import Campaign, CampaignState, Canary, Limit, Wave
from provisioner.planning.campaigns.campaign_preview import forecast_campaign

DEMANDED = 0.97
PLACE_S = 160.0  # `make bench NAME=mttr`: the whole journey of a spare, in virtual time
SPARES = (0, 1, 2, 3, 4)
CHECKPOINTS_S = (60.0, 300.0)
GATES = ("ab", "abcd")


def forecast_standstill(hosts: int) -> float:
    """Seconds for which an upgrade of all hosts stops the job: one canary unit, then all."""
    whole = Limit(percent=100.0)
    policy = bench_campaign.POLICY.model_copy(
        update={
            "canary": Canary(size=0),
            "waves": (Wave(upto=whole),),
            "limits": {},
            "free_kept": Limit(count=0),
        }
    )
    campaign = Campaign(
        id="year", release="new", select="all", policy=policy, state=CampaignState.STARTED
    )
    facts = bench_campaign.fleet(hosts, random.Random("goodput"))
    told = forecast_campaign(campaign, facts, 0.0, grain_s=60.0)
    assert len(told.back) == hosts, told.stuck
    return told.ends_at


def describe(policy: Policy, year: Year) -> dict[str, float | str]:
    """The figures of a policy."""
    return {
        "spares_per_unit": policy.spares,
        "spares": year.spares,
        "gates": policy.gates,
        "checkpoint_s": policy.checkpoint_s,
        "effective": round(year.effective, 4),
        "mttr_s": round(year.mttr_s),
        "faults": year.faults,
        "without_spare": year.waits,
        "test_host_hours": round(year.test_s / 3600),
    }


def find_frontier(played: list[dict[str, float | str]]) -> list[dict[str, float | str]]:
    """The policies that none with at most as many spares beats."""
    frontier: list[dict[str, float | str]] = []
    for one in sorted(played, key=lambda p: (p["spares"], -float(p["effective"]))):
        if not frontier or float(one["effective"]) > float(frontier[-1]["effective"]):
            frontier.append(one)
    return frontier


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--days", type=float, default=365.0)
    parser.add_argument("--restart-s", type=float, default=60.0, help="the tenant's")
    parser.add_argument("--write-s", type=float, default=0.5, help="the tenant's: of a checkpoint")
    parser.add_argument("--remedy-s", type=float, default=600.0, help="a reset or cold boot")
    parser.add_argument("--people-h", type=float, default=24.0, help="until people have worked")
    parser.add_argument("--campaigns", type=int, default=4, help="upgrades of all hosts a year")
    options = parser.parse_args()
    times = Times(
        place_s=PLACE_S,
        restart_s=options.restart_s,
        write_s=options.write_s,
        remedy_s=options.remedy_s,
        people_s=3600 * options.people_h,
    )
    standstill_s = forecast_standstill(NODES)
    length_s = options.days * DAY_S
    campaigns = [standstill_s] * round(options.campaigns * options.days / 365)
    say(
        f"stated, not ours: restart {times.restart_s:.0f} s, {times.write_s} s for a checkpoint, "
        f"a remedy {times.remedy_s:.0f} s, people {options.people_h:.0f} h, {len(campaigns)} "
        f"campaigns; from the planners: a campaign {standstill_s / 3600:.1f} h, spares, remedies, "
        f"tests; measured: a spare serves after {PLACE_S:.0f} s"
    )
    figures: dict[str, object] = {"gpus": 8 * NODES, "days": options.days}
    for source, first in itertools.product(("llama", "rsc"), (False, True)):
        played = []
        for spares, gap_s, gates in itertools.product(SPARES, CHECKPOINTS_S, GATES):
            policy = Policy(spares, gap_s, gates)
            year = play_year(
                policy,
                times,
                list_rates(source),
                campaigns,
                first_cures=first,
                length_s=length_s,
            )
            played.append(describe(policy, year))
        bound = "the first remedy cures" if first else "nothing cures but people"
        say(f"rates of {source}, {bound}:")
        for one in find_frontier(played):
            say("  " + ", ".join(f"{key} {value}" for key, value in one.items()))
        best = find_frontier(played)[-1]
        enough = [p for p in find_frontier(played) if float(p["effective"]) >= DEMANDED]
        figures[f"{source}_{'first' if first else 'people'}"] = best | {
            "reaches_0.97_with_spares": enough[0]["spares"] if enough else None
        }
    say(json.dumps(figures | this_machine.told()))


if __name__ == "__main__":
    main()
