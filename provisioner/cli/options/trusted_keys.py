"""Reads the file of public keys that a command trusts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from provisioner.daemon.data import read_text
from provisioner.model.input_error import InputError
from provisioner.store.signing import keys_of

KeyOption = Annotated[Path, typer.Option("--key", help="File with the public keys to trust (PEM).")]
_REMEDY = "Write it where it was signed: provisioner certificate keys --pem"


def read_trusted_keys(file: Path) -> dict[str, bytes]:
    """Return the public keys of a PEM file by key id. Raises InputError if it has none."""
    try:
        keys = dict(keys_of(read_text(file)))
    except ValueError as error:
        raise InputError(str(file), "", f"unreadable key: {error}", _REMEDY) from None
    if not keys:
        raise InputError(str(file), "", "there is no public key in it", _REMEDY)
    return keys
