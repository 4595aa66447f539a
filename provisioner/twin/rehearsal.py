"""A campaign, rehearsed: the same policy and the same code on a twin, in virtual time.

Nothing of the fleet is touched: its rows are read, and the twin has a store of its own.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.campaigns.campaign_survey import picked
from provisioner.model.campaign import Campaign, CampaignState
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.matrix import Matrix
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns import waves
from provisioner.planning.campaigns.campaign_report import Report, report
from provisioner.ports import Store
from provisioner.settings import Settings
from provisioner.sim.site.truth import truth
from provisioner.twin.loop import run
from provisioner.twin.recorded import simulated
from provisioner.twin.site import Recorded, Twin

LOOK_S = 600.0  # of virtual time, between two looks at how far it is
LIMIT_S = 60 * 86_400.0  # of virtual time: notice, deferrals and windows have their place


@dataclass(frozen=True)
class Rehearsed:
    """What came of it. `assumed`: what the twin does not have as the fleet has it, in sentences."""

    report: Report
    hosts: int  # in the twin
    of: int  # that the campaign selects
    assumed: tuple[str, ...]
    blockers: tuple[Blocker, ...] = ()  # why it did not even begin
    violations: tuple[str, ...] = ()  # what must never happen and did, by the simulator's truth


def document(found: Rehearsed) -> dict[str, object]:
    """It as JSON's values."""
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    blockers = [b.model_dump(mode="json") for b in found.blockers]
    return fields | {"report": found.report.model_dump(mode="json"), "blockers": blockers}


async def record(
    store: Store, campaign: Campaign, facts: Sequence[str], most: int
) -> tuple[Recorded, int]:
    """What the store knows of at most `most` of the campaign's hosts, and of their leaves."""
    nodes = await store.nodes()
    chosen = [n for n in picked(campaign.select, nodes) if n.kind is NodeKind.HOST]
    order = {name: number for number, name in enumerate(facts)}
    hosts = sorted(chosen, key=lambda n: (order.get(n.id, len(order)), n.id))[:most]
    beside = {p.switch for n in hosts for p in n.ports}
    mine = [*hosts, *(n for n in nodes if n.id in beside)]
    inventories = {n.id: i for n in mine if (i := await store.inventory(n.id)) is not None}
    return Recorded(mine, inventories, await store.tenants()), len(chosen)


async def prepared(
    store: Store, campaign: Campaign, rows: Sequence[CampaignRow], most: int
) -> tuple[Recorded, int]:
    """What is to be rehearsed: those hosts first that would begin first."""
    numbers = waves.assign(campaign, [r.facts.model_copy(update={"name": r.node}) for r in rows])
    order = sorted(numbers, key=lambda name: (numbers[name], name))
    return await record(store, campaign, order, most)


def rehearse(
    campaign: Campaign,
    recorded: Recorded,
    of: int,
    matrix: Matrix,
    settings: Settings,
    told: Callable[[float, Report], None] = lambda _s, _r: None,
) -> Rehearsed:
    """Run the campaign on a twin, to its end. Takes some two seconds of a core for each host."""
    with tempfile.TemporaryDirectory(prefix="twin-") as folder:
        return run(_rehearsed(campaign, recorded, of, matrix, settings, Path(folder), told))


async def _rehearsed(
    campaign: Campaign,
    recorded: Recorded,
    of: int,
    matrix: Matrix,
    settings: Settings,
    folder: Path,
    told: Callable[[float, Report], None],
) -> Rehearsed:
    made = simulated(matrix, tuple({campaign.release, campaign.baseline}))
    twin = Twin(recorded, made, settings, folder)
    try:
        await twin.start(campaign.baseline)
        lost = await twin.settled()
        assumed = _assumed(twin, [n.id for n in lost])
        requests = CampaignRequests(twin.store, twin.book, twin.clock, twin.settings, made.matrix)
        select = _select(campaign, twin)
        draft = await requests.create(campaign.release, select, campaign.policy, "rehearsal")
        hosts = sum(n.kind is NodeKind.HOST for n in recorded.nodes)
        if draft.campaign is None:
            return Rehearsed(_named(report(campaign, ()), twin), hosts, of, assumed, draft.blockers)
        found = await requests.survey(draft.campaign)
        steps = sorted({s for r in found.rows for s in r.facts.one_way})
        begun = await requests.start(draft.campaign.id, "rehearsal", steps)
        began = twin.clock.now()
        while not begun.blockers and twin.clock.now() - began < LIMIT_S:
            await twin.clock.sleep(LOOK_S)
            now = await requests.known(draft.campaign.id)
            told(
                twin.clock.now() - began,
                report(now, await twin.book.campaign_rows(draft.campaign.id)),
            )
            if now.state is not CampaignState.STARTED:
                break
        ended = await requests.known(draft.campaign.id)
        rows = await twin.book.campaign_rows(draft.campaign.id)
        final = report(ended.model_copy(update={"id": campaign.id}), rows)
        seen = truth(twin.site)
        wrong = tuple(str(v) for v in (*seen["violations"], *seen["switch_outages"]))
        return Rehearsed(_named(final, twin), hosts, of, assumed, begun.blockers, wrong)
    finally:
        await twin.close()


def _select(campaign: Campaign, twin: Twin) -> str:
    """The campaign's own nodes by their twins' names."""
    mine = {n.id for n in picked(campaign.select, twin.recorded.nodes)}
    twins = [twin.names.twin[n] for n in sorted(mine) if n in twin.names.twin]
    return f"node={','.join(twins)}"


def _assumed(twin: Twin, lost: Sequence[str]) -> tuple[str, ...]:
    said = [
        "tests among nodes (gate C) are left out, and nobody's disks are erased",
        "measurements are the simulator's own: a regression is not foreseen",
    ]
    if twin.unlike:
        said.append(f"recorded and not simulated: {', '.join(twin.unlike)}")
    away = [n.id for n in twin.recorded.nodes if n.state is State.QUARANTINED]
    if away:
        said.append(f"quarantined in truth, sound in the twin: {', '.join(sorted(away))}")
    back = twin.names.recorded
    said += [f"the twin of {back.get(n, n)} did not come into service" for n in sorted(lost)]
    return tuple(said)


def _named(found: Report, twin: Twin) -> Report:
    """A report with the names of the fleet, and times from the start of the campaign on."""
    back = twin.names.recorded
    return found.model_copy(
        update={
            "left": tuple(
                item.model_copy(update={"node": back.get(item.node, item.node)})
                for item in found.left
            )
        }
    )
