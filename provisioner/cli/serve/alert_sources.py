"""Reads the list of sources that may push alerts, with their secrets from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from provisioner.daemon.data import read_text
from provisioner.daemon.events import Sender
from provisioner.model.alert import Classification
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.planning.matrix.located_yaml import load
from provisioner.planning.watch.pushed_alerts import ORDINARY, Source
from provisioner.ports import Secret

SECRET_MIN = 16  # characters; a shorter token can be guessed


class Entry(Record):
    """One source. Exactly one of the four fields names the place of its secret."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    format: Literal["alertmanager", "plain"]
    bearer_env: str = ""
    bearer_file: str = ""
    hmac_env: str = ""
    hmac_file: str = ""
    classifications: tuple[Classification, ...] = ORDINARY

    @model_validator(mode="after")
    def _one_secret(self) -> Entry:
        places = (self.bearer_env, self.bearer_file, self.hmac_env, self.hmac_file)
        if sum(map(bool, places)) != 1:
            raise ValueError("give exactly one of bearer_env, bearer_file, hmac_env, hmac_file")
        return self


class AlertSources(Record):
    """The whole file."""

    sources: tuple[Entry, ...] = ()


def read_senders(path: Path | None) -> tuple[Sender, ...]:
    """Return the senders of a file; none without one. Raises InputError."""
    if path is None:
        return ()
    located = load(str(path), read_text(path))
    try:
        sources = AlertSources.model_validate(located.tree).sources
    except ValidationError as error:
        raise located.build_model_error(error, "See docs/watch.md.") from None
    names = [entry.name for entry in sources]
    for name in names:
        if names.count(name) > 1:
            remedy = "Give each source a name of its own."
            raise InputError(str(path), name, "two sources have this name", remedy)
    return tuple(_sender(str(path), entry) for entry in sources)


def _sender(path: str, entry: Entry) -> Sender:
    variable = entry.bearer_env or entry.hmac_env
    file = entry.bearer_file or entry.hmac_file
    secret = os.environ.get(variable, "") if variable else read_text(Path(file)).strip()
    if len(secret) < SECRET_MIN:
        where = variable or file
        problem = f"{where} has no secret of at least {SECRET_MIN} characters"
        remedy = "Make one with: openssl rand -hex 32"
        raise InputError(path, entry.name, problem, remedy)
    source = Source(name=entry.name, format=entry.format, classifications=entry.classifications)
    return Sender(source, Secret(secret), signed=bool(entry.hmac_env or entry.hmac_file))
