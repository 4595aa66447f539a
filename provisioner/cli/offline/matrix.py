"""`provisioner matrix`: check, show, compare, draw and fill the pinned matrix; no daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from provisioner.cli.offline import matrix_tables as tables
from provisioner.cli.offline.matrix_import import import_versions
from provisioner.cli.options.matrix_files import read_located_matrix, read_matrix
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.diff import compare_releases as compare
from provisioner.planning.matrix.graph_svg import draw_svg
from provisioner.planning.matrix.review import Weight, judge_readiness, review_matrix

app = typer.Typer(help="The pinned matrix: check, show, compare, draw, fill.", no_args_is_help=True)
app.command("import")(import_versions)

Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--matrix", help="Matrix file; repeat it for overlays, which are applied in order."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Production = Annotated[
    bool,
    typer.Option(
        "--production", help="Block on unknown pins, missing digests and missing evidence too."
    ),
]

BLOCKED = 1  # exit code: read, but not usable


@app.command()
def check(matrix: Files = None, *, json_: Json = False, production: Production = False) -> None:
    """Check that every release is reachable, and list the obstacles to its use in production.

    Exit code 0: usable; 1: a release is blocked; 2: the input is wrong.

    Example: provisioner matrix check --matrix matrix.yaml --matrix overlay.yaml --production
    """
    pinned, located = read_located_matrix(matrix or [])
    remarks = review_matrix(pinned, located=located)
    states = judge_readiness(pinned)
    blocking = {Weight.BLOCKS, Weight.PRODUCTION} if production else {Weight.BLOCKS}
    good = not any(remark.weight in blocking for remark in remarks)
    if json_:
        report = {
            "digest": pinned.digest(),
            "ok": good,
            "production": production,
            "remarks": [remark.model_dump(mode="json") for remark in remarks],
            "releases": [
                {
                    **state.model_dump(mode="json"),
                    "production_ready": state.ready,
                    "missing": [gap._asdict() for gap in state.list_gaps()],
                }
                for state in states
            ],
        }
        typer.echo(json.dumps(report))
    else:
        console = Console()
        console.print(tables.build_readiness_table(states))
        console.print(tables.build_remarks_table(remarks, production=production))
        console.print(tables.format_verdict(pinned, remarks, good=good, production=production))
    raise typer.Exit(0 if good else BLOCKED)


@app.command()
def show(
    release: Annotated[str, typer.Argument(help="A release; by default all of them.")] = "",
    matrix: Files = None,
    *,
    json_: Json = False,
) -> None:
    """Show the pins of a release, for each profile.

    Example: provisioner matrix show spectrum-x-1.3.0
    """
    pinned = read_matrix(matrix or [])
    names = [_release(pinned, release)] if release else list(pinned.releases)
    if json_:
        chosen = {
            n: pinned.releases[n].model_dump(mode="json", exclude_defaults=True) for n in names
        }
        typer.echo(json.dumps({"releases": chosen}))
        return
    console = Console()
    for name in names:
        console.print(tables.build_release_table(name, pinned.releases[name]))


@app.command()
def diff(
    older: str,
    newer: str,
    matrix: Files = None,
    *,
    json_: Json = False,
    production: Production = False,
) -> None:
    """Compare two releases for each profile: changes, steps, resets, minutes.

    Exit code 1: a profile cannot make the move.

    Example: provisioner matrix diff spectrum-x-1.2.0 spectrum-x-1.3.0
    """
    pinned = read_matrix(matrix or [])
    moves = compare(pinned, _release(pinned, older), _release(pinned, newer), production=production)
    if json_:
        profiles = [move.model_dump(mode="json") for move in moves]
        typer.echo(json.dumps({"from": older, "to": newer, "profiles": profiles}))
    else:
        console = Console()
        for move in moves:
            console.print(tables.build_diff_table(older, newer, move))
    raise typer.Exit(BLOCKED if any(move.blockers for move in moves) else 0)


@app.command()
def graph(
    matrix: Files = None,
    file: Annotated[
        Path | None, typer.Option("--svg", help="Write the picture to this SVG file.")
    ] = None,
) -> None:
    """Draw the upgrade paths: in the terminal, or as an SVG file.

    Example: provisioner matrix graph --svg paths.svg
    """
    pinned = read_matrix(matrix or [])
    if file is None:
        Console().print(tables.build_graph_table(pinned))
        return
    try:
        file.write_text(draw_svg(pinned), encoding="utf-8")
    except OSError as error:
        raise InputError(
            str(file), "", f"it cannot be written ({error.strerror})", "Choose another path."
        ) from None
    typer.echo(f"written: {file}")


def _release(matrix: Matrix, name: str) -> str:
    if name not in matrix.releases:
        raise InputError(
            "release",
            name,
            "there is no such release",
            f"It is one of: {', '.join(matrix.releases)}.",
        )
    return name
