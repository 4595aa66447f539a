"""Contexts: the daemons that a person works with, by name, in one file of their own.

The file holds addresses and names of files, never a token. The daemon of a command is chosen by, in
this order: its options, PROVISIONER_SERVER, PROVISIONER_DATA, the context in use, and last the unix
socket of the data directory `var`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from provisioner.model.input_error import InputError

DATA = Path("var")  # the data directory where nothing names another one
SIZE_MAX = 1024 * 1024  # bytes
NAME_MAX = 64


@dataclass(frozen=True)
class Place:
    """The address of a daemon: a server, or the socket of a data directory."""

    server: str = ""
    data: str = ""
    token_file: str = ""
    ca: str = ""

    def __str__(self) -> str:
        return self.server or f"the unix socket of {self.data}"


@dataclass(frozen=True)
class Contexts:
    """All contexts, and the one in use; "" for none."""

    places: Mapping[str, Place]
    current: str = ""


def find_file() -> Path:
    """Return the file of contexts (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(home) / "provisioner" / "contexts.json"


def read_contexts() -> Contexts:
    """Return the contexts; none without a file. Raises InputError for an unreadable one."""
    file = find_file()
    try:
        with file.open("rb") as opened:
            document = json.loads(opened.read(SIZE_MAX))
        places = {str(n): Place(**p) for n, p in document["contexts"].items()}
        return Contexts(places, str(document.get("current", "")))
    except FileNotFoundError:
        return Contexts({})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError(str(file), "", problem, "Correct it, or delete it.") from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file by these contexts. Raises InputError if it cannot be written."""
    file = find_file()
    places = {name: asdict(place) for name, place in contexts.places.items()}
    document = {"current": contexts.current, "contexts": places}
    new = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        new.chmod(0o600)
        new.replace(file)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its owner and mode.") from None


def find_place(given: Mapping[str, object]) -> Place:
    """Return the daemon for a command. `given`: its options by name. Raises InputError."""
    server = str(given.get("server") or "")
    data = str(given.get("data") or "")
    name = str(given.get("context") or "")
    if sum(map(bool, (server, data, name))) > 1:
        problem = "--context, --server and --data exclude each other"
        raise InputError("--context", "", problem, "Give one of them.")
    more = {
        "token_file": str(given.get("token_file") or os.environ.get("PROVISIONER_TOKEN_FILE", "")),
        "ca": str(given.get("ca_file") or os.environ.get("PROVISIONER_CA", "")),
    }
    if not (server or data or name):
        server = os.environ.get("PROVISIONER_SERVER", "")
        data = "" if server else os.environ.get("PROVISIONER_DATA", "")
    if server or data:
        return Place(server=server, data=data, **more)
    contexts = read_contexts()
    name = name or contexts.current
    if not name:
        return Place(data=str(DATA))
    if name not in contexts.places:
        names = ", ".join(sorted(contexts.places)) or "none"
        problem = "there is no such context"
        raise InputError("--context", name[:NAME_MAX], problem, f"Known: {names}.")
    place = contexts.places[name]
    return Place(
        place.server, place.data, more["token_file"] or place.token_file, more["ca"] or place.ca
    )
