"""Rehearses a campaign: the same policy and the same code on a twin, in virtual time.

The rehearsal reads the fleet's rows and changes nothing of the fleet; the twin has its own store.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.integrations.sim.site.truth import collect_truth
from provisioner.integrations.twin.fleet_twin import RecordedFleet, Twin
from provisioner.integrations.twin.loop import run
from provisioner.integrations.twin.recorded import add_simulated_images
from provisioner.model.campaign import Campaign, CampaignRow, CampaignState
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns import waves
from provisioner.planning.campaigns.campaign_report import Report, build_report
from provisioner.planning.campaigns.fleet_fields import (
    ABOUT_FIELDS,
    FleetRecords,
    Reading,
    needs_records,
)
from provisioner.planning.campaigns.select_expression import parse, pick
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

LOOK_S = 600.0  # of virtual time, between two reports of progress
LIMIT_S = 60 * 86_400.0  # of virtual time; leaves room for notice, deferrals and windows


@dataclass(frozen=True)
class RehearsalResult:
    """The result of a rehearsal. `assumed`: how the twin differs, in sentences."""

    report: Report
    hosts: int  # in the twin
    of: int  # hosts that the campaign selects
    assumed: tuple[str, ...]
    blockers: tuple[Blocker, ...] = ()  # reasons why the campaign did not start
    violations: tuple[str, ...] = ()  # safety properties violated, by the simulator's own state


def to_json(result: RehearsalResult) -> dict[str, object]:
    """Return the result as JSON values."""
    fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    blockers = [b.model_dump(mode="json") for b in result.blockers]
    return fields | {"report": result.report.model_dump(mode="json"), "blockers": blockers}


def find_selected(
    campaign: Campaign, nodes: Sequence[Node], surveyed: Collection[str]
) -> tuple[Node, ...]:
    """Return the campaign's nodes. Where its expression asks for more than nodes have (versions,
    cases), they are the surveyed ones: those records are the fleet's, and no twin has them.
    """
    expression = parse(campaign.select, ABOUT_FIELDS)
    living = [n for n in nodes if n.state is not State.RETIRED]
    if needs_records(expression):
        return tuple(n for n in living if n.id in surveyed)
    return pick(expression, living, Reading(expression.fields, FleetRecords(), None, 0.0).read)


async def read_fleet(
    store: SqlStore, campaign: Campaign, facts: Sequence[str], most: int
) -> tuple[RecordedFleet, int]:
    """Read at most `most` of the campaign's hosts, their leaves, and how many hosts it selects."""
    nodes = await store.nodes.list()
    selected = [n for n in find_selected(campaign, nodes, facts) if n.kind is NodeKind.HOST]
    order = {name: number for number, name in enumerate(facts)}
    hosts = sorted(selected, key=lambda n: (order.get(n.id, len(order)), n.id))[:most]
    leaves = {p.switch for n in hosts for p in n.ports}
    included = [*hosts, *(n for n in nodes if n.id in leaves)]
    inventories = {
        n.id: i for n in included if (i := await store.evidence.get_inventory(n.id)) is not None
    }
    return RecordedFleet(included, inventories, await store.tenants.list()), len(selected)


async def prepare_rehearsal(
    store: SqlStore, campaign: Campaign, rows: Sequence[CampaignRow], most: int
) -> tuple[RecordedFleet, int]:
    """Read the hosts to rehearse, those of the first waves first."""
    numbers = waves.assign_waves(
        campaign, [r.facts.model_copy(update={"name": r.node}) for r in rows]
    )
    order = sorted(numbers, key=lambda name: (numbers[name], name))
    return await read_fleet(store, campaign, order, most)


def run_rehearsal(
    campaign: Campaign,
    recorded: RecordedFleet,
    of: int,
    matrix: Matrix,
    settings: Settings,
    on_progress: Callable[[float, Report], None] = lambda _s, _r: None,
) -> RehearsalResult:
    """Run the campaign on a twin to its end; takes some two seconds of a core for each host."""
    with tempfile.TemporaryDirectory(prefix="twin-") as folder:
        return run(
            _run_campaign(campaign, recorded, of, matrix, settings, Path(folder), on_progress)
        )


async def _run_campaign(
    campaign: Campaign,
    recorded: RecordedFleet,
    of: int,
    matrix: Matrix,
    settings: Settings,
    folder: Path,
    on_progress: Callable[[float, Report], None],
) -> RehearsalResult:
    files = add_simulated_images(matrix, tuple({campaign.release, campaign.baseline}))
    twin = Twin(recorded, files, settings, folder)
    try:
        await twin.start(campaign.baseline)
        missing = await twin.wait_until_settled()
        assumed = _list_assumptions(twin, [n.id for n in missing])
        assert twin.daemon is not None, "it was started"
        requests = CampaignRequests(twin.daemon.context, twin.book, files.matrix)
        select = _select_twins(campaign, twin)
        draft = await requests.create(campaign.release, select, campaign.policy, "rehearsal")
        hosts = sum(n.kind is NodeKind.HOST for n in recorded.nodes)
        if draft.campaign is None:
            return RehearsalResult(
                _restore_names(build_report(campaign, ()), twin), hosts, of, assumed, draft.blockers
            )
        survey = await requests.survey(draft.campaign)
        steps = sorted({s for r in survey.rows for s in r.facts.one_way})
        start = await requests.start(draft.campaign.id, "rehearsal", steps)
        started_at = twin.clock.now()
        while not start.blockers and twin.clock.now() - started_at < LIMIT_S:
            await twin.clock.sleep(LOOK_S)
            now = await requests.find_campaign(draft.campaign.id)
            on_progress(
                twin.clock.now() - started_at,
                build_report(now, await twin.book.list_rows(draft.campaign.id)),
            )
            if now.state is not CampaignState.STARTED:
                break
        ended = await requests.find_campaign(draft.campaign.id)
        rows = await twin.book.list_rows(draft.campaign.id)
        final = build_report(ended.model_copy(update={"id": campaign.id}), rows)
        state = collect_truth(twin.site)
        violations = tuple(str(v) for v in (*state["violations"], *state["switch_outages"]))
        return RehearsalResult(
            _restore_names(final, twin), hosts, of, assumed, start.blockers, violations
        )
    finally:
        await twin.close()


def _select_twins(campaign: Campaign, twin: Twin) -> str:
    """Return a selector of the campaign's nodes by the names of their twins."""
    hosts = [n.id for n in twin.recorded.nodes if n.kind is NodeKind.HOST]
    mine = {n.id for n in find_selected(campaign, twin.recorded.nodes, hosts)}
    twins = [twin.names.twin[n] for n in sorted(mine) if n in twin.names.twin]
    return f"node={','.join(twins)}"


def _list_assumptions(twin: Twin, missing: Sequence[str]) -> tuple[str, ...]:
    assumptions = [
        "tests among nodes (gate C) are left out, and no disks are erased",
        "measurements are the simulator's own: a regression is not predicted",
    ]
    if twin.unlike:
        assumptions.append(f"recorded, but not simulated: {', '.join(twin.unlike)}")
    quarantined = [n.id for n in twin.recorded.nodes if n.state is State.QUARANTINED]
    if quarantined:
        assumptions.append(
            f"quarantined in the fleet, healthy in the twin: {', '.join(sorted(quarantined))}"
        )
    recorded_names = twin.names.recorded
    assumptions += [
        f"the twin of {recorded_names.get(n, n)} did not come into service" for n in sorted(missing)
    ]
    return tuple(assumptions)


def _restore_names(twin_report: Report, twin: Twin) -> Report:
    """Return a report with the fleet's node names instead of the twin's."""
    recorded_names = twin.names.recorded
    return twin_report.model_copy(
        update={
            "left": tuple(
                item.model_copy(update={"node": recorded_names.get(item.node, item.node)})
                for item in twin_report.left
            )
        }
    )
