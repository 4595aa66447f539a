"""`provisioner matrix`: check, show, compare, draw and fill the pinned matrix; no daemon."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.text import Text

from provisioner.cli.options.matrix_files import (
    FILE_NAME,
    MatrixOption,
    find_release,
    read_inventory,
    read_located_matrix,
    read_matrix,
)
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.matrix_tools.deciding.release_standing import (
    describe_notice,
    describe_release,
    list_release_notices,
)
from provisioner.integrations.matrix_tools.deciding.review import (
    Remark,
    Weight,
    count_unknown,
    group_remarks,
    review_matrix,
)
from provisioner.model.input_error import InputError
from provisioner.model.matrix import UNKNOWN, Matrix, Pin
from provisioner.planning.matrix.diff import ProfileDiff
from provisioner.planning.matrix.diff import compare_releases as compare
from provisioner.planning.matrix.readiness import Readiness, Use, judge_readiness
from provisioner.planning.matrix.standing import list_lines, list_pin_notices
from provisioner.runtime.integrations import find_verbs
from provisioner.runtime.late_module import LateModule
from provisioner.runtime.shipped import find_shipped

if TYPE_CHECKING:
    from provisioner.integrations.matrix_tools import plan_commands as planning
else:  # it brings the adapters of BMCs with it, for `check --inventory` alone
    planning = LateModule("provisioner.integrations.matrix_tools.plan_commands")

# ------------------------------------------------------------------------------
# The tables and pictures of `provisioner matrix`, for people at a terminal.


_WEIGHTS = {Weight.BLOCKS: "bold red", Weight.PRODUCTION: "yellow", Weight.NOTE: "bright_black"}


def build_readiness_table(states: Sequence[Readiness]) -> Table:
    """Return for each release whether its profiles are usable in production, or the gaps.

    Profiles of one release with the same gaps are one row.
    """
    table = Table(title="In production", title_justify="left", header_style="bold")
    table.add_column("release", overflow="fold")
    table.add_column("profile", overflow="fold")
    table.add_column("usable")
    table.add_column("published")
    table.add_column("missing", overflow="fold")
    rows: dict[tuple[str, ...], list[str]] = {}
    for state in states:
        missing = "\n".join(f"{gap.problem}: {', '.join(gap.kinds)}" for gap in state.list_gaps())
        pins = len(state.published) + len(state.no_evidence) + len(state.unknown)
        key = (state.release, f"{len(state.published)} of {pins}", missing)
        rows.setdefault(key, []).append(state.profile)
    for (release, published, missing), profiles in rows.items():
        usable = "[yellow]no[/]" if missing else "[green]yes[/]"
        cells = (escape(release), escape("\n".join(profiles)), usable, published)
        table.add_row(*cells, escape(missing))
    return table


def format_faults(remarks: Sequence[Remark], *, production: bool) -> list[Text]:
    """Return each fault once, with its places; only those that the table above does not show."""
    shown = [
        remark
        for remark in remarks
        if production or remark.weight is not Weight.PRODUCTION or "/" not in remark.where
    ]
    lines = []
    for found in group_remarks(shown):
        head = Text(f"{found.weight}: ", _WEIGHTS[found.weight])
        problem = found.problem if found.problem.endswith(".") else f"{found.problem}."
        lines.append(head.append(f"{problem} {found.remedy}", "default"))
        places = zip(found.places, found.lines, strict=True)
        lines += [Text(f"    {text}") for text in _join_places(places)]
    return lines


def _join_places(places: Iterable[tuple[str, int]]) -> list[str]:
    """Return places by release and kind, with the profiles of each and the lines of the file."""
    profiles: dict[tuple[str, str], list[str]] = {}
    lines: dict[tuple[str, str], list[int]] = {}
    for where, line in places:
        place, _, kind = where.partition(": ")
        release, _, profile = place.partition("/")
        key = (release, kind) if profile else (where, "")
        profiles.setdefault(key, []).extend([profile] if profile else [])
        at = lines.setdefault(key, [])
        at += [line] if line and line not in at else []
    joined: dict[tuple[str, tuple[str, ...]], tuple[list[str], list[int]]] = {}
    for (release, kind), of in profiles.items():
        kinds, at = joined.setdefault((release, tuple(of)), ([], []))
        kinds += [kind] if kind else []
        at += lines[release, kind]
    return [
        (f"{release}: {', '.join(kinds)}" if kinds else release)
        + (f" of {', '.join(of)}" if of else "")
        + (f" (line {', '.join(map(str, at))})" if at else "")
        for (release, of), (kinds, at) in joined.items()
    ]


def format_verdict(
    matrix: Matrix, remarks: Sequence[Remark], *, good: bool, production: bool, use: Use
) -> Text:
    """Return the last line: whether the matrix may be used, and how."""
    edges = sum(len(e) for e in matrix.edges.values())
    blocks = sum(1 for remark in remarks if remark.weight is Weight.BLOCKS)
    mode = "in production" if production else "in a laboratory"
    names = ", ".join((*sorted(use.releases), *sorted(use.profiles)))
    subject = names or f"{len(matrix.releases)} releases, {edges} edges"
    reached = "reachable" if use.releases else "every release is reachable"
    summary = f"{subject}: {reached if not blocks else f'{blocks} moves are impossible'}; "
    return Text(summary + ("usable " if good else "not usable ") + mode, "green" if good else "red")


def build_release_table(name: str, matrix: Matrix, today: date) -> Group:
    """Return the pins by component and profile, with what is public about the release."""
    release = matrix.releases[name]
    table = Table(title=name, title_justify="left", header_style="bold")
    table.add_column("component")
    for name_of_profile in release.profiles:
        table.add_column(name_of_profile)
    kinds = dict.fromkeys(k for p in release.profiles.values() for k in p.pins)
    notices: dict[str, None] = {}
    for kind in kinds:
        cells = []
        for pins in (profile.pins for profile in release.profiles.values()):
            pin = pins.get(kind)
            cells.append(_cell(pin))
            notices |= dict.fromkeys(list_pin_notices(matrix, kind, pin)) if pin else {}
        table.add_row(kind, *cells)
    for rule in release.requires:
        table.caption = (f"{table.caption}\n" if table.caption else "") + f"rule: {rule.name}"
    lines = [Text(f"  {line}") for line in describe_lines(matrix, name, today)]
    lines += [Text(f"  security: {describe_notice(matrix, n)}", "yellow") for n in notices]
    return Group(table, *lines)


def _cell(pin: Pin | None) -> str:
    if pin is None:
        return ""
    bounds = f" ({pin.bounds})" if pin.bounds else ""
    return " · ".join((pin.version, *pin.also)) if pin.known else f"{UNKNOWN}{bounds}"


def describe_lines(matrix: Matrix, name: str, today: date) -> list[str]:
    """Return what is public about a release beside its pins, in lines."""
    at = describe_release(matrix, name, today)
    age = "not dated" if at.age_days is None else f"{at.dated}, {at.age_days} days old"
    lines = [age if at.is_exact or at.age_days is None else f"first named {age} or more"]
    lines += [f"superseded by {', '.join(at.superseded_by)}"] if at.superseded_by else []
    lines.append(f"support: {at.support}" + (" (over)" if at.is_over else ""))
    lines += [f"known issue {issue}" for issue in at.issues]
    left = matrix.releases[name].leaves
    return [*lines, *([f"left to the site: {', '.join(left)}"] if left else [])]


def build_line_table(matrix: Matrix, names: Sequence[str], today: date) -> Table:
    """Return a line of releases: a row for each component, and a column for each release."""
    table = Table(header_style="bold")
    table.add_column("component")
    for name in names:
        at = describe_release(matrix, name, today)
        age = "" if at.age_days is None else f"{at.age_days // 30} months"
        more = " (support over)" if at.is_over else ""
        table.add_column(f"{name}\n{age}{more}")
    kinds = dict.fromkeys(
        k for n in names for p in matrix.releases[n].profiles.values() for k in p.pins
    )
    for kind in kinds:
        cells = []
        for name in names:
            pins = [p.pins[kind] for p in matrix.releases[name].profiles.values() if kind in p.pins]
            versions = dict.fromkeys(pin.version for pin in pins)
            warned = any(list_pin_notices(matrix, kind, pin) for pin in pins)
            cells.append("\n".join(versions) + (" !" if warned else ""))
        table.add_row(kind, *cells)
    return table


def build_diff_table(older: str, newer: str, move: ProfileDiff) -> Group:
    table = Table(
        title=f"{move.profile}: {older} → {newer}", title_justify="left", header_style="bold"
    )
    for column in ("component", older, newer):
        table.add_column(escape(column))
    for change in move.changes:
        table.add_row(change.kind, escape(change.before), escape(change.after))
    lines: list[RenderableType] = [table]
    lines += [Text(f"  {n}. {title}") for n, title in enumerate(move.steps, start=1)]
    for blocker in move.blockers:
        lines.append(Text(f"  blocked: {blocker}. {blocker.unblock}", style="red"))
    if move.left_out:
        lines.append(Text(f"  not planned, not published: {', '.join(move.left_out)}", "yellow"))
    price = f"{len(move.steps)} steps, {move.resets} resets, {move.outages} outages"
    lines.append(Text(f"  {price}, about {move.minutes} minutes\n", style="bold"))
    return Group(*lines)


app = typer.Typer(help="The pinned matrix: check, show, compare, draw, fill.", no_args_is_help=True)
for verb, command in find_verbs("matrix"):
    app.command(verb)(command)

Files = MatrixOption
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Production = Annotated[
    bool,
    typer.Option(
        "--production", help="Block on unknown pins, missing digests and missing evidence too."
    ),
]

BLOCKED = 1  # exit code: read, but not usable


@app.command()
def check(
    matrix: Files = None,
    releases: Annotated[
        list[str] | None,
        typer.Option("--release", help="Only what this release needs; repeatable."),
    ] = None,
    profiles: Annotated[
        list[str] | None, typer.Option("--profile", help="Only this hardware profile; repeatable.")
    ] = None,
    inventories: Annotated[
        list[Path] | None,
        typer.Option(
            "--inventory",
            help="Plan this node too, as `inspect --json` printed it; needs one --release.",
        ),
    ] = None,
    *,
    json_: Json = False,
    production: Production = False,
) -> None:
    """Check that releases are reachable, and list the obstacles to their use in production.

    With --release and --profile only what a site uses is judged. With --inventory each node is
    planned as the daemon would plan it, and all that stands against it is listed at once.

    Exit code 0: usable; 1: a release is blocked; 2: the input is wrong.

    Example: provisioner matrix check --matrix site.yaml --release spectrum-x-1.3.0 --production

    Example: provisioner matrix check --matrix site.yaml --release spectrum-x-1.3.0
    --inventory node.json --production
    """
    pinned, located = read_located_matrix(matrix or [])
    use = choose_use(pinned, releases or (), profiles or ())
    remarks = (
        *_plan_nodes(pinned, use, inventories or (), production=production),
        *review_matrix(pinned, located=located, use=use),
    )
    states = judge_readiness(pinned, use=use)
    blocking = {Weight.BLOCKS, Weight.PRODUCTION} if production else {Weight.BLOCKS}
    good = not any(remark.weight in blocking for remark in remarks)
    if json_:
        report = {
            "digest": pinned.digest(),
            "ok": good,
            "production": production,
            "remarks": [remark.model_dump(mode="json") for remark in remarks],
            "faults": [found.model_dump(mode="json") for found in group_remarks(remarks)],
            "unknown": count_unknown(pinned, located, use).model_dump(mode="json"),
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
        console.print(build_readiness_table(states))
        for line in format_faults(remarks, production=production):
            console.print(line)
        console.print(format_verdict(pinned, remarks, good=good, production=production, use=use))
    raise typer.Exit(0 if good else BLOCKED)


@app.command()
def show(
    release: Annotated[str, typer.Argument(help="A release; by default all of them.")] = "",
    matrix: Files = None,
    *,
    json_: Json = False,
) -> None:
    """Show every line of releases by component, or the pins of one release for each profile.

    "!": a security notice concerns the version. `--json` has the age, the support, what supersedes
    it and the notices of each release too.

    Example: provisioner matrix show

    Example: provisioner matrix show spectrum-x-1.3.0
    """
    pinned = read_matrix(matrix or [])
    names = [find_release(pinned, release)] if release else list(pinned.releases)
    today = datetime.now(UTC).date()
    if json_:
        chosen = {
            n: {
                **pinned.releases[n].model_dump(mode="json", exclude_defaults=True),
                "standing": describe_release(pinned, n, today).model_dump(mode="json"),
                "security": list_release_notices(pinned, n),
            }
            for n in names
        }
        typer.echo(json.dumps({"releases": chosen}))
        return
    console = open_console()
    if release:
        console.print(build_release_table(names[0], pinned, today))
        return
    for line in list_lines(pinned):
        console.print(build_line_table(pinned, line, today))


@app.command()
def diff(
    older: Annotated[str, typer.Argument(help="The release to move from.")],
    newer: Annotated[str, typer.Argument(help="The release to move to.")],
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
    moves = compare(
        pinned, find_release(pinned, older), find_release(pinned, newer), production=production
    )
    if json_:
        profiles = [move.model_dump(mode="json") for move in moves]
        typer.echo(json.dumps({"from": older, "to": newer, "profiles": profiles}))
    else:
        console = Console()
        for move in moves:
            console.print(build_diff_table(older, newer, move))
    raise typer.Exit(BLOCKED if any(move.blockers for move in moves) else 0)


@app.command()
def export(
    file: Annotated[
        Path | None, typer.Argument(help="A new file; by default the text goes to the terminal.")
    ] = None,
) -> None:
    """Write the shipped matrix, to read it or to keep it beside a site's overlay.

    Example: provisioner matrix export firmware_matrix.yaml
    """
    text = find_shipped(FILE_NAME).read_text(encoding="utf-8")
    if file is None:
        typer.echo(text, nl=False)
        return
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        problem = "it is there already" if isinstance(error, FileExistsError) else error.strerror
        raise InputError(str(file), "", f"{problem}", "Choose another path.") from None
    typer.echo(f"written: {file}")


def choose_use(matrix: Matrix, releases: Sequence[str], profiles: Sequence[str]) -> Use:
    """Return the part of a matrix by its names. Raises InputError for one that it does not have."""
    chosen = frozenset(find_release(matrix, name) for name in releases)
    known = {p for n, r in matrix.releases.items() if n in (chosen or [n]) for p in r.profiles}
    for profile in profiles:
        if profile not in known:
            remedy = f"It is one of: {', '.join(sorted(known))}."
            raise InputError("--profile", profile, "there is no such profile", remedy)
    return Use(chosen, frozenset(profiles))


def _plan_nodes(
    matrix: Matrix, use: Use, inventories: Sequence[Path], *, production: bool
) -> list[Remark]:
    if inventories and len(use.releases) != 1:
        remedy = "Name the release that the nodes shall run: --release."
        raise InputError("--inventory", "", "it needs one release", remedy)
    remarks = []
    for path in inventories:
        (release,) = use.releases
        plan = planning.plan_inventory(read_inventory(path), matrix, release, production=production)
        remarks += [
            Remark(
                weight=Weight.BLOCKS,
                where=f"{path.name}: {blocker.subject}",
                problem=f"{blocker.reason}: {blocker.detail}",
                remedy=blocker.unblock,
            )
            for blocker in plan.blockers
        ]
    return remarks
