"""Tables and the console of commands: apart, since `serve` prints none, and `rich` takes 4 MiB."""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich import table
from rich.console import Console
from rich.text import Text


class Table(table.Table):
    """A table that cuts no word: what is too long goes on in the next line."""

    def __init__(self, *headers: str, **settings: Any) -> None:
        super().__init__(**settings)
        for header in headers:
            self.add_column(header)

    def add_column(self, *arguments: Any, **settings: Any) -> None:
        """Add a column as `rich` does; what is too long for it is folded."""
        super().add_column(*arguments, **{"overflow": "fold", **settings})


class _Screen(Console):
    def render_str(self, text: str, **settings: Any) -> Text:
        """Render a text of anybody: what would move a cursor or set a title is shown instead."""
        return super().render_str(strip_controls(text), **settings)


def strip_controls(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def show_table(listed: Table, empty: str) -> None:
    """Print a list as a table, or a sentence where the list is empty."""
    if listed.row_count:
        open_console().print(listed)
    else:
        typer.echo(empty)


def open_console(file_width: int = 200) -> Console:
    """Return a console that prints a device's text as it is, never as markup or control codes.

    `file_width` is the number of columns of a table that goes to no terminal.
    """
    width = None if sys.stdout.isatty() else file_width
    return _Screen(width=width, highlight=False, markup=False)
