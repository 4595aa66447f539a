"""Finds and reads the matrix files that a command names; the shipped one when it names none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.located_yaml import SIZE_MAX
from provisioner.planning.matrix_text import parse

FILE_NAME = "firmware_matrix.yaml"


def read_matrix(paths: Sequence[Path]) -> Matrix:
    """The first file with the others laid over it, in the order given. Raises InputError."""
    return parse([(str(path), read_text(path)) for path in paths or [shipped()]])


def shipped() -> Path:
    """`firmware_matrix.yaml` here, or the one that came with the program."""
    here = Path(FILE_NAME)
    return here if here.exists() else Path(__file__).parents[2] / FILE_NAME


def read_text(path: Path) -> str:
    """The text of a file of at most SIZE_MAX bytes. Raises InputError, never OSError."""
    try:
        if not path.is_file():
            problem = "this is no file" if path.exists() else "there is no such file"
            raise InputError(str(path), "", problem, "Check the path.")
        with path.open("rb") as file:
            content = file.read(SIZE_MAX + 1)
    except OSError as error:
        raise InputError(
            str(path), "", f"it cannot be read ({error.strerror})", "Check its permissions."
        ) from None
    if len(content) > SIZE_MAX:
        raise InputError(
            str(path), "", f"the file is larger than {SIZE_MAX} bytes", "Is it the right file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(
            str(path), f"line {line}", "this is not UTF-8 text", "Save it as UTF-8."
        ) from None
