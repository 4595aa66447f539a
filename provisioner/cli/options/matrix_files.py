"""Finds and reads the matrix files that a command names; the shipped one when it names none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from provisioner.daemon.data import read_text
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.located_yaml import Located
from provisioner.planning.matrix.matrix_text import parse_located
from provisioner.runtime.shipped import find_shipped

FILE_NAME = "firmware_matrix.yaml"
MatrixOption = Annotated[
    list[Path] | None,
    typer.Option("--matrix", help="Matrix file, then overlays, as for `serve`; repeatable."),
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
    """Return the files that a command names, or the shipped one, with their texts."""
    return [(str(path), read_text(path)) for path in paths or [find_shipped(FILE_NAME)]]
