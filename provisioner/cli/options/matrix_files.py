"""Finds and reads the matrix files that a command names; the shipped one when it names none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provisioner.daemon.data import read_text
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.matrix_text import parse
from provisioner.runtime.shipped import shipped

FILE_NAME = "firmware_matrix.yaml"


def read_matrix(paths: Sequence[Path]) -> Matrix:
    """The first file with the others laid over it, in the order given. Raises InputError."""
    return parse([(str(path), read_text(path)) for path in paths or [shipped(FILE_NAME)]])
