"""Report the results of a campaign, or of its rehearsal, in one format. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, Progress
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.times.instant import InstantOrNone
from provisioner.planning.campaigns.waves import wave_name
from provisioner.planning.certification.regression import (
    Comparison,
    RegressionPolicy,
    compare_metrics,
)


class WaveReport(Record):
    """One wave. A time that is unset has not come yet."""

    name: str
    nodes: int
    states: Mapping[str, int]  # state of progress -> nodes
    began_at: InstantOrNone = 0.0
    ended_at: InstantOrNone = 0.0


class LeftBehind(Record):
    """A node that does not run the release, and the reason."""

    node: str
    state: str
    reason: str


class Report(Record):
    """The current results of a campaign. Minutes are those of nodes that came back."""

    campaign: str
    release: str
    state: str
    reason: str
    nodes: int
    states: Mapping[str, int]
    waves: tuple[WaveReport, ...]
    left: tuple[LeftBehind, ...]
    comparisons: tuple[Comparison, ...]
    minutes_median: float = 0.0
    minutes_most: float = 0.0
    minutes_planned: float = 0.0  # median of the plans' estimates
    began_at: InstantOrNone = 0.0
    ended_at: InstantOrNone = 0.0  # of the node that came back last


def build_report(campaign: Campaign, rows: Sequence[CampaignRow]) -> Report:
    """Return the report of a campaign's rows."""
    lasted = [
        (p.finished_at - p.admitted_at) / 60
        for p in (r.progress for r in rows)
        if p.admitted_at and p.finished_at and p.state is not Progress.FAILED
    ]
    began = [r.progress.admitted_at for r in rows if r.progress.admitted_at]
    ended = [r.progress.finished_at for r in rows if r.progress.finished_at]
    return Report(
        campaign=campaign.id,
        release=campaign.target,
        state=campaign.state.value,
        reason=campaign.reason,
        nodes=len(rows),
        states=_states(rows),
        waves=_waves(campaign, rows),
        left=tuple(
            LeftBehind(node=r.node, state=r.progress.state.value, reason=r.progress.reason)
            for r in rows
            if r.progress.state in (Progress.FAILED, Progress.SKIPPED)
        ),
        comparisons=_compared(rows),
        minutes_median=median(lasted) if lasted else 0.0,
        minutes_most=max(lasted, default=0.0),
        minutes_planned=float(median(r.facts.minutes for r in rows)) if rows else 0.0,
        began_at=min(began, default=0.0),
        ended_at=max(ended, default=0.0),
    )


def _states(rows: Sequence[CampaignRow]) -> dict[str, int]:
    counts = Counter(r.progress.state.value for r in rows)
    return {state.value: counts[state.value] for state in Progress if counts[state.value]}


def _waves(campaign: Campaign, rows: Sequence[CampaignRow]) -> tuple[WaveReport, ...]:
    by_wave: dict[int, list[CampaignRow]] = {}
    for row in rows:
        by_wave.setdefault(row.progress.wave, []).append(row)
    return tuple(
        WaveReport(
            name=wave_name(campaign.policy, wave),
            nodes=len(mine),
            states=_states(mine),
            began_at=min((t for r in mine if (t := r.progress.admitted_at)), default=0.0),
            ended_at=max((r.progress.finished_at for r in mine), default=0.0),
        )
        for wave, mine in sorted(by_wave.items())
    )


def _compared(rows: Sequence[CampaignRow]) -> tuple[Comparison, ...]:
    """Compare before and after for each profile; metrics with too few samples are marked so."""
    comparisons: list[Comparison] = []
    for profile in sorted({r.facts.profile for r in rows}):
        mine = [r for r in rows if r.facts.profile == profile and r.before and r.after]
        before = {r.node: r.before for r in mine}
        after = {r.node: r.after for r in mine}
        comparisons += compare_metrics(before, after, RegressionPolicy())
    return tuple(comparisons)
