"""Finds and reads the matrix files that a command names; the shipped one when it names none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.located_yaml import Located
from provisioner.planning.matrix.matrix_text import is_base, parse_located
from provisioner.runtime.shipped import find_shipped, read_text

# ------------------------------------------------------------------------------
# Reads an inventory from a file: as `provisioner inspect --json` prints it, or as a model dump.


BYTES_MAX = 16 * 1024 * 1024  # an HGX host with its ten cards is 100 KB

_REMEDY = "Make it with `provisioner inspect URL --json`."


def read_inventory(path: Path) -> Inventory:
    """Return the inventory in a file. Raises InputError that names the field."""
    data = _load(path)
    if "vendor" not in data and "components" not in data:
        raise InputError(str(path), "", "this is no inventory", _REMEDY)
    try:
        inventory = Inventory.model_validate(_of_inspect(data, path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(str(path), where, first["msg"], _REMEDY) from None
    identities: set[tuple[str, str, str]] = set()
    for c in inventory.components:
        key = (c.kind, c.slot, c.source)
        if key in identities:
            raise InputError(
                str(path), "components", f"{c.kind}/{c.slot} is listed twice", "Keep one of them."
            )
        identities.add(key)
    return inventory


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise InputError(str(path), "", problem, "Check the path.") from None
    if len(raw) > BYTES_MAX:
        raise InputError(str(path), "", f"larger than {BYTES_MAX} bytes", _REMEDY)
    try:
        data = json.loads(raw)
    except json.JSONDecodeError as error:
        raise InputError(
            str(path), f"line {error.lineno}", f"not JSON: {error.msg}", _REMEDY
        ) from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise InputError(str(path), "", "not JSON in UTF-8", _REMEDY) from None
    if not isinstance(data, dict):
        raise InputError(str(path), "", "not a JSON object", _REMEDY)
    return data


def _of_inspect(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Convert the output of `inspect` to the model's fields; a model dump is left as it is."""
    if "node" in data:
        return data
    system = data.get("system")
    system = system if isinstance(system, dict) else {}
    fields = {
        "system_serial": system.get("serial"),
        "system_uuid": system.get("uuid"),
        "model": system.get("model"),
        "power": system.get("power", "Unknown"),
    }
    return {
        "node": path.stem,
        "vendor": data.get("quirk") or data.get("vendor") or "unknown",
        **fields,
        **{key: data[key] for key in ("components", "devices", "obstacles", "gaps") if key in data},
    }


# ------------------------------------------------------------------------------
# The data directory of a command that works beside a daemon, or in place of one.


DataOption = Annotated[Path, typer.Option("--data", help="Data directory of the daemon.")]


FILE_NAME = "firmware_matrix.yaml"
MatrixOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--matrix",
        help="The site's overlay of the shipped matrix, or a matrix of its own and overlays; "
        "repeatable, laid over one another in order.",
    ),
]


def read_matrix(paths: Sequence[Path]) -> Matrix:
    """Return the first file with the others laid over it, in order. Raises InputError."""
    return read_located_matrix(paths)[0]


def read_located_matrix(paths: Sequence[Path]) -> tuple[Matrix, Located]:
    """Return the matrix of `read_matrix` with its text, for the lines of remarks."""
    return parse_located(read_matrix_texts(paths))


@dataclass(frozen=True)
class Pinned:
    """A matrix, and the files that it was read from: (path, text) of the base and each overlay."""

    matrix: Matrix
    texts: Sequence[tuple[str, str]]


def read_pinned(paths: Sequence[Path]) -> Pinned:
    """Return the matrix of `read_matrix` with its files' texts. Raises InputError."""
    texts = read_matrix_texts(paths)
    return Pinned(parse_located(texts)[0], texts)


def read_matrix_texts(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Return (name, text) of the files that a command names, with the shipped matrix below them.

    The shipped one is left out where the first file is a matrix of its own (`is_base`).
    `firmware_matrix.yaml` is the shipped one, unless the working directory has its own. Raises
    InputError for a file that cannot be read.
    """
    places = [find_shipped(FILE_NAME) if str(path) == FILE_NAME else path for path in paths]
    texts = [(str(path), read_text(path)) for path in places or [find_shipped(FILE_NAME)]]
    if places and not is_base(*texts[0]):
        shipped = find_shipped(FILE_NAME)
        texts.insert(0, (str(shipped), read_text(shipped)))
    return texts


def find_release(matrix: Matrix, name: str) -> str:
    """Return the name of a release. Raises InputError for one that the matrix does not have."""
    if name not in matrix.releases:
        raise InputError(
            "release",
            name,
            "there is no such release",
            f"It is one of: {', '.join(matrix.releases)}.",
        )
    return name
