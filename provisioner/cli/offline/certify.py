"""`provisioner certify`: judge stored evidence again. It changes nothing; it shows what would."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from provisioner import checks
from provisioner.checks.threshold_data import Limits
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import Data, has_data, open_data, read_settings, read_thresholds
from provisioner.execution.validate.judging import judging_context
from provisioner.model.health import HealthReport
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.planning.certification.rejudging import Rejudged, rejudge
from provisioner.runtime.site_clock import site_clock
from provisioner.settings import Settings

WORSE = 1  # exit code: something that passed would not now
_FIRST_LINE_CHARS = 120


def certify(
    node: Annotated[str, typer.Argument(help="A node by name.")] = "",
    data: Annotated[Path, typer.Option(help="Data directory of the daemon.")] = Path("var"),
    matrix: Annotated[
        list[Path] | None,
        typer.Option(help="Matrix file; given again, each is laid over the ones before it."),
    ] = None,
    thresholds: Annotated[
        Path | None, typer.Option(help="The site's own thresholds (docs/thresholds.md).")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="The daemon's own settings.")] = None,
    *,
    again: Annotated[
        bool, typer.Option("--rejudge", help="Judge the stored evidence of the last report again.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Of every node.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Judge the stored evidence of a node, or of all, again: `certify --rejudge NODE|--all`.

    Exit code 0: nothing that passed would fail now; 1: something would; 2: the input is wrong.
    """
    if not again:
        problem = "nothing is asked for"
        raise InputError("certify", "", problem, "Give --rejudge; the daemon certifies by itself.")
    if bool(node) == all_:
        raise InputError("certify", "", "give a node or --all", "One of the two.")
    if not has_data(data):
        problem = "there is no data directory here"
        raise InputError(str(data), "", problem, "Run `provisioner intake` first.")
    held = _Held(read_matrix(matrix or []), read_settings(settings), read_thresholds(thresholds))
    found = asyncio.run(_rejudged(data, node, held))
    if json_:
        typer.echo(json.dumps(_as_json(found), indent=2))
    else:
        _show(found)
    raise typer.Exit(WORSE if any(r.worse for _, results in found for r in results) else 0)


Found = list[tuple[HealthReport, list[Rejudged]]]


class _Held(NamedTuple):
    """What the evidence is held against."""

    matrix: Matrix
    settings: Settings
    thresholds: Mapping[str, Limits]


async def _rejudged(directory: Path, name: str, held: _Held) -> Found:
    async with open_data(directory, site_clock(directory).now(), needs_key=False) as data:
        nodes = [await _node(data, name)] if name else list(await data.store.nodes())
        found = []
        for node in nodes:
            report = await data.store.report(node.id)
            if report is not None:
                found.append((report, await _one(data, node, report, held)))
        if name and not found:
            raise InputError(name, "", "it has no report yet", "The daemon makes one.")
        return found


async def _one(data: Data, node: Node, report: HealthReport, held: _Held) -> list[Rejudged]:
    inventory = await data.store.inventory(node.id)
    if inventory is None:
        raise InputError(node.id, "", "it has no inventory", "The daemon reads one.")
    context = await judging_context(
        data.store, held.matrix, held.settings, held.thresholds, node, inventory
    )
    raw = {}
    for digest in {r.evidence for r in report.results if r.evidence}:
        raw[digest] = await data.store.evidence(digest) or ""
    return list(rejudge(report, raw, checks.ALL, context))


async def _node(data: Data, name: str) -> Node:
    node = await data.store.node(name)
    if node is None:
        raise InputError(name, "", "there is no such node", "See `provisioner node list`.")
    return node


def _as_json(found: Found) -> dict[str, Any]:
    nodes = [
        {
            "node": report.node,
            "reported_at": report.ended_at,
            "judged": len(results),
            "changed": sum(r.changed for r in results),
            "worse": sum(r.worse for r in results),
            "results": [
                {"check": r.check, "was": r.was.value, "now": r.now.verdict.value}
                | {"findings": [f.model_dump(mode="json") for f in r.now.findings]}
                for r in results
            ],
        }
        for report, results in found
    ]
    return {"changed": sum(sum(r.changed for r in rs) for _, rs in found), "nodes": nodes}


def _show(found: Found) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    table = Table("node", "check", "was", "now", "why", title="Verdicts that would change")
    for report, results in found:
        for r in (r for r in results if r.changed):
            first = r.now.findings[0] if r.now.findings else None
            why = f"{first.part}: {first.detail} {first.measured}" if first else ""
            told = (report.node, r.check, r.was.value, r.now.verdict.value)
            table.add_row(*(Text(w) for w in (*told, why[:_FIRST_LINE_CHARS])))
    judged = sum(len(results) for _, results in found)
    changed = sum(r.changed for _, results in found for r in results)
    if changed:
        console.print(table)
    console.print(f"{judged} results of {len(found)} nodes judged again, {changed} would change")
