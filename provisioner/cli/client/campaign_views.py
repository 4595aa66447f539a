"""Campaigns, their previews, reports and rehearsals as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.text import Text

from provisioner.cli.client.output import list_lines
from provisioner.cli.options.tables import Table, open_console
from provisioner.model.alert import WatchedNode, WatchStatus, Way
from provisioner.model.campaign import Campaign, NodeProgress
from provisioner.model.case import Case, PartsDifference, Ticket
from provisioner.planning.campaigns.campaign_preview import Blast, Crossing, Preview
from provisioner.planning.campaigns.campaign_report import Report
from provisioner.planning.campaigns.waves import wave_name
from provisioner.planning.repair.repair_report import Figure, RepairReport

# ------------------------------------------------------------------------------
# Cases, and the report on repairs, as text for people.


Document = Mapping[str, Any]


def format_minute(at: float) -> str:
    """Return a time in UTC; a dash for none."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else "–"


def strip_controls(said: str) -> Text:
    """Return text from outside without sequences that move a terminal's cursor."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in said))


def show_case(document: Document, _given: Document) -> None:
    """Print one case: stages, suspects with evidence, remedies that were tried, parts."""
    if document["case"] is None:  # a tenant sees a short form
        for line in list_lines(document["line"]):
            typer.echo(line)
        return
    case = Case.model_validate(document["case"], strict=False)
    for line in list_case_lines(case):
        open_console().print(strip_controls(line))


def show_repairs(document: Document, _given: Document) -> None:
    """Print mean times to repair, and availability."""
    for table in build_report_tables(RepairReport.model_validate(document, strict=False)):
        open_console().print(table)


def list_case_lines(case: Case) -> Iterator[str]:
    yield f"{case.id} · {case.stage.value} · {case.service.value} · tenant {case.tenant or '–'}"
    yield f"{case.origin.value} by {case.by or 'nobody named'}: {case.reason}"
    if case.drain_at:
        yield f"taken back at {format_minute(case.drain_at)}"
    if case.score:
        yield f"score of its history {case.score:g}{' · everything is tested' * case.deeper}"
    yield "stages: " + " → ".join(f"{s.stage.value} {format_minute(s.at)}" for s in case.stages)
    for suspect in case.suspects:
        serial = f" (serial {suspect.serial})" if suspect.serial else ""
        yield f"suspect {suspect.kind} {suspect.part}{serial} {suspect.confidence:.0%}:"
        yield f"  {suspect.why}"
        yield from (f"    {line}" for line in suspect.evidence)
    for tried in case.tries:
        yield f"tried {tried.remedy.value} on {tried.part}: {tried.outcome.value} {tried.detail}"
        yield f"  before: {', '.join(tried.before) or 'nothing measured'}"
        if tried.measured_at:
            yield f"  after:  {', '.join(tried.after) or 'nothing'}"
    if case.evidence:
        yield f"evidence: {count_evidence(case.evidence)}; `provisioner case bundle {case.id}`"
    yield from (f"not to be had: {gap}" for gap in case.gaps)
    if case.ticket is not None:
        yield from list_work(case.ticket)
    if case.spare is not None:
        spare = case.spare
        yield f"spare: {spare.kind.value} {spare.part_number or '–'} serial {spare.serial or '–'}"
    if case.difference is not None:
        yield from list_differences(case.difference)
    if case.note:
        yield f"note: {case.note}"


def count_evidence(evidence: Iterable[str]) -> str:
    """Return how many stored items of each kind a case has: "41 check, 11 logs, 1 inventory"."""
    kinds = Counter(name.split()[0] for name in evidence)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def list_work(ticket: Ticket) -> Iterator[str]:
    """Yield the work that people were asked to do, with its ticket's state."""
    yield f"work: {ticket.work}"
    ticket_line = f"{ticket.system} {ticket.id}" if ticket.id else "in no ticket system"
    yield f"  ticket {ticket_line} {ticket.url}".rstrip() + f", RMA {ticket.rma or 'none'}"
    if ticket.problem:
        yield f"  not told yet, {ticket.tries} tries: {ticket.problem}"
    led = "on" if ticket.led else "off"
    yield f"  identify LED {led}{f' ({ticket.led_problem})' * bool(ticket.led_problem)}"
    if ticket.bundle:
        yield f"  evidence archive: SHA-256 {ticket.bundle}"


def list_differences(found: PartsDifference) -> Iterator[str]:
    """Yield the differences in parts before and after the repair."""
    for change in found.changes:
        moved = f" (was in {change.moved_from})" if change.moved_from else ""
        before = change.before or "empty"
        after = change.after or "empty"
        yield f"part {change.kind.value}/{change.slot}: {before} → {after}{moved}"
    for word, names in (
        ("not asked for", found.unexpected),
        ("not exchanged", found.missing),
        ("wrong", found.wrong),
        ("without a serial", found.unknown),
    ):
        if names:
            yield f"{word}: {', '.join(names)}"
    if found.system_changed:
        yield "the host itself is another one"


def build_report_tables(report: RepairReport) -> Iterator[Table]:
    whole = Table("cases", "open now", "endings", title="Repairs")
    ends = ", ".join(f"{name} {count}" for name, count in report.endings.items()) or "–"
    whole.add_row(str(report.opened), str(report.open_now), ends)
    yield whole
    times = Table("of", "which", "cases", "mean", "median", "longest", title="Time to repair")
    groups: Iterable[tuple[str, Iterable[Figure]]] = (
        ("all", (report.total,) if report.total is not None else ()),
        ("stage", report.by_stage),
        ("part", report.by_part),
        ("vendor", report.by_vendor),
    )
    for of, figures in groups:
        for f in figures:
            spans = (_hours(f.mean_s), _hours(f.median_s), _hours(f.longest_s))
            times.add_row(of, f.name, str(f.cases), *spans)
    yield times
    tried = Table("remedy", "outcomes", title="Remedies")
    for name, outcomes in report.by_remedy.items():
        tried.add_row(name, ", ".join(f"{o} {n}" for o, n in sorted(outcomes.items())))
    yield tried
    tenants = Table("tenant", "nodes", "availability", title="Availability")
    for t in report.tenants:
        tenants.add_row(t.tenant, str(t.nodes), f"{t.availability:.4%}")
    yield tenants


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h"


# ------------------------------------------------------------------------------
# The watch over released nodes for people: which are watched, how, and which data are missing.


NODES_MAX = 40  # rows for people; --all and --json show every node
RECENT_S = 900.0  # counters whose last push is older than this count as stopped
NEED_PUSH = "QueueStuck, Rocet.*"  # docs/watch.md: these counters are in the tenant's host
NEED_LEAF = "LinkFlap, LinkDown"
NOTES = {
    Way.STREAM: "it tells at once",
    Way.STREAM_BROKEN: "opened again and again; glances meanwhile",
    Way.SUBSCRIPTION: "it posts to our listener",
    Way.UNPROVED: "nothing came: let it trust agent-ca.pem; glances",
    Way.POLLED: "glances and sweeps only",
}


def show_watch(document: Document, given: Document) -> None:
    """Print which nodes are watched and how: all nodes, or one of them, BMC by BMC."""
    status = WatchStatus.model_validate(document["status"], strict=False)
    alerts = document["alerts"]
    name = given.get("node") or ""
    if name:
        for node in (n for n in status.nodes if n.node == name):
            _one(node, alerts.get(name, 0), status.at)
        return
    _whole(status, alerts, document["unwatched"], None if given.get("all") else NODES_MAX)
    if document["stale"]:
        age = _span(document["age_s"])
        typer.echo(f"The daemon reported nothing for {age}: all of this is as old.", err=True)


def list_missing(node: WatchedNode, now: float) -> list[str]:
    """Return the data of a node that no source reports."""
    missing = []
    if not has_pushed(node, now):
        missing.append(f"{NEED_PUSH}: no counters are pushed")
    if node.counted < node.ports:
        silent = node.ports - node.counted
        missing.append(
            f"{NEED_LEAF}: {silent} of {node.ports} ports are not counted by their leaves"
        )
    elif not node.ports:
        missing.append(f"{NEED_LEAF}: no leaf is known")
    return missing


def has_pushed(node: WatchedNode, now: float) -> bool:
    return node.counters_at > 0 and now - node.counters_at <= RECENT_S


def _whole(
    told: WatchStatus, alerts: Mapping[str, int], unwatched: Sequence[str], rows_max: int | None
) -> None:
    """Print the sum, then a row for each node."""
    bmcs = [b for n in told.nodes for b in n.bmcs]
    ways = Counter(b.way for b in bmcs)
    ports = sum(n.ports for n in told.nodes)
    counted = sum(n.counted for n in told.nodes)
    pushing = sum(has_pushed(n, told.at) for n in told.nodes)
    reports = sum(b.reports for b in bmcs)
    missing = len(told.nodes) - pushing
    rows = [
        ("nodes", len(told.nodes), f"{len(unwatched)} serve and are not watched yet"),
        *((f"BMCs: {way}", ways[way], NOTES[way]) for way in Way if ways[way]),
        ("metric reports", reports, f"polled, of {sum(b.reports > 0 for b in bmcs)} BMCs"),
        ("leaf ports", counted, f"of {ports} are counted, at {len(told.leaves)} leaves"),
        ("ports of leaves", len(told.leaf_ports_read), "leaves whose ports were all read"),
        ("ports not moved", len(told.listed_ports), "in customers' networks, and not a node's"),
        ("counters pushed", pushing, f"nodes; without: {missing}, nothing of {NEED_PUSH}"),
        ("alerts", sum(alerts.values()), f"of {len(alerts)} nodes"),
        ("requests", told.requests, f"since the start; at most {told.requests_per_s:g} a second"),
    ]
    table = Table(show_header=False, box=None)
    for word, number, note in rows:
        table.add_row(word, str(number), Text(note))
    open_console().print(table)
    if not told.listener:
        typer.echo("Nothing can be pushed: `serve` has no --events-url.")
    if not told.routine:
        typer.echo("The daemon is overloaded: routine looks are put off.")
    _print_listed_ports(told, rows_max)
    each = Table(
        "node", "BMCs that tell", "polled", "last look", "leaf ports", "counters", "alerts"
    )
    ordered = sorted(told.nodes, key=lambda n: (-alerts.get(n.node, 0), n.looked_at, n.node))
    first = ordered[:rows_max]
    for node in first:
        told_by = sum(b.way in (Way.STREAM, Way.SUBSCRIPTION) for b in node.bmcs)
        each.add_row(
            Text(node.node),
            f"{told_by} of {len(node.bmcs)}",
            f"{sum(b.reports for b in node.bmcs)} reports",
            _ago(node.looked_at, told.at),
            f"{node.counted} of {node.ports}",
            "pushed" if has_pushed(node, told.at) else "none",
            str(alerts.get(node.node, 0)),
        )
    if first:
        open_console().print(each)
    if len(first) < len(told.nodes):
        typer.echo(f"... and {len(told.nodes) - len(first)} more: --all")


def _print_listed_ports(told: WatchStatus, rows_max: int | None) -> None:
    """Print the ports that are left in a customer's network, each with its reason.

    `rows_max` None: all of them.
    """
    if not told.listed_ports:
        return
    table = Table("port that is not moved", "why")
    for name, why in list(told.listed_ports.items())[:rows_max]:
        table.add_row(Text(name), Text(why))
    open_console().print(table)
    if rows_max is not None and (more := len(told.listed_ports) - rows_max) > 0:
        typer.echo(f"... and {more} more ports: --all")


def _one(node: WatchedNode, alerts: int, now: float) -> None:
    table = Table("BMC", "way", "last heard of", "metric reports", "that is")
    for bmc in node.bmcs:
        heard = _ago(bmc.heard_at, now)
        table.add_row(Text(bmc.bmc), bmc.way, heard, str(bmc.reports), NOTES[bmc.way])
    out = open_console()
    out.print(table)
    out.print(f"leaf ports counted: {node.counted} of {node.ports}")
    out.print(f"last counters pushed: {_ago(node.counters_at, now)}")
    for line in list_missing(node, now):
        out.print(f"nobody tells: {line}")
    out.print(f"active alerts: {alerts} (`provisioner alert list --node {node.node}`)")


def _ago(at: float, now: float) -> str:
    return f"{_span(max(0.0, now - at))} ago" if at else "never"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_moment(at: float) -> str:
    """Return a time for people; "–" if it has not come yet."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else "–"


def show_campaign(document: Document, _given: Document) -> None:
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
        times = (_hours_campaign_views(w.begins_s, "never"), _hours_campaign_views(w.ends_s, "–"))
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


def _hours_campaign_views(seconds: float | None, none: str) -> str:
    return none if seconds is None else f"{seconds / 3600:.1f}"
