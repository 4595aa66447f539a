"""`provisioner checks`: list the health checks, and judge saved outputs offline."""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from provisioner import checks
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.context import build_context
from provisioner.checks.threshold_data import MODELS, THRESHOLDS
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.data import read_thresholds
from provisioner.integrations.evidence_files.reading import detect_model, read_evidence
from provisioner.model.cohort import CheckResult, Gate, Verdict
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.check_selection import Cause, Change, SelectionPolicy
from provisioner.planning.certification.check_selection import select_checks as chosen
from provisioner.runtime.shipped import read_text

app = typer.Typer(help="Health checks: list them, judge any output.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
ThresholdsOption = Annotated[
    Path | None, typer.Option(help="The site's own thresholds (docs/thresholds.md).")
]


@app.command("list")
def list_checks(*, json_: JsonOption = False) -> None:
    """List all checks: gate, scope, commands, limits and thresholds.

    Example: provisioner checks list
    """
    rows = [_row(check) for check in checks.ALL]
    if json_:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("check", "gate", "runs", "applies to", "command", "limit", "source")
    for row in rows:
        lines = "\n".join(c["line"] for c in row["commands"])
        limits = "\n".join(f"{c['limit_s']:.0f} s" for c in row["commands"])
        sources = "\n".join(t["source"] for t in row["thresholds"]) or row["about"]
        cells = (row["check"], row["gate"], row["runs"], row["applies_to"], lines, limits, sources)
        table.add_row(*(Text(word) for word in cells))
    open_console(220).print(table)


@app.command()
def select(
    cause: Annotated[Cause, typer.Option(help="The reason for the test.")],
    part: Annotated[
        list[str] | None, typer.Option(help="Exchanged part, such as gpu or nic; repeatable.")
    ] = None,
    component: Annotated[
        list[str] | None, typer.Option(help="Updated component kind, such as hgx.gpu; repeatable.")
    ] = None,
    gates: Annotated[str, typer.Option(help="Gates that the site requires.")] = "abcd",
    budget_s: Annotated[float, typer.Option(help="Time limit in seconds; 0: no limit.")] = 0.0,
    *,
    json_: JsonOption = False,
) -> None:
    """Show which tests a change requires, and why; run nothing.

    Example: provisioner checks select --cause repaired --part gpu
    """
    change = Change(causes=(cause,), devices=tuple(part or ()), components=tuple(component or ()))
    try:
        policy = SelectionPolicy(
            gates=frozenset(Gate(letter) for letter in gates), budget_s=budget_s or None
        )
    except ValueError:
        raise InputError(gates, "", "these are no gates", "Write some of: abcd.") from None
    selection = chosen(change, checks.ALL, policy)
    if json_:
        typer.echo(selection.model_dump_json(indent=2))
        return
    table = Table("test", "runs", "why", title=f"about {selection.seconds / 60:.0f} minutes")
    quick = {c.name for c in checks.ALL if c.gate is Gate.A}
    table.add_row(
        f"gate A, {len(quick & set(selection.checks))} checks", "yes", "seconds: always runs"
    )
    for name, why in selection.reasons.items():
        if name not in quick:
            table.add_row(name, "yes", Text(why))
    for name, why in selection.left_out.items():
        table.add_row(name, "no", Text(why), style="dim")
    open_console(220).print(table)
    if selection.blocker is not None:
        open_console(220).print(
            f"{selection.blocker.detail}. {selection.blocker.unblock}", style="red"
        )


def _row(check: Check) -> dict[str, Any]:
    about = (sys.modules[check.findings.__module__].__doc__ or "").split("\n\n")[0]
    thresholds = [
        {"threshold": name, "unit": THRESHOLDS[name].unit, "for": model} | limit.model_dump()
        for name in check.thresholds
        for model, limit in THRESHOLDS[name].values.items()
    ]
    return {
        "check": check.name,
        "gate": check.gate.value,
        "about": " ".join(about.split()),
        "passes_when": checks.read_passes_when()[check.name],
        "runs": "every validation"
        if check.name in checks.list_standard_checks(check.kind)
        else "where selected",
        "after_load": check.after_load,
        "load": check.load,
        "applies_to": check.kind.value,
        "commands": [c.model_dump() for c in check.commands],
        "thresholds": thresholds,
    }


@app.command()
def judge(
    check: Annotated[str, typer.Argument(help="Name of a check (`provisioner checks list`).")],
    evidence: Annotated[
        list[str],
        typer.Option(
            metavar="FILE|NAME=FILE",
            help="Stored evidence, or the bare output of a command; - for standard input.",
        ),
    ],
    profile: Annotated[
        str, typer.Option(help="A profile of the matrix, for its GPUs and pins.")
    ] = "",
    release: Annotated[str, typer.Option(help="The release of that profile.")] = "",
    matrix: Annotated[list[Path] | None, typer.Option(help="Matrix file.")] = None,
    gpu_model: Annotated[
        str, typer.Option(help=f"One of {', '.join(MODELS)}; by default from the output.")
    ] = "",
    gpus: Annotated[
        int, typer.Option(min=0, max=64, help="GPUs of the node; 0: eight, or the profile's.")
    ] = 0,
    rails: Annotated[int, typer.Option(min=0, max=64, help="Rails of the node; 0: any.")] = 0,
    exit_code: Annotated[int, typer.Option(help="Exit code of the command of a bare output.")] = 0,
    context: Annotated[
        Path | None, typer.Option(help="JSON file with the context that the outputs are judged in.")
    ] = None,
    thresholds: ThresholdsOption = None,
    *,
    json_: JsonOption = False,
) -> None:
    """Judge outputs offline. Exit code 0: pass; 1: fail or no verdict; 2: the input is wrong.

    Example: provisioner checks judge dcgm_diag --evidence output.json
    """
    judged = _check(check)
    base = _context(context, profile, release, matrix or [])
    overrides = {"gpu_model": gpu_model.upper(), "gpus": gpus, "rails": rails}
    if overrides["gpu_model"] and overrides["gpu_model"] not in MODELS:
        models = f"Known models: {', '.join(MODELS)}."
        raise InputError("--gpu-model", gpu_model[:40], "this model is not known", models)
    base = base.model_copy(update={k: v for k, v in overrides.items() if v})
    if thresholds is not None:
        base = base.model_copy(update={"overrides": read_thresholds(thresholds)})
    outputs = read_evidence(judged, evidence, base, exit_code)
    if not base.gpu_model:
        base = base.model_copy(update={"gpu_model": detect_model(outputs)})
    result = judged.judge(outputs, base)
    if json_:
        judged_as = {"gpu_model": base.gpu_model, "gpus": base.gpus, "profile": base.profile}
        typer.echo(json.dumps(result.model_dump(mode="json") | {"judged_as": judged_as}, indent=2))
    else:
        _show(result, base)
    raise typer.Exit(0 if result.verdict is Verdict.PASS else 1)


def _check(name: str) -> Check:
    by_name = {check.name: check for check in checks.ALL}
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=3)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        problem = "there is no such check"
        raise InputError("CHECK", name[:60], problem, f"{hint}See `provisioner checks list`.")
    return by_name[name]


def _context(file: Path | None, profile: str, release: str, matrix: list[Path]) -> CheckContext:
    if file is not None:
        try:
            return CheckContext.model_validate_json(read_text(file))
        except ValueError as error:
            problem = f"this is no context: {str(error).splitlines()[0]}"
            remedy = "Write a JSON object; docs/checks.md has one."
            raise InputError("--context", str(file), problem, remedy) from None
    if not profile:
        return CheckContext()
    pinned = read_matrix(matrix)
    having = [r for r, body in pinned.releases.items() if profile in body.profiles]
    if not having or (release and release not in having):
        profiles = sorted({p for body in pinned.releases.values() for p in body.profiles})
        problem = f"no {'such ' if release else ''}release has this profile"
        raise InputError(
            "--profile", profile[:60], problem, f"Known profiles: {', '.join(profiles)}."
        )
    node = Node(id="-", kind=NodeKind.HOST, release=release or having[-1], profile=profile)
    return build_context(node, Inventory(node="-", vendor="unknown"), pinned)


def _show(result: CheckResult, context: CheckContext) -> None:
    shown = open_console(220)
    model = context.gpu_model or "an unknown GPU model"
    shown.print(f"{result.check}: {result.verdict} (as {context.gpus} GPUs, {model})")
    if result.findings:
        table = Table("part", "asks for", "finding", "measured", "wanted")
        for f in result.findings:
            cells = (f.part, f.severity.value, f.detail, f.measured, f.wanted)
            table.add_row(*(Text(word) for word in cells))
        shown.print(table)
    for name, value in result.measured.items():
        shown.print(f"  {name}: {value:.6g}")
