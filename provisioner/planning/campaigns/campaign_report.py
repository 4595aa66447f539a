"""Report the results of a campaign, or of its rehearsal, in one format. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignRow, LeafHosts, Policy, Progress
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.times.instant import InstantOrNone
from provisioner.planning.campaigns.campaign_preview import Preview
from provisioner.planning.campaigns.waves import wave_name
from provisioner.planning.certification.regression import (
    Comparison,
    RegressionPolicy,
    compare_metrics,
)

# ------------------------------------------------------------------------------
# Refusals to create, start or change a campaign, each with its remedy. Pure.


def refuse_selection(nodes: Sequence[Node], release: str, policy: Policy) -> tuple[Blocker, ...]:
    """Return why no campaign can be made of these nodes; () if one can."""

    def refuse_select(detail: str, unblock: str) -> Blocker:
        return Blocker(
            reason=Reason.PRECONDITION, subject="--select", detail=detail, unblock=unblock
        )

    if not nodes:
        return (refuse_select("it picks no node", "See `provisioner node list`."),)
    sources = sorted({n.release for n in nodes if n.release != release})
    if len(sources) > 1:
        detail = f"these nodes come from several releases: {', '.join(sources)}"
        return (refuse_select(detail, f"Make one campaign of each: ... and release={sources[0]}."),)
    leaves = [n for n in nodes if n.kind is NodeKind.SWITCH]
    if leaves and policy.leaf_hosts is LeafHosts.KEEP:
        detail = f"{leaves[0].id} goes down only while no host on it is in use (leaf_hosts: keep)"
        return (refuse_select(detail, "Set leaf_hosts: drain, or select kind=host."),)
    return ()


NAMED_MAX = 5  # nodes of one refusal that are named


def join_alike(refusals: Iterable[tuple[str, Blocker]]) -> tuple[Blocker, ...]:
    """Return each refusal of (node, refusal) once, with the nodes that it is about."""
    alike: dict[tuple[Reason, str, str], list[str]] = {}
    for node, refusal in refusals:
        about = refusal.subject.removeprefix(f"{node}/")
        detail = refusal.detail if about == node else f"{about}: {refusal.detail}"
        nodes = alike.setdefault((refusal.reason, detail, refusal.unblock), [])
        if node not in nodes:
            nodes.append(node)
    joined = []
    for (reason, detail, unblock), nodes in alike.items():
        more = f" and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
        subject = ", ".join(sorted(nodes)[:NAMED_MAX]) + more
        joined.append(Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock))
    return tuple(joined)


def find_unconfirmed_steps(
    campaign: Campaign, rows: Sequence[CampaignRow], confirmed: Sequence[str]
) -> list[Blocker]:
    """Return a refusal for each irreversible step that is not confirmed by name."""
    steps = sorted({s for r in rows for s in r.facts.one_way} - set(confirmed))
    return [
        refuse_campaign(campaign, f"{step} cannot be undone", f'Confirm it: --confirm "{step}".')
        for step in steps
    ]


def find_standstill(campaign: Campaign, preview: Preview) -> list[Blocker]:
    """Return why a campaign would stop, or move no node, by its own preview; [] if it would not."""
    if preview.stopped:
        return list(preview.stopped)
    if any(wave.begins_s is not None for wave in preview.waves):
        return []
    reasons = Counter((b.detail, b.unblock) for b in preview.refused.values())
    if not reasons:
        return []
    (why, unblock), count = reasons.most_common(1)[0]
    detail = f"no node would begin ({count} of {len(preview.refused)}: {why})"
    return [refuse_campaign(campaign, detail, unblock)]


def refuse_in_state(campaign: Campaign, word: str) -> Blocker:
    """Return the refusal of a request that the campaign's state does not allow."""
    detail = f"it is {campaign.state}" + (" and goes back" if campaign.going_back else "")
    return refuse_campaign(campaign, f"{detail}: {word} is not possible", "See docs/campaigns.md.")


def refuse_campaign(campaign: Campaign, detail: str, unblock: str) -> Blocker:
    """Return a refusal that concerns the campaign as a whole."""
    return Blocker(reason=Reason.REFUSED, subject=campaign.id, detail=detail, unblock=unblock)


# ------------------------------------------------------------------------------
# Names of campaigns that clients choose, beside the numbers that the daemon gives. Pure.
#
# A client that names its campaign may repeat a request whose answer was lost: the name is taken
# once, and a repeated request with the same fields gets the same campaign.


NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
NUMBER = re.compile(r"c[0-9]+|draft")  # the daemon's own, and a draft that is not written


def check_campaign_name(name: str) -> None:
    """Raise InputError for a name that no client may choose; "" is none."""
    if not name:
        return
    if not NAME.fullmatch(name):
        remedy = "Write small letters, digits and hyphens, a letter first, at most 63."
        raise InputError("--name", name[:80], "not a name of a campaign", remedy)
    if NUMBER.fullmatch(name):
        remedy = "Choose another; names like c0001 are numbers that the daemon gives."
        raise InputError("--name", name, "reserved", remedy)


def refuse_other_draft(
    standing: Campaign, release: str, select: str, policy: Policy | None
) -> tuple[Blocker, ...]:
    """Return the blocker of a name that stands for another campaign; () for the same fields."""
    if (standing.release, standing.select, standing.policy) == (
        release,
        select,
        policy or Policy(),
    ):
        return ()
    detail = f"there is a campaign of this name: {standing.release}, {standing.select}"
    unblock = "Choose another name; a campaign's release, selection and policy never change."
    return (
        Blocker(reason=Reason.DUPLICATE, subject=standing.id, detail=detail[:300], unblock=unblock),
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
