"""Which page belongs to which section: read from index.md, which is the only list."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
# A heading of index.md, and what belongs under it (https://diataxis.fr)
SECTIONS = {
    "Tutorial": "a lesson: who has never seen this does it from top to bottom, and it works",
    "How-to guides": "steps to one end, for somebody at work: commands, and what to do if not",
    "Reference": "what there is, completely, to look up: tables, formats, options, limits",
    "Explanation": "why and how it works: no steps, nothing to look up",
}
FURTHER = "Further pages"  # where a page is shown that index.md does not name


def pages() -> set[str]:
    """Every page that somebody wrote, from here; records of decisions have a list of their own."""
    found = {p.relative_to(HERE).as_posix() for p in HERE.rglob("*.md")}
    own = ("decisions/", "generated/", "examples/", "index.md")
    return {p for p in found if not p.startswith(own) and Path(p).name != "README.md"}


def by_section() -> dict[str, list[str]]:
    """The pages under each heading of index.md, in its order."""
    text = (HERE / "index.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {
        heading.strip(): re.findall(r"^[-*|].*?\]\(([\w./-]+\.md)\)", body, flags=re.MULTILINE)
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
