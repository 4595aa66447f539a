"""Which page belongs to which section: read from index.md, which is the only list."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
# A heading of index.md, and the kind of pages under it (https://diataxis.fr)
SECTIONS = {
    "Learn": "a lesson: a newcomer follows it from top to bottom, and it works",
    "Do": "steps towards one goal, for a person at work: commands and remedies",
    "Look up": "complete descriptions to look up: tables, formats, options, limits",
    "Understand": "why and how it works: no steps, nothing to look up",
}
FURTHER = "Further pages"  # where a page is shown that index.md does not name


def pages() -> set[str]:
    """Return every handwritten page; decision records have a list of their own."""
    pages_here = {p.relative_to(HERE).as_posix() for p in HERE.rglob("*.md")}
    own = ("decisions/", "generated/", "examples/", "index.md")
    return {p for p in pages_here if not p.startswith(own) and Path(p).name != "README.md"}


def by_section() -> dict[str, list[str]]:
    """Return the pages under each heading of index.md, in its order."""
    text = (HERE / "index.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {
        heading.strip(): re.findall(r"^[-*|].*?\]\(([\w./-]+\.md)\)", body, flags=re.MULTILINE)
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
