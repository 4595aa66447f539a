"""Cases, and the report on repairs, as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.client.output import list_lines
from provisioner.cli.options.showing import open_console
from provisioner.model.case import Case, PartsDifference, Ticket
from provisioner.planning.repair.repair_report import Figure, RepairReport

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
    """Yield every line of one case."""
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
    """Return the report as tables."""
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
