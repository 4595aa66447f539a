"""`provisioner matrix import --settings`: draft sets from a good node's settings."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from provisioner.cli.options.matrix_files import read_located_matrix, read_matrix_texts
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.machine_settings.learned_sets import LearnedSets, learn_sets
from provisioner.planning.machine_settings.pinned_sets import BIOS
from provisioner.planning.matrix.imports.overlay_draft import Place, check_place
from provisioner.planning.matrix.matrix_text import parse_located

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
