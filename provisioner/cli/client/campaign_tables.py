"""Campaigns, their nodes and reports as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import console, show_table
from provisioner.model.campaign import Campaign
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.node import Node
from provisioner.planning.campaigns.campaign_report import Report
from provisioner.planning.campaigns.waves import wave_name


def moment(at: float) -> str:
    """A time for people; "–" if it is not yet."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else "–"


def show_campaigns(campaigns: Sequence[Campaign]) -> None:
    """All campaigns, a line each."""
    table = Table("campaign", "state", "release", "from", "select", "by", "reason")
    for c in campaigns:
        words = (c.id, c.state, c.target, c.baseline, c.select, c.created_by or "–", c.reason)
        table.add_row(*(Text(str(word)) for word in words))
    show_table(table, "There is no campaign yet: `provisioner campaign create` drafts one.")


def show_rows(campaign: Campaign, rows: Sequence[CampaignRow], nodes: Sequence[Node]) -> None:
    """One campaign with all of its nodes."""
    out, by_name = console(), {n.id: n for n in nodes}
    show_campaigns((campaign,))
    table = Table(
        "node", "wave", "progress", "state", "release", "steps", "min", "why, or what now"
    )
    for row in rows:
        node = by_name.get(row.node)
        p = row.progress
        told = p.reason or (node.note if node is not None and p.state == "admitted" else "")
        words = (
            row.node,
            wave_name(campaign.policy, p.wave),
            p.state,
            node.state if node is not None else "gone",
            node.release if node is not None else "–",
            row.facts.steps,
            row.facts.minutes,
            told,
        )
        table.add_row(*(Text(str(word)) for word in words))
    out.print(table)


def show_report(found: Report) -> None:
    """A report, of a campaign or of its rehearsal."""
    out = console()
    states = ", ".join(f"{count} {state}" for state, count in found.states.items())
    head = f"{found.campaign} to {found.release}: {found.state}"
    out.print(Text(head + (f" ({found.reason})" if found.reason else ""), style="bold"))
    out.print(f"{found.nodes} nodes: {states or 'none yet'}")
    out.print(f"began {moment(found.began_at)}, last back {moment(found.ended_at)}")
    out.print(
        f"minutes out of service: median {found.minutes_median:.0f}, most "
        f"{found.minutes_most:.0f}, planned {found.minutes_planned:.0f}"
    )
    table = Table("wave", "nodes", "states", "began", "ended", title="Waves")
    for wave in found.waves:
        told = ", ".join(f"{count} {state}" for state, count in wave.states.items())
        began, ended = moment(wave.began_at), moment(wave.ended_at)
        table.add_row(wave.name, str(wave.nodes), told, began, ended)
    out.print(table)
    if found.left:
        left = Table("node", "progress", "why", title="Not brought to the release")
        for item in found.left:
            left.add_row(Text(item.node), item.state, Text(item.reason))
        out.print(left)
    if found.comparisons:
        compared = Table("metric", "nodes", "change", "p", "says", title="Before and after")
        for c in found.comparisons:
            compared.add_row(c.metric, str(c.nodes), f"{c.change:+.1%}", f"{c.p:.2g}", c.effect)
        out.print(compared)
