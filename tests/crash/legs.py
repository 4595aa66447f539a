"""The legs of the journey: what begins each, when it is over, and what must hold then.

To tenant blue; taken back, every disk erased, to tenant red; a fault that the third rung of the
ladder cures, with red's node taken for it and brought back; a campaign to the next release; parts
that people exchange (`exchange.py`). In a journey of its own, behind the first leg, others hurt the
site (`hurts.py`); in a third one the daemon is far from what it works with. Judged by the
simulator's log, the ledger and the journal, apart from the code that carries a leg out, and at each
moment by `port_judge.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import exchange
import hurts
import next_release
from acts import repeated
from hurt_world import HurtWorld
from losing import LosingBmcs, LosingSwitches, Loss
from returned import HOST, SECRET, node_of
from rig import MATRIX, RESTING, World
from test_erasure_crashes import wrongs
from test_journeys import misdeeds

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.context import Context
from provisioner.daemon.data import read_matrix
from provisioner.integrations.sim.site.control import inject_fault
from provisioner.model.campaign import CampaignState, Policy
from provisioner.model.case import Case, Ending, Stage
from provisioner.model.node import Node, State
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.tenant import Tenant
from provisioner.planning.lifecycle.operator_requests import reclaim_node

FAULT = "queue_stuck_until_reflash"
LADDER = [("rerun", "same"), ("cold_boot", "same"), ("reflash", "cured")]
NOTICE_S = 3600.0
POLICY = {
    "canary": {"size": 1, "soak_s": 600},
    "waves": [{}],
    "tenants": {"notice_s": NOTICE_S},
    "allow_irreversible": True,
}


@dataclass(frozen=True)
class Leg:
    """`over`: None while it lasts, then what went wrong, or "". `judge`: from this time on."""

    name: str
    during: str  # told beside the node's state: the same line is another point then
    begin: Callable[[HurtWorld], Awaitable[None]]
    over: Callable[[HurtWorld], Awaitable[str | None]]
    judge: Callable[[HurtWorld, float], Awaitable[list[str]]]


def made(directory: Path, kind: type[HurtWorld] = HurtWorld) -> HurtWorld:
    """The site of the journey, before its first daemon."""
    world = kind(
        directory,
        nodes=1,
        seed=5,
        files=exchange.FILES,
        erase_same_tenant_may_skip=True,  # else the legs behind "red" would erase as it does
        repair_resets_per_day=12,  # legs follow each other within a day
    )
    loss = Loss()
    world.transport = LosingBmcs(world.services, world.wire, loss)
    world.switches = LosingSwitches(world.site, world.wire, loss)
    next_release.offer(world.files)
    return world


async def slow(world: World, leg: Leg) -> str:
    """Why a leg did not end, or did not stay so."""
    node = await node_of(world)
    return f"{leg.name} is not over: {HOST} is {node.state}, {node.note}"


# --- to a tenant


async def _to_blue(world: World) -> None:
    await _want(world, "blue")


async def _to_red(world: World) -> None:
    """Its disks are full of what the first tenant left."""
    await _want(world, "red")
    for disk in world.site.machines[HOST].disks.values():
        disk.content, disk.holds = SECRET, "tenant"
    back = reclaim_node(await node_of(world), world.clock.now())
    assert isinstance(back, Node)
    await world.store.nodes.save(back)


def _released_to(tenant: str) -> Callable[[World], Awaitable[str | None]]:
    async def over(world: World) -> str | None:
        node = await node_of(world)
        if node.state is State.RELEASED and node.tenant == tenant:
            # a death may hold up a spine, which the host needs not wait for
            rest = {n.state for n in await world.store.nodes.list()} <= set(RESTING)
            return "" if rest else None
        if node.state in (State.QUARANTINED, State.REPAIRING):
            return f"{HOST} did not come to {tenant}: {node.state}, {node.note}"
        return None

    return over


async def _served_first(world: World, _since: float) -> list[str]:
    return await misdeeds(world) + await _cases(world, 0)


async def _served_clean(world: World, since: float) -> list[str]:
    machine = world.site.machines[HOST]
    rows = [r for r in await world.store.operations.list_entries(HOST) if r.intended_at >= since]
    wrong = wrongs([e for e in machine.log if e.time >= since], rows) + await _cases(world, 0)
    left = [d for d in machine.disks if SECRET in machine.disks[d].content]
    wrong += [f"{disk} still has the first tenant's data" for disk in left]
    return wrong + await world.violations()


async def _want(world: World, tenant: str) -> None:
    for known in await world.store.tenants.list():
        asked = 1 if known.name == tenant else 0
        changed = Tenant(**{**known.model_dump(), "nodes_wanted": asked})
        await world.store.tenants.put(changed)


# --- a repair


async def _break(world: World) -> None:
    inject_fault(world.site, FAULT, HOST, "")
    await exchange.reported(world, "a rail stands still")


async def _repaired(world: World) -> str | None:
    (case,) = await world.store.cases.list(HOST)
    if case.stage is Stage.HARDWARE:
        return f"people were asked: {case.note}"
    serves = (await node_of(world)).state is State.RELEASED
    return "" if not case.open and serves else None


async def _mended(world: World, since: float) -> list[str]:
    wrong = await _cases(world, 1) + await _sound(world, since)
    case = (await world.store.cases.list(HOST))[0]
    tried = [(t.remedy.value, t.outcome.value) for t in case.tries]
    if tried != LADDER or case.ending is not Ending.CURED:
        wrong.append(f"it was tried: {tried}, {case.ending}")
    told = Counter(
        (str(r["kind"]), str(r["detail"].get("remedy", "")))
        for r in await world.store.journal.list(limit=100_000)
        if str(r["kind"]).startswith("case_") and r["detail"].get("case") == case.id
    )
    once = [k for k in told if k[0] in ("case_opened", "case_remedy", "case_done", "case_closed")]
    wrong += [f"{kind} {what} was told {told[kind, what]} times" for kind, what in once
              if told[kind, what] > 1]  # fmt: skip
    if ("case_closed", "") not in once:
        wrong.append("its end was not told")
    done = Counter(
        (r.action, _why(r))
        for r in await world.store.operations.list_entries(HOST)
        if case.id in _why(r) and r.status is ActionStatus.CONFIRMED
    )
    if len(done) != 3:
        wrong.append(f"remedies are two cold boots and one image: {sorted(done)}")
    return wrong + [f"{' '.join(k)} was carried out {n} times" for k, n in done.items() if n > 1]


def _why(row: LedgerEntry) -> str:
    step = row.before.get("step", {})  # a visit to the maintenance environment has none
    return str(step.get("reason", ""))


async def _cases(world: World, number: int) -> list[str]:
    """Cases that should not have been opened, or not so often."""
    cases: Sequence[Case] = await world.store.cases.list(HOST)
    return [] if len(cases) == number else [f"cases: {[(c.id, c.reason) for c in cases]}"]


# --- a campaign


async def _campaign(world: World) -> None:
    requests = _requests(world)
    policy = Policy.model_validate(POLICY)
    drawn = await requests.create(next_release.NEXT, "kind=host", policy)
    assert drawn.campaign is not None, drawn.blockers
    found = await requests.survey(drawn.campaign)
    steps = sorted({s for r in found.rows for s in r.facts.one_way})
    begun = await requests.start(drawn.campaign.id, "ann", steps)
    assert begun.blockers == (), begun.blockers


def _requests(world: World) -> CampaignRequests:
    matrix = read_matrix([MATRIX, world.files.overlay])
    book = world.store.campaigns
    return CampaignRequests(Context(world.store, world.clock, world.settings), book, matrix)


async def _ended(world: World) -> str | None:
    (campaign,) = await world.store.campaigns.list()
    if campaign.state is CampaignState.STARTED:
        return None
    done = campaign.state is CampaignState.DONE
    return "" if done and not campaign.reason else f"it ended {campaign.state}: {campaign.reason}"


async def _upgraded(world: World, since: float) -> list[str]:
    wrong = await _sound(world, since) + await _cases(world, 1)
    node = await node_of(world)
    if (node.state, node.release) != (State.RELEASED, next_release.NEXT):
        wrong.append(f"{HOST} is {node.state} with {node.release}: {node.note}")
    admitted = [
        (str(r["node"]), float(r["at"]))
        for r in await world.store.journal.list(limit=100_000)
        if r["kind"] == "campaign_node" and r["detail"]["progress"] == "admitted"
    ]
    if [name for name, _ in admitted] != [HOST]:
        wrong.append(f"admitted: {admitted}")
    told = [n for n in await world.store.cases.list_notices("red") if n.at >= since]
    if [n.kind for n in told] != ["maintenance"]:
        wrong.append(f"red was told: {[n.text for n in told]}")
    elif any(at < told[0].at + NOTICE_S for _, at in admitted):
        wrong.append("its tenant had less than the notice")
    return wrong


async def _sound(world: World, since: float) -> list[str]:
    """Whatever must never be so, from then on."""
    wrong = await world.violations()
    for node in await world.store.nodes.list():
        wrong += repeated(
            world.site, node.id, await world.store.operations.list_entries(node.id), since
        )
        if any(b.reason.value == "our_bug" for b in node.blockers):
            wrong.append(f"{node.id} was parked: {node.blockers[0]}")
    host = await node_of(world)
    if host.tenant != "red" or await world.store.evidence.get_proof(HOST) is None:
        wrong.append(f"{HOST} is with tenant '{host.tenant}', or has no proof")
    return wrong


# --- parts are exchanged


async def _exchanged(world: World, since: float) -> list[str]:
    return await exchange.wrong(world) + await _sound(world, since) + await _cases(world, 2)


LEGS = (
    Leg("blue", "", _to_blue, _released_to("blue"), _served_first),
    Leg("red", "", _to_red, _released_to("red"), _served_clean),
    Leg("repair", ", in a case", _break, _repaired, _mended),
    Leg("upgrade", ", in a campaign", _campaign, _ended, _upgraded),
    Leg("exchange", ", in a case", exchange.begin, exchange.over, _exchanged),
)
# another journey, whose first leg is died in on the first one
HURT_LEGS = (
    LEGS[0],
    Leg("hands", ", under hands", hurts.begin_hands, hurts.end_hands, hurts.judge_hands),
    Leg("lapses", ", under lapses", hurts.begin_lapses, hurts.end_lapses, hurts.judge_lapses),
    Leg("restored", ", restored", hurts.begin_restored, hurts.end_restored, hurts.judge_restored),
    Leg("misread", ", misread", hurts.begin_misread, hurts.end_misread, hurts.judge_misread),
)
# and one whose daemon is far from its database, or from a half of its devices
FAR_LEGS = (
    LEGS[0],
    Leg("slow", ", far away", hurts.begin_slow, hurts.end_slow, hurts.judge_slow),
    Leg("half-reach", ", half reached", hurts.begin_reach, hurts.end_reach, hurts.judge_reach),
)
JOURNEYS = (LEGS, HURT_LEGS, FAR_LEGS)
NAMES = tuple(dict.fromkeys(leg.name for legs in JOURNEYS for leg in legs))


def journey_to(name: str) -> tuple[Leg, ...]:
    """The first journey that has this leg."""
    return next(legs for legs in JOURNEYS if name in {leg.name for leg in legs})
