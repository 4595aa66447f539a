"""`provisioner help TOPIC`: the pages of the documentation, from the installed program."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markdown import Markdown
from rich.text import Text

from provisioner import settings
from provisioner.cli.options.tables import Table, open_console
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import CONTENT, find_pages

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
    tables = find_tables()
    console = open_console()
    if not topic:
        table = Table("topic", "page", title="provisioner help TOPIC", title_justify="left")
        for name, path in sorted(pages.items()):
            table.add_row(name, Text(_read_title(path.read_text(encoding="utf-8"))))
        for name, said in sorted(tables.items()):
            table.add_row(name, Text(f"{said['title']} (table)"))
        console.print(table)
        return
    name = topic.removeprefix("docs/").removesuffix(".md").removeprefix("generated/")
    if name not in pages and name not in tables:
        known = {page.rpartition("/")[2]: page for page in [*pages, *tables]}
        near = [known[n] for n in difflib.get_close_matches(name, known, SHOWN_MAX, 0.5)]
        remedy = f"Did you mean {', '.join(near)}?" if near else "`provisioner help` lists them."
        raise InputError("TOPIC", topic, "there is no such page", remedy)
    if name in pages:
        text = pages[name].read_text(encoding="utf-8")
    else:
        text = render_rows(tables[name], CONTENT)
    if name == "settings":  # `make docs` makes the list from the same model
        text += settings.render_markdown()
    if plain or not console.is_terminal:
        typer.echo(text, nl=False)
    else:
        with console.pager(styles=True):
            console.print(Markdown(text))


def _read_title(text: str) -> str:
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")


def find_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of the documentation that are shipped, by topic: title, about, file."""
    text = (CONTENT / "docs/tables.yaml").read_text(encoding="utf-8")
    rows = {name.removesuffix(".md"): said for name, said in yaml.safe_load(text).items()}
    return {name: said for name, said in rows.items() if (CONTENT / said["file"]).is_file()}


def render_rows(said: Mapping[str, Any], root: Path, *, anchored: bool = False) -> str:
    """Return the page of one table, a file of comma-separated values below `root`.

    With `anchored`, links lead to the rows of a table that says so, by their first cells.
    """
    with (root / said["file"]).open(encoding="utf-8", newline="") as opened:
        head, *rows = csv.reader(opened)
    if anchored and said.get("anchors"):
        rows = [[f'<a id="{first.lower()}"></a>{first}', *cells] for first, *cells in rows]
    about = f"Made from `{said['file']}`. {said['about']}"
    return "\n".join([f"# {said['title']}", "", about, "", *draw(head, rows)]) + "\n"


def draw(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; bars within a cell are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [cell.replace("\\|", "|").replace("|", "\\|") or " " for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
