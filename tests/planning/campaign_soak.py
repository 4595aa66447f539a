"""Random campaigns in random fleets, judged by a checker that shares no code with the decision.

A world has hosts and leaves, domains that nest or cross, hosts in repair (for good, or for some
time), failures, notices, waves and canaries. After each decision the checker counts every domain
anew (`campaign_worlds.counts`) and looks for two faults: a limit that the decision broke, and a
campaign that stands still although a node may legally begin, or without saying why.

    python tests/planning/campaign_soak.py [WORLDS] [--from SEED]    # last line JSON
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from campaign_worlds import counts, keys, out_of

from provisioner.model.campaign import (
    SETTLED,
    Breaker,
    Campaign,
    CampaignNode,
    CampaignState,
    Canary,
    Decision,
    Domain,
    LeafHosts,
    Limit,
    NodeProgress,
    Policy,
    Progress,
    TenantTerms,
    Wave,
)
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_moves import (
    apply_decision,
    build_initial_rows,
    record_failure,
    start_soak,
)
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.campaigns.waves import waves_per_layer

FAULT = Blocker(reason=Reason.UPDATE_FAILED, subject="hgx.bmc", detail="x", unblock="y")
HOUR_S = 3600.0
TURNS_MAX = 2000
Rows = dict[str, NodeProgress]
Counted = dict[tuple[str, object], int]


@dataclass
class World:
    """A fleet, a campaign, and the future of each node."""

    campaign: Campaign
    facts: dict[str, CampaignNode]
    repaired_at: dict[str, float]  # nodes that come back into service by themselves
    fails: set[str]
    rows: Rows = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    now: float = 1000.0
    most: Counted = field(default_factory=dict)  # by domain: how many may be out of service
    domains: dict[str, list[tuple[str, object]]] = field(default_factory=dict)  # by node

    def __post_init__(self) -> None:
        facts = list(self.facts.values())
        allowed = counts(facts, {}, self.campaign.policy)
        self.most = {key: most for key, (_, most) in allowed.items()}
        self.domains = {n.name: keys(n) for n in facts}

    def count_out(self, rows: Rows) -> Counted:
        """Return how many nodes of each domain are out of service."""
        out, with_drained = out_of(list(self.facts.values()), rows, self.campaign.policy)
        counted: Counted = dict.fromkeys(self.most, 0)
        for name in with_drained:
            for key in self.domains[name]:
                counted[key] += name in out or key[0] in ("host.tenant", "host.total")
        return counted


def make_world(chance: random.Random) -> World:
    """Return a random world; its domains cross in one of four."""
    crossing = chance.random() < 0.25
    racks = chance.choice((1, 2, 3, 4, 6))
    per_unit = chance.choice((2, 4, 8, 16))
    facts: dict[str, CampaignNode] = {}
    for number in range(chance.randint(2, 40)):
        unit = number // per_unit
        rack = (number + (racks // 2 if crossing else 0)) // racks
        if not crossing:
            rack = number % per_unit // racks + 100 * unit
        facts[f"h{number:02d}"] = CampaignNode(
            name=f"h{number:02d}",
            selected=chance.random() < 0.9,
            rack=f"r{rack}",
            unit=f"su{unit}",
            leaves=(f"l{unit}-0", f"l{unit}-1"),
            tenant=chance.choice(("", "", "a", "b")),
            profile=chance.choice(("p", "p", "q")),
            revision=chance.choice(("A", "B")),
            in_service=chance.random() < 0.85,
            minutes=chance.randint(5, 90),
            steps=1,
        )
    for unit in sorted({n.unit for n in facts.values()}) if chance.random() < 0.3 else ():
        for rail in range(2):
            name = f"l{unit[2:]}-{rail}"
            facts[name] = CampaignNode(
                name=name,
                kind=NodeKind.SWITCH,
                selected=chance.random() < 0.7,
                unit=unit,
                rails=(rail,),
                in_service=chance.random() < 0.9,
                minutes=20,
                steps=1,
            )
    campaign = Campaign(
        id="c", release="new", select="all", policy=_policy(chance), state=CampaignState.STARTED
    )
    names = list(facts)
    world = World(
        campaign,
        facts,
        {
            n: 1000.0 + chance.uniform(0, 40) * HOUR_S
            for n in names
            if not facts[n].in_service and chance.random() < 0.5
        },
        {n for n in names if chance.random() < 0.05},
    )
    world.rows = build_initial_rows(campaign, list(facts.values()))
    return world


def _limit(chance: random.Random) -> Limit:
    if chance.random() < 0.5:
        return Limit(count=chance.choice((1, 1, 2, 3, 5, 0 if chance.random() < 0.1 else 4)))
    return Limit(percent=chance.choice((5, 10, 25, 33.3, 50, 100)))


def _policy(chance: random.Random) -> Policy:
    domains = (Domain.RACK, Domain.SCALABLE_UNIT, Domain.LEAF, Domain.TENANT, Domain.TOTAL)
    plain = chance.random() < 0.3
    waves = (Wave(),) if plain else (Wave(upto=Limit(percent=30), soak_s=300), Wave())
    return Policy(
        canary=Canary(size=0 if plain else chance.randint(0, 4), soak_s=600, failures=99),
        waves=waves,
        limits={d: _limit(chance) for d in domains if chance.random() < 0.5},
        switch_limits={Domain.TOTAL: _limit(chance)} if chance.random() < 0.3 else {},
        failure_budget=Limit(percent=100),
        breaker=Breaker(of_last=100, failures=100, same_reason=100),
        free_kept=Limit(count=chance.choice((0, 0, 1))),
        leaf_hosts=chance.choice(tuple(LeafHosts)),
        tenants=TenantTerms(notice_s=chance.choice((0, 7200))),
        standstill_max_s=chance.choice((6 * 3600, 24 * 3600)),
    )


def run_world(world: World) -> tuple[str, list[str]]:
    """Return how the campaign ended, and the checker's findings."""
    findings: list[str] = []
    for _ in range(TURNS_MAX):
        facts = list(world.facts.values())
        before = world.count_out(world.rows)
        decision = decide(world.campaign, facts, world.rows, (), world.now)
        findings += _find_standing(world, decision)
        world.rows |= apply_decision(decision, world.rows, world.now)
        findings += [
            f"breach: {key}: {out} of {world.most[key]}"
            for key, out in world.count_out(world.rows).items()
            if out > world.most[key] and out > before[key]
        ]
        if decision.finished or decision.stop:
            return ("stopped" if decision.stop else "finished"), findings
        still_since = (world.campaign.still_since or world.now) if decision.standstill else 0.0
        world.campaign = world.campaign.model_copy(update={"still_since": still_since})
        for admit in decision.admit:
            world.ends[admit.node] = world.now + world.facts[admit.node].minutes * 60
        if not _pass_time(world, decision):
            findings.append("no next look, nothing under way, and no end")
            return "lost", findings
    return "endless", [*findings, "it does not end"]


def _pass_time(world: World, decision: Decision) -> bool:
    """Go to the next moment at which anything happens; False if none will."""
    times = [*world.ends.values(), *world.repaired_at.values()]
    times += [decision.next_look_at] if decision.next_look_at else []
    if not times:
        return False
    world.now = max(world.now, min(times))
    for name in [n for n, at in world.ends.items() if at <= world.now]:
        del world.ends[name]
        row = world.rows[name]
        if name in world.fails:
            world.rows[name] = record_failure(row, FAULT, world.now)
            world.facts[name] = world.facts[name].model_copy(update={"in_service": False})
        else:
            world.rows[name] = start_soak(row, world.now)
    for name in [n for n, at in world.repaired_at.items() if at <= world.now]:
        del world.repaired_at[name]
        world.facts[name] = world.facts[name].model_copy(update={"in_service": True})
    return True


def _find_standing(world: World, decision: Decision) -> list[str]:
    """Return the faults of a turn in which no node begins."""
    over = decision.finished or decision.stop or decision.admit
    changes = decision.done or decision.fail or decision.skip or decision.notices
    if over or changes or decision.next_look_at == world.now:
        return []
    rows = world.rows.values()
    if any(p.state in (Progress.ADMITTED, Progress.SOAKING) for p in rows):
        mine = [p.node for p in rows if p.wave <= decision.wave and _may_go(world, p)]
        return [f"{n} of the open wave may begin, and does not" for n in mine[:1]]
    findings = []
    if not decision.standstill and not any(h.until > world.now for h in decision.hold.values()):
        findings.append("it stands still and does not say why")
    waves = sorted({p.wave for p in rows})
    for wave in waves:
        here = [p for p in rows if p.wave == wave]
        if may := [p.node for p in here if _may_go(world, p)]:
            findings.append(f"{may[0]} of wave {wave} may begin, and nothing is under way")
            break
        if any(p.state not in SETTLED and _waits_for_time(world, p) for p in here):
            break
        canaries = wave % waves_per_layer(world.campaign.policy) == 0
        if canaries and not any(p.state is Progress.DONE for p in here):
            break  # canaries that were not tried bar the waves behind them
    return findings


def _waits_for_time(world: World, p: NodeProgress) -> bool:
    return p.earliest_at > world.now or p.deferred_until > world.now


def _may_go(world: World, p: NodeProgress) -> bool:
    """Return whether a node may begin alone, by the counts of every domain."""
    node = world.facts[p.node]
    waiting = (Progress.PENDING, Progress.NOTIFIED, Progress.DEFERRED)
    if p.state not in waiting or not node.in_service or _waits_for_time(world, p):
        return False
    below = [n for n in world.facts.values() if node.name in n.leaves]
    tenants = {node.tenant} if node.kind is NodeKind.HOST else {n.tenant for n in below}
    if not {t for t in tenants if t} <= set(p.told):
        return False
    under = {q.node for q in world.rows.values() if q.state is Progress.ADMITTED}
    if under & {*node.leaves, *(n.name for n in below)}:
        return False
    before = world.count_out(world.rows)
    begun = {p.node: p.model_copy(update={"state": Progress.ADMITTED})}
    after = world.count_out(world.rows | begun)
    return all(out <= world.most[key] or out == before[key] for key, out in after.items())


def soak(seeds: Sequence[int]) -> dict[str, object]:
    """Return the sum over the worlds of these seeds."""
    stood, breaches, ended, first = 0, 0, dict.fromkeys(("finished", "stopped"), 0), []
    for seed in seeds:
        end, findings = run_world(make_world(random.Random(seed)))
        breaches += any(f.startswith("breach") for f in findings)
        stood += any(not f.startswith("breach") for f in findings)
        ended[end] = ended.get(end, 0) + 1
        if findings and len(first) < 10:
            first.append(f"seed {seed}: {findings[0]}")
    return (
        {"worlds": len(seeds), "stood_still": stood, "breaches": breaches}
        | ended
        | {"first": first}
    )


def main() -> None:
    """Run the worlds, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="?", type=int, default=100_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    given = parser.parse_args()
    print(json.dumps(soak(range(given.first, given.first + given.worlds))))  # noqa: T201


if __name__ == "__main__":
    main()
