"""The commands and their modules; a module is loaded only when its command is used.

The whole program takes seconds to load on a slow machine, and a person who types `provisioner
where` or presses the tab key would wait each time. So this list has its own short summaries.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from provisioner.model.input_error import InputError

if TYPE_CHECKING:
    from provisioner.cli.client.connection import Connection, Place

ROUTES = "routes"  # in place of a module: built from the table of routes
INTEGRATION = "integration"  # in place of a module: ours, found by its entry point


@dataclass(frozen=True)
class Command:
    """A line of commands.csv: `function` in `module` of this package, or a noun's application."""

    group: str  # in the program's help: what people do with it
    module: str
    function: str
    about: str  # the first paragraph of its own help: a test holds them together


def _read_commands() -> dict[str, Command]:
    with Path(__file__).with_name("commands.csv").open(encoding="utf-8", newline="") as file:
        return {row.pop("name"): Command(**row) for row in csv.DictReader(file, strict=True)}


# in the order of the program's help
COMMANDS = _read_commands()
_PLACES = {name: place for place, name in enumerate(COMMANDS)}


class Loading(MutableMapping[str, Any]):
    """Every command by its name; each is loaded at its first access."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self._given[name] if name in self._given else load(name)

    def __setitem__(self, name: str, command: Any) -> None:
        self._given[name] = command

    def __delitem__(self, name: str) -> None:
        del self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache  # a process that runs many commands makes each once
def load(name: str) -> Any:
    """Return the command in typer's form. Raises KeyError."""
    where = COMMANDS[name]
    if where.module == ROUTES:
        surface = import_module("provisioner.cli.client.surface")
        return surface.load(name, where.about, open_offline)
    if where.module == INTEGRATION:
        found = _load_foreign(name)
        if found is None:
            problem = "its integration is not installed"
            raise InputError("provisioner", name, problem, "Install gpu-provisioner again.")
        return found
    return _wrap(name, getattr(import_module(f"provisioner.cli.{where.module}"), where.function))


def open_offline(place: Place, matrices: Sequence[Path]) -> Connection:
    """Open a data directory for `--offline`; no other command imports the daemon for it."""
    from provisioner.cli.serve.reading import OfflineConnection

    return OfflineConnection(place, matrices)


def _load_foreign(name: str) -> Any:
    """Return the command that an integration brings, or None. Raises InputError."""
    found = import_module("provisioner.runtime.integrations").find_command(name)
    return None if found is None else _wrap(name, found[1])


def _wrap(name: str, command: Any) -> Any:
    around = typer.Typer()
    if isinstance(command, typer.Typer):
        around.add_typer(command, name=name)
    else:
        around.command(name)(command)
    return typer.main.get_group(around).commands[name]


class Commands(TyperGroup):
    """The program: it lists commands without loading any, and runs the one that was named."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Loading()
        self._lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return sorted(COMMANDS, key=lambda name: _PLACES.get(name, len(_PLACES)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command; in a list, only its name and summary.

        Those of integrations are looked for last: reading all entry points takes a tenth of a
        second, which nobody waits for at `--help` and the tab key.
        """
        if cmd_name not in COMMANDS:
            return None if self._lists else _load_foreign(cmd_name)
        if self._lists:
            told = COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=told.about, rich_help_panel=told.group)
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write `--help` of the program itself."""
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._lists = True
        try:
            yield
        finally:
            self._lists = False
