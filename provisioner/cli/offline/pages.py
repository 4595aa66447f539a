"""`provisioner help TOPIC`: the pages of the documentation, from the installed program."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer
from rich.markdown import Markdown
from rich.text import Text

from provisioner import settings
from provisioner.cli.options.tables import Table, open_console
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import find_pages

SHOWN_MAX = 5  # similar names for one that is not there


def show_page(
    topic: Annotated[
        str, typer.Argument(help="A page, as `intake`; without it all pages are listed.")
    ] = "",
    *,
    plain: Annotated[bool, typer.Option("--plain", help="The page's own Markdown text.")] = False,
) -> None:
    """Show a page of the documentation, or list all pages.

    Example: provisioner help first-rack
    """
    pages = find_pages()
    console = open_console()
    if not topic:
        table = Table("topic", "page", title="provisioner help TOPIC", title_justify="left")
        for name, path in sorted(pages.items()):
            table.add_row(name, Text(_read_title(path.read_text(encoding="utf-8"))))
        console.print(table)
        return
    name = topic.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        known = {page.rpartition("/")[2]: page for page in pages}
        near = [known[n] for n in difflib.get_close_matches(name, known, SHOWN_MAX, 0.5)]
        remedy = f"Did you mean {', '.join(near)}?" if near else "`provisioner help` lists them."
        raise InputError("TOPIC", topic, "there is no such page", remedy)
    text = pages[name].read_text(encoding="utf-8")
    if name == "settings":  # `make docs` makes the list from the same model
        text += settings.render_markdown()
    if plain or not console.is_terminal:
        typer.echo(text, nl=False)
    else:
        with console.pager(styles=True):
            console.print(Markdown(text))


def _read_title(text: str) -> str:
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")
