"""Campaigns, their previews, reports and rehearsals as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from provisioner.cli.options.showing import open_console
from provisioner.model.campaign import Campaign, NodeProgress
from provisioner.planning.campaigns.campaign_preview import Blast, Preview
from provisioner.planning.campaigns.campaign_report import Report
from provisioner.planning.campaigns.crossing_domains import Crossing
from provisioner.planning.campaigns.waves import wave_name

Document = Mapping[str, Any]


def format_moment(at: float) -> str:
    """Return a time for people; "–" if it has not come yet."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else "–"


def show_campaign(document: Document, _given: Document) -> None:
    """Print one campaign with all of its nodes."""
    campaign = Campaign.model_validate(document["campaign"], strict=False)
    head = Table("campaign", "state", "release", "from", "select", "by", "reason")
    c = campaign
    cells = (c.id, c.state, c.target, c.baseline, c.select, c.created_by or "–", c.reason)
    head.add_row(*(Text(str(word)) for word in cells))
    out = open_console()
    out.print(head)
    table = Table("node", "wave", "progress", "deferred until", "why")
    for progress in document["nodes"]:
        row = NodeProgress.model_validate(progress, strict=False)
        until = format_moment(row.deferred_until)
        name = wave_name(campaign.policy, row.wave)
        table.add_row(*(Text(str(w)) for w in (row.node, name, row.state, until, row.reason)))
    out.print(table)


def show_report(document: Document, _given: Document) -> None:
    """Print a campaign's results so far."""
    _show(Report.model_validate(document, strict=False))


def show_rehearsal(document: Document, _given: Document) -> None:
    """Print the course of a campaign on a twin."""
    result = document.get("result") or {}
    out = open_console()
    if "report" not in result:
        out.print(Text(f"{document['id']} {document['subject']}: {document['state']}"))
        return
    out.print(Text(f"rehearsed with {result['hosts']} of {result['of']} hosts", style="bold"))
    _show(Report.model_validate(result["report"], strict=False))
    for wrong in result["violations"]:
        out.print(Text(f"must never happen, and did: {wrong}"))
    for sentence in result["assumed"]:
        out.print(Text(f"  not as in truth: {sentence}"))


def _show(found: Report) -> None:
    out = open_console()
    states = ", ".join(f"{count} {state}" for state, count in found.states.items())
    head = f"{found.campaign} to {found.release}: {found.state}"
    out.print(Text(head + (f" ({found.reason})" if found.reason else ""), style="bold"))
    out.print(f"{found.nodes} nodes: {states or 'none yet'}")
    out.print(f"began {format_moment(found.began_at)}, last back {format_moment(found.ended_at)}")
    out.print(
        f"minutes out of service: median {found.minutes_median:.0f}, most "
        f"{found.minutes_most:.0f}, planned {found.minutes_planned:.0f}"
    )
    table = Table("wave", "nodes", "states", "began", "ended", title="Waves")
    for wave in found.waves:
        states = ", ".join(f"{count} {state}" for state, count in wave.states.items())
        began = format_moment(wave.began_at)
        ended = format_moment(wave.ended_at)
        table.add_row(wave.name, str(wave.nodes), states, began, ended)
    out.print(table)
    if found.left:
        unfinished = Table("node", "progress", "why", title="Not brought to the release")
        for item in found.left:
            unfinished.add_row(Text(item.node), item.state, Text(item.reason))
        out.print(unfinished)
    if found.comparisons:
        compared = Table("metric", "nodes", "change", "p", "says", title="Before and after")
        for c in found.comparisons:
            compared.add_row(c.metric, str(c.nodes), f"{c.change:+.1%}", f"{c.p:.2g}", c.effect)
        out.print(compared)


def show_preview(document: Document, _given: Document) -> None:
    """Print waves, blast radius, and every node that is refused."""
    preview = Preview.model_validate(document, strict=False)
    out = open_console()
    out.print(Text(f"{preview.campaign} to {preview.release}", style="bold"))
    out.print(
        f"{preview.steps} steps, {preview.resets} resets, {preview.minutes} node minutes; "
        f"about {preview.lasts_s / 3600:.1f} h from its start"
    )
    out.print(Text(f"blast radius: {_blast(preview.blast)}"))
    out.print(Text(f"at most at once: {_blast(preview.at_once)}"))
    if preview.crossing is not None:
        out.print(Text(describe_crossing(preview.crossing)))
    table = Table("wave", "nodes", "blast radius", "steps", "resets", "min", "from h", "to h")
    for w in preview.waves:
        times = (_hours(w.begins_s, "never"), _hours(w.ends_s, "–"))
        figures = (len(w.nodes), _blast(w.blast), w.steps, w.resets, w.minutes, *times)
        table.add_row(w.name, *(Text(str(f)) for f in figures))
    out.print(table)
    if preview.unchanged:
        out.print(Text(f"already there: {', '.join(preview.unchanged)}"))
    if preview.to_confirm:
        out.print(Text("To be agreed to before it starts, as in the figures above:", style="bold"))
    for step, names in sorted(preview.one_way.items()):
        agreed = "confirmed" if step not in preview.to_confirm else f'--confirm "{step}"'
        out.print(Text(f"  cannot be undone: {step} on {len(names)} nodes ({agreed})"))
    for blocker in preview.stopped:
        out.print(Text(f"would stop by itself: {blocker}"))
    if preview.refused:
        refused = Table("node", "why", "what would unblock it", title="Refused")
        for name, blocker in sorted(preview.refused.items()):
            refused.add_row(Text(name), Text(str(blocker)), Text(blocker.unblock))
        out.print(refused)


def describe_crossing(crossing: Crossing) -> str:
    """Return both figures of domains that cross, in one sentence."""
    names = " and ".join(name.replace("_", " ") for name in crossing.domains)
    return (
        f"limits that cross ({names}): {crossing.taken} hosts fit at once, "
        f"and no choice has more than {crossing.at_most}"
    )


def _blast(b: Blast) -> str:
    rails = f", rails {' '.join(map(str, b.rails))}" if b.rails else ""
    tenants = f", tenants {' '.join(b.tenants)}" if b.tenants else ""
    planes = f", planes {' '.join(map(str, b.planes))}" if b.planes else ""
    return f"{b.hosts} hosts, {b.gpus} GPUs, {b.switches} switches{tenants}{rails}{planes}"


def _hours(seconds: float | None, none: str) -> str:
    return none if seconds is None else f"{seconds / 3600:.1f}"
