"""Opens what a command needs from the disk: the data directory, the matrix, the settings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from provisioner.execution.intake import Secrets
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning import expected_text, matrix_text
from provisioner.planning.located_yaml import load
from provisioner.ports import Secret
from provisioner.settings import Settings
from provisioner.store.master_key import prepare_key
from provisioner.store.signing import Signer, open_signer
from provisioner.store.sql_store import SqlStore, open_store
from provisioner.store.vault import Vault

DATABASE = "provisioner.db"


@dataclass(frozen=True)
class Data:
    """What a data directory holds."""

    store: SqlStore
    vault: Vault
    signer: Signer


@asynccontextmanager
async def open_data(directory: Path, now: float) -> AsyncIterator[Data]:
    """Open (and make, if need be) a data directory; closed at the end."""
    store = open_store(directory / DATABASE)
    try:
        key = await prepare_key(store, directory, os.environ)
        yield Data(store, Vault(store, key), await open_signer(store, key, now))
    finally:
        await store.close()


def read_text(path: Path) -> str:
    """A file that a person named. Raises InputError if it cannot be read as text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), "", f"cannot be read: {error}", "Name another file.") from None


def read_matrix(paths: Sequence[Path]) -> Matrix:
    """The matrix with its overlays, in order."""
    return matrix_text.parse([(str(p), read_text(p)) for p in paths])


def read_expected(path: Path) -> Expected:
    """The expected-hardware list."""
    return expected_text.parse(str(path), read_text(path))


def read_settings(path: Path | None, **overrides: object) -> Settings:
    """Settings from a YAML file of `name: value` lines, then what the command line says."""
    values: dict[str, object] = {}
    if path is not None:
        located = load(str(path), read_text(path))
        if not isinstance(located.tree, dict):
            raise located.error((), "these are not settings", "Write lines of `name: value`.")
        values.update(located.tree)
    values.update({k: v for k, v in overrides.items() if v is not None})
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(p) for p in first["loc"])
        raise InputError(
            str(path or "settings"), f"field {field}", first["msg"], "See docs/settings.md."
        ) from None


def read_secrets(expected: Expected, environ: Mapping[str, str]) -> Secrets:
    """Resolve the passwords that the list points to. Raises InputError for one that is missing."""
    factory = {
        vendor: (c.username, _secret(vendor, c.password, c.password_env, c.password_file, environ))
        for vendor, c in expected.factory_credentials.items()
    }
    switches = {
        n.name: (n.username, _secret(n.name, n.password, n.password_env, n.password_file, environ))
        for n in expected.nodes
        if n.username
    }
    return Secrets(factory=factory, switches=switches)


def _secret(
    name: str, password: str, variable: str, file: str, environ: Mapping[str, str]
) -> Secret:
    if variable:
        if variable not in environ:
            raise InputError(name, "password_env", f"{variable} is not set", "Set and export it.")
        return Secret(environ[variable])
    if file:
        return Secret(read_text(Path(file)).strip())
    return Secret(password)
