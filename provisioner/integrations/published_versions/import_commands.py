"""`provisioner matrix refresh` and `fill`: draft an overlay of published or read versions."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
import yaml
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from provisioner import components
from provisioner.cli.options.matrix_files import (
    read_inventory,
    read_located_matrix,
    read_matrix_texts,
)
from provisioner.cli.options.tables import Table
from provisioner.integrations.matrix_tools.deciding.review import (
    Remark,
    Weight,
    group_remarks,
    review_matrix,
)
from provisioner.integrations.published_versions.deciding.learned_sets import (
    LearnedSets,
    learn_sets,
)
from provisioner.integrations.published_versions.deciding.overlay_draft import (
    Draft,
    Place,
    Verdict,
    check_place,
    draft_overlay,
    identify_bundle,
    state_good_node,
)
from provisioner.integrations.published_versions.deciding.published_pages import Choice
from provisioner.integrations.published_versions.deciding.reading import read_import
from provisioner.integrations.published_versions.deciding.statements import Import
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix, Pin
from provisioner.model.outcome import Blocker
from provisioner.model.versions import is_same_version
from provisioner.planning.machine_settings.pinned_sets import BIOS
from provisioner.planning.matrix.matrix_text import parse_located
from provisioner.planning.matrix.readiness import Use
from provisioner.planning.path.conditions import grammar_of
from provisioner.planning.path.profiles import choose_profile
from provisioner.runtime.late_module import LateModule

if TYPE_CHECKING:
    from provisioner.cli.client import connection
    from provisioner.integrations.published_versions import public_address
else:  # for addresses and for nodes that a daemon has
    public_address = LateModule("provisioner.integrations.published_versions.public_address")
    connection = LateModule("provisioner.cli.client.connection")

# ------------------------------------------------------------------------------
# `provisioner matrix refresh --settings`: draft sets from a good node's settings.


NewFile = Annotated[Path | None, typer.Option("--out", help="Write the overlay to this new file.")]
Matrices = Annotated[
    list[Path] | None, typer.Option("--matrix", help="Overlay, or matrix file; repeatable.")
]
BYTES_MAX = 64 * 1024 * 1024
FOLDER_FILES_MAX = 1000  # of a folder of files that packages are looked for in
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


def refresh_versions(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Saved pages, text of PDFs, YAML of repositories, catalogues, .fwpkg, .bfb, CSV, "
            "JSON; or https addresses of them."
        ),
    ] = None,
    matrix: Matrices = None,
    section: Annotated[
        str, typer.Option("--section", help="Only tables whose heading contains this text.")
    ] = "",
    column: Annotated[
        str, typer.Option("--column", help="Heading of the column with the versions.")
    ] = "",
    like: Annotated[
        str, typer.Option("--like", help="Draft --release anew, for this release's nodes.")
    ] = "",
    ca: Annotated[
        Path | None, typer.Option("--ca", help="PEM file of the authorities of addresses.")
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
    out: NewFile = None,
    *,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """Draft an overlay from published tables: a difference to review, never a change of the matrix.

    New releases, filled unknowns and changed versions are shown, each with its source and the row
    that it was read from. What could be read in two ways is refused with its row, and nothing is
    written. The overlay goes to stdout or to a new file, the difference to stderr. Exit code 0: it
    loads and `matrix check` has no new obstacle; 1: it has one; 2: an input is wrong.

    Example: provisioner matrix refresh General-Support.html --release doca-2.9.4-lts
    --profile hgx-h100-bf3 --evidence 'docs.nvidia.com/doca, read 2026-11-29'
    """
    place = Place(release=release, profiles=tuple(profile or ()), like=like)
    if settings is not None:
        _import_settings(settings, matrix or [], place, name, evidence, out, as_json=json_)
        return
    if not files or len(files) > FILES_MAX:
        remedy = f"Name 1 to {FILES_MAX} files, or --settings FILE."
        raise InputError("FILE", "", f"{len(files or ())} files are named", remedy)
    given = (dict(map(_read_map, name_map or [])), tuple(system or ()), Choice(section, column), ca)
    imports = [_read_source(name, *given) for name in files]
    _draft(imports, matrix or [], place, evidence, out, as_json=json_)


def fill_versions(
    node: Annotated[
        str,
        typer.Argument(help="A good node: its name, or a file of `provisioner node inventory`."),
    ] = "",
    source: Annotated[str, typer.Option("--from", help="The same, as an option.")] = "",
    release: Annotated[
        str, typer.Option("--release", help="Release whose unknown pins it fills.")
    ] = "",
    by: Annotated[str, typer.Option("--by", help="Who declares the node good: a name.")] = "",
    profile: Annotated[
        str, typer.Option("--profile", help="Its profile; by default the one that matches.")
    ] = "",
    files: Annotated[
        list[str] | None,
        typer.Option("--file", help="KIND=NAME: the file that brings a component; repeatable."),
    ] = None,
    artifacts: Annotated[
        Path,
        typer.Option(help="Folder of files; .fwpkg and .bfb in it are placed by their contents."),
    ] = Path("artifacts"),
    vouch: Annotated[
        str,
        typer.Option("--vouch", help="Why the site trusts moves into these pins without a source."),
    ] = "",
    matrix: Matrices = None,
    out: NewFile = None,
    *,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """Draft an overlay that fills unknown pins with the versions of a known good node.

    Each version is the site's own evidence, with the node, the name and the date. What the node
    does not show, or shows in several versions, stays unknown and is named. Published versions are
    never replaced; their files are filled. Moves from other versions no node can show: they keep
    their sources, and with --vouch get the site's word. What still keeps the release from
    production is told.

    Example: provisioner matrix fill --from su0-n00 --release spectrum-x-1.3.0 --by ada
    --artifacts /srv/firmware --out site.yaml
    """
    if bool(node) == bool(source):
        raise InputError("--from", source, "name one good node", "Give its name or its file once.")
    pinned = read_located_matrix(matrix or [])[0]
    inventory = _read_good_node(node or source)
    if release not in pinned.releases:
        remedy = f"It is one of: {', '.join(pinned.releases)}."
        raise InputError("--release", release, "there is no such release", remedy)
    chosen = profile or choose_profile(inventory, pinned.releases[release])
    if isinstance(chosen, Blocker):
        raise InputError(node or source, "", chosen.detail, "Name it with --profile.")
    place = Place(release=release, profiles=(chosen,))
    check_place(pinned, place)
    if not by.strip():
        raise InputError("--by", "", "it is empty", "Name the person who declares the node good.")
    day = datetime.now(UTC).date().isoformat()
    evidence = f"node {inventory.node}, which {by.strip()} declares good; read {day}"
    pins = pinned.releases[release].profiles[chosen].pins
    brought = _find_brought(artifacts, inventory, pins, pinned.bundles)
    brought |= dict(_read_brought(text, artifacts) for text in files or [])
    stated = state_good_node(inventory, pins, evidence, brought, pinned.bundles)
    word = f"{by.strip()}, {day}: {vouch.strip()}" if vouch.strip() else ""
    _draft([stated], matrix or [], place, evidence, out, as_json=json_, vouched=word)


def _read_good_node(name: str) -> Inventory:
    """Return the inventory in a file, or of a node that the daemon has. Raises InputError."""
    if Path(name).is_file() or "/" in name or name.endswith(".json"):
        return read_inventory(Path(name))
    try:
        answer = connection.connect(connection.find_place({})).send_request(
            "GET", f"/nodes/{name}/inventory"
        )
    except connection.NoAnswer as error:
        remedy = "Name a file: `provisioner node inventory NODE -o json > node.json`."
        raise InputError("--from", name[:80], f"no daemon answers: {error}", remedy) from None
    if not answer.good:
        detail = answer.document.get("detail", "") if isinstance(answer.document, dict) else ""
        problem = f"the daemon has no inventory of it ({detail or answer.status})"
        raise InputError("--from", name[:80], problem, "See `provisioner node list`.")
    try:
        return Inventory.model_validate(answer.document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"the daemon's inventory is of another version: {first['msg']}"
        raise InputError("--from", name[:80], problem, "Use the daemon's own program.") from None


def _find_brought(
    folder: Path,
    inventory: Inventory,
    pins: Mapping[str, Pin],
    bundles: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, tuple[str, str]]:
    """Return the file of each component whose version a package in the folder states."""
    running = {part.kind: part.version or "" for part in inventory.components}
    brought: dict[str, tuple[str, str]] = {}
    listed = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in listed[:FOLDER_FILES_MAX]:
        if path.suffix not in (".fwpkg", ".bfb") or not path.is_file():
            continue
        for stated in _read_file(path, {}, (), Choice()).statements:
            pin = pins.get(stated.kind)
            version = pin.version if pin is not None and pin.known else running.get(stated.kind, "")
            grammar = grammar_of(stated.kind)
            if not version and stated.kind in bundles:
                version = identify_bundle(bundles[stated.kind], inventory)
            if stated.file and is_same_version(grammar, version, stated.version):
                brought[stated.kind] = (stated.file, stated.sha256)
    return brought


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
    vouched: str = "",
) -> None:
    """Print the difference and the overlay, and end with its exit code."""
    texts = read_matrix_texts(matrices)
    pinned, located = read_located_matrix(matrices)
    draft = draft_overlay(pinned, located, imports, place, evidence=evidence, vouched=vouched)
    result, result_text = parse_located([*texts, ("the draft", draft.text)])
    obstacles = [r for r in review_matrix(result, located=result_text) if r.weight is Weight.BLOCKS]
    if obstacles:  # those that the draft brings; a review takes a second
        blocks = (r for r in review_matrix(pinned) if r.weight is Weight.BLOCKS)
        known = {(r.where, r.problem) for r in blocks}
        obstacles = [r for r in obstacles if (r.where, r.problem) not in known]
    if out is not None:
        _write_new(out, draft.text)
    if place.release:
        use = Use(frozenset({place.release}), frozenset(place.profiles))
        left = [
            remark
            for remark in review_matrix(result, located=result_text, use=use)
            if remark.weight is Weight.PRODUCTION
        ]
        told = [
            f"keeps {place.release} from production: {f.problem}: {', '.join(f.places)}"
            for f in group_remarks(left)
        ]
        draft = draft.model_copy(update={"notes": (*draft.notes, *told)})
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


def _read_source(
    name: str, maps: dict[str, str], systems: tuple[str, ...], choice: Choice, ca: Path | None
) -> Import:
    """Read a file, or what an address answers; that address and the day are its evidence."""
    if "://" not in name:
        return _read_file(Path(name), maps, systems, choice)
    file, content = public_address.fetch(name, str(ca or ""))
    sha256 = hashlib.sha256(content).hexdigest()
    read = read_import(file, content, sha256=sha256, maps=maps, systems=systems, choice=choice)
    source = f"{name.partition('?')[0]}, read {datetime.now(UTC).date().isoformat()}"
    stated = (s._replace(evidence=s.evidence or source) for s in read.statements)
    return read._replace(statements=tuple(stated))


def _read_file(
    path: Path, maps: dict[str, str], systems: tuple[str, ...], choice: Choice
) -> Import:
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
                    choice=choice,
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
        reason = "; ".join(text for text in (change.row, change.reason) if text)
        table.add_row(verdict, *map(escape, cells), escape(reason))
    return table
