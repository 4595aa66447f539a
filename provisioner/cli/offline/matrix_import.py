"""`provisioner matrix import`: draft an overlay from makers' files, with no daemon."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import yaml
from rich.console import Console
from rich.markup import escape

from provisioner import components
from provisioner.cli.options.checked_options import Table
from provisioner.cli.options.matrix_files import (
    read_inventory,
    read_located_matrix,
    read_matrix_texts,
)
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.outcome import Blocker
from provisioner.planning.machine_settings.pinned_sets import BIOS
from provisioner.planning.machine_settings.running_sets import LearnedSets, learn_sets
from provisioner.planning.matrix.imports.overlay_draft import (
    Draft,
    Place,
    Verdict,
    check_place,
    draft_overlay,
    state_good_node,
)
from provisioner.planning.matrix.imports.reading import read_import
from provisioner.planning.matrix.imports.statements import Import
from provisioner.planning.matrix.matrix_text import parse_located
from provisioner.planning.matrix.review import Remark, Weight, review_matrix
from provisioner.planning.path.profiles import choose_profile

# ------------------------------------------------------------------------------
# `provisioner matrix import --settings`: draft sets from a good node's settings.


BYTES_MAX = 64 * 1024 * 1024
_REMEDY = "Make it with `provisioner inspect URL --settings --json > node.json`."


def draft_settings(
    node: Path, matrices: Sequence[Path], place: Place, name: str, evidence: str
) -> tuple[str, LearnedSets, list[dict[str, str]]]:
    """Return the overlay, the learned sets, and the difference from those that are pinned."""
    matrix, _ = read_located_matrix(matrices)
    check_place(matrix, place)
    learned = learn_sets(read_document(node), str(node))
    if not learned.sets:
        raise InputError(str(node), "settings", "no setting of it has a meaning", _REMEDY)
    pinned = list_pinned(matrix, learned, place)
    notes = [
        f"{kind} of {profile} is {old}: write `override: true`" for kind, profile, old in pinned
    ]
    learned = learned.model_copy(update={"notes": (*learned.notes, *notes)})
    held = {(kind, profile) for kind, profile, _ in pinned}
    text = write_overlay(learned, place, name, evidence, held)
    parse_located([*read_matrix_texts(matrices), ("the draft", text)])
    return text, learned, list_differences(matrix, learned, place)


def read_document(node: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InputError."""
    try:
        with node.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
        document = json.loads(raw) if len(raw) <= BYTES_MAX else None
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(node), "", problem, "Check the path.") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InputError(str(node), "", "it is no JSON object of an inspection", _REMEDY)
    return document


def list_pinned(matrix: Matrix, learned: LearnedSets, place: Place) -> list[tuple[str, str, str]]:
    """Return kind, profile and set of each pin that has a set: a draft never replaces it."""
    profiles = matrix.releases[place.release].profiles if place.release else {}
    pins = [(kind, p, profiles[p].pins.get(kind)) for kind in learned.sets for p in place.profiles]
    return [(kind, p, pin.version) for kind, p, pin in pins if pin is not None and pin.known]


def write_overlay(
    learned: LearnedSets, place: Place, name: str, evidence: str, held: Container[tuple[str, str]]
) -> str:
    """Return the overlay: the sets, their edges, and their pins where profiles are named.

    `held`: kinds and profiles that have a pin already.
    """
    source = {"evidence": evidence} if evidence else {}
    names = {kind: f"{name}-{'bios' if kind == BIOS else 'bmc'}" for kind in learned.sets}
    tree: dict[str, Any] = {"schema": "1"}
    if place.profiles:
        profiles = {
            profile: {
                "pins": {
                    kind: {"version": names[kind], **source}
                    for kind in names
                    if (kind, profile) not in held
                }
            }
            for profile in place.profiles
        }
        tree["releases"] = {place.release: {"profiles": profiles}}
    tree["edges"] = {
        kind: [
            {
                "from": ["*"],
                "to": names[kind],
                "activates_by": "warm_reboot" if kind == BIOS else "none",
                **source,
            }
        ]
        for kind in names
    }
    tree["machine_settings"] = {names[kind]: settings for kind, settings in learned.sets.items()}
    dumped = json.loads(json.dumps(tree))  # no anchors: each pin is written out
    return yaml.safe_dump(dumped, sort_keys=False, allow_unicode=True, width=120)


def list_differences(matrix: Matrix, learned: LearnedSets, place: Place) -> list[dict[str, str]]:
    """Return a line for each setting of the sets that the named profiles pin, and of the new."""
    rows = []
    profiles = matrix.releases[place.release].profiles if place.release else {}
    for kind, settings in learned.sets.items():
        pins = [profiles[p].pins.get(kind) for p in place.profiles]
        before: dict[str, str] = {}
        for pin in pins:
            before |= matrix.machine_settings.get(pin.version, {}) if pin is not None else {}
        for name in sorted({*before, *settings}):
            old = before.get(name, "")
            new = settings.get(name, "")
            verdict = "same" if old == new else "differs" if old and new else "adds"
            if old and not new:
                verdict = "not learned"
            row = {"verdict": verdict, "kind": kind, "setting": name, "before": old, "after": new}
            rows.append(row)
    return rows


def show_settings_draft(
    text: str, learned: LearnedSets, rows: Sequence[dict[str, str]], out: Path | None
) -> None:
    """Print the difference and the notes to stderr, and the overlay to stdout."""
    console = Console(stderr=True)
    table = Table(title="Difference", title_justify="left", header_style="bold")
    for column in ("verdict", "kind", "setting", "before", "after"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row.values()))
    console.print(table)
    for note in learned.notes:
        console.print(f"note: {escape(note)}", highlight=False)
    typer.echo(f"written: {out}" if out is not None else text, nl=out is not None)


FILES_MAX = 64  # a release is some ten files
BLOCKED = 1  # exit code: drafted, but `matrix check` would block it
_COLOURS = {
    Verdict.CLOSES: "green",
    Verdict.ADDS: "green",
    Verdict.FILE: "green",
    Verdict.SAME: "dim",
    Verdict.DIFFERS: "red",
    Verdict.CONFLICT: "red",
    Verdict.UNCLASSIFIED: "yellow",
    Verdict.UNPLACED: "yellow",
}


def import_versions(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="PLDM package, BFB, Catalog.xml(.gz), CSV or NVIDIA's JSON."),
    ] = None,
    matrix: Annotated[
        list[Path] | None,
        typer.Option("--matrix", help="Matrix file to compare with; repeat it for overlays."),
    ] = None,
    release: Annotated[
        str, typer.Option("--release", help="Release whose unknown pins may be closed.")
    ] = "",
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", help="Profile that the files are for; repeatable."),
    ] = None,
    evidence: Annotated[
        str, typer.Option("--evidence", help="Where the versions were published, and when read.")
    ] = "",
    name_map: Annotated[
        list[str] | None,
        typer.Option("--map", help="NAME=KIND: the component kind of a file's own name."),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", help="Model or system Id in a Dell catalogue; repeatable."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="JSON of `inspect --settings` of a good node: draft sets."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of the sets that --settings drafts.")
    ] = "learned",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the overlay to this new file.")
    ] = None,
    *,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """Draft an overlay from makers' files: a difference to review, never a change of the matrix.

    The overlay goes to stdout or to a new file, the difference to stderr. Exit code 0: it loads and
    `matrix check` has no new obstacle; 1: it has one; 2: an input is wrong.

    Example: provisioner matrix import nvfw_HGX-H100x8_0002_230517.3.0.fwpkg --out draft.yaml
    """
    place = Place(release=release, profiles=tuple(profile or ()))
    if settings is not None:
        _import_settings(settings, matrix or [], place, name, evidence, out, as_json=json_)
        return
    if not files or len(files) > FILES_MAX:
        problem = f"more than {FILES_MAX} files" if files else "no file is named"
        raise InputError("FILE", "", problem, f"Name 1 to {FILES_MAX} files, or --settings FILE.")
    maps = dict(_read_map(text) for text in name_map or [])
    imports = [_read_file(path, maps, tuple(system or ())) for path in files]
    _draft(imports, matrix or [], place, evidence, out, as_json=json_)


def fill_versions(
    node: Annotated[
        Path,
        typer.Argument(help="Inventory of a good node: `provisioner node inventory NODE -o json`."),
    ],
    release: Annotated[str, typer.Option("--release", help="Release whose unknown pins it fills.")],
    by: Annotated[str, typer.Option("--by", help="Who declares the node good: a name.")],
    profile: Annotated[
        str, typer.Option("--profile", help="Its profile; by default the one that matches.")
    ] = "",
    files: Annotated[
        list[str] | None,
        typer.Option("--file", help="KIND=NAME: the file that brings a component; repeatable."),
    ] = None,
    artifacts: Annotated[
        Path, typer.Option(help="Folder of these files: their SHA-256 is computed.")
    ] = Path("artifacts"),
    matrix: Annotated[
        list[Path] | None,
        typer.Option("--matrix", help="Overlay, or matrix file; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the overlay to this new file.")
    ] = None,
    *,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """Draft an overlay that fills unknown pins with the versions of a known good node.

    Each version is the site's own evidence, with the node, the name and the date. What the node
    does not show, or shows in several versions, stays unknown and is named. Published versions are
    never replaced. Nodes with other versions need edges to these, which no node can show.

    Example: provisioner matrix fill node.json --release spectrum-x-1.3.0 --by ada --out site.yaml
    """
    pinned = read_located_matrix(matrix or [])[0]
    inventory = read_inventory(node)
    if release not in pinned.releases:
        remedy = f"It is one of: {', '.join(pinned.releases)}."
        raise InputError("--release", release, "there is no such release", remedy)
    chosen = profile or choose_profile(inventory, pinned.releases[release])
    if isinstance(chosen, Blocker):
        raise InputError(str(node), "", chosen.detail, "Name it with --profile.")
    place = Place(release=release, profiles=(chosen,))
    check_place(pinned, place)
    if not by.strip():
        raise InputError("--by", "", "it is empty", "Name the person who declares the node good.")
    day = datetime.now(UTC).date().isoformat()
    source = f"node {inventory.node}, which {by.strip()} declares good; read {day}"
    brought = dict(_read_brought(text, artifacts) for text in files or [])
    pins = pinned.releases[release].profiles[chosen].pins
    stated = state_good_node(inventory, pins, source, brought)
    _draft([stated], matrix or [], place, source, out, as_json=json_)


def _read_brought(text: str, folder: Path) -> tuple[str, tuple[str, str]]:
    """Return a component kind with the name and the SHA-256 of its file. Raises InputError."""
    kind, _, name = text.partition("=")
    if kind not in components.ALL or not name or Path(name).name != name:
        raise InputError("--file", text, "this is no KIND=NAME", "Name a file of --artifacts.")
    try:
        with (folder / name).open("rb") as file:
            return kind, (name, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError("--file", str(folder / name), problem, "Check --artifacts.") from None


def _draft(
    imports: Sequence[Import],
    matrices: Sequence[Path],
    place: Place,
    evidence: str,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print the difference and the overlay, and end with its exit code."""
    texts = read_matrix_texts(matrices)
    pinned, located = read_located_matrix(matrices)
    draft = draft_overlay(pinned, located, imports, place, evidence=evidence)
    result, result_text = parse_located([*texts, ("the draft", draft.text)])
    known = {(r.where, r.problem) for r in review_matrix(pinned) if r.weight is Weight.BLOCKS}
    obstacles = [
        remark
        for remark in review_matrix(result, located=result_text)
        if remark.weight is Weight.BLOCKS and (remark.where, remark.problem) not in known
    ]
    if out is not None:
        _write_new(out, draft.text)
    _show(draft, obstacles, out, as_json=as_json)
    raise typer.Exit(BLOCKED if obstacles else 0)


def _import_settings(
    node: Path,
    matrices: Sequence[Path],
    place: Place,
    name: str,
    evidence: str,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    text, learned, rows = draft_settings(node, matrices, place, name, evidence)
    if out is not None:
        _write_new(out, text)
    if as_json:
        typer.echo(json.dumps({"text": text, "changes": rows, "notes": learned.notes}))
    else:
        show_settings_draft(text, learned, rows, out)


def _read_map(text: str) -> tuple[str, str]:
    name, _, kind = text.rpartition("=")
    if not name or kind not in components.ALL:
        raise InputError("--map", text, "this is no NAME=KIND", "See docs/matrix.md for the kinds.")
    return name, kind


def _read_file(path: Path, maps: dict[str, str], systems: tuple[str, ...]) -> Import:
    """Read a file through the page cache: a bundle has gigabytes, and a few kilobytes are read."""
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                # it has the length and the slices of bytes, and the readers use no more
                return read_import(
                    path.name,
                    cast("bytes", content),
                    sha256=sha256,
                    maps=maps,
                    systems=systems,
                )
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(path), "", problem, "Check the path and its permissions.") from None
    except ValueError:
        raise InputError(str(path), "", "the file is empty", "Fetch it again.") from None


def _write_new(out: Path, text: str) -> None:
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        problem = "there is a file of this name, and nothing is written over"
        raise InputError("--out", str(out), problem, "Name a new file.") from None
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--out", str(out), problem, "Choose another path.") from None


def _show(draft: Draft, obstacles: Sequence[Remark], out: Path | None, *, as_json: bool) -> None:
    if as_json:
        report = draft.model_dump(mode="json")
        report["obstacles"] = [remark.model_dump(mode="json") for remark in obstacles]
        typer.echo(json.dumps(report))
        return
    console = Console(stderr=True)
    console.print(_build_table(draft))
    for note in draft.notes:
        console.print(f"note: {escape(note)}", highlight=False)
    for remark in obstacles:
        console.print(
            f"[red]`matrix check` would block:[/] {escape(remark.where)}: {escape(remark.problem)}."
            f" {escape(remark.remedy)}",
            highlight=False,
        )
    typer.echo(f"written: {out}" if out is not None else draft.text, nl=out is not None)


def _build_table(draft: Draft) -> Table:
    table = Table(title="Difference", title_justify="left", header_style="bold")
    for column in ("verdict", "release", "profile", "component", "before", "after", "reason"):
        table.add_column(column, overflow="fold")
    for change in draft.changes:
        cells = (change.release, change.profile, change.kind, change.before, change.after)
        verdict = f"[{_COLOURS[change.verdict]}]{change.verdict}[/]"
        table.add_row(verdict, *map(escape, cells), escape(change.reason))
    return table
