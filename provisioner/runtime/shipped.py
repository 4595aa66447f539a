"""Finds the shipped files that are not Python: the matrix, playbooks, roles and pages.

A checkout has them at its root, where people look for them; the links in `provisioner/content`
make them data of the package, and a wheel contains the files themselves there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTENT = Path(__file__).parents[1] / "content"


def find_shipped(name: str) -> Path:
    """Return `name` in the working directory if it exists there, else the shipped file."""
    here = Path(name)
    return here if here.exists() else CONTENT / name


# of developers, or made by `make docs`
PAGES_APART = frozenset({"decisions", "generated", "examples", "README.md"})


def list_pages(docs: Path) -> Sequence[Path]:
    """Return the pages for people who use the program, below a folder of documentation."""
    pages = (p for p in docs.rglob("*.md") if not PAGES_APART & set(p.relative_to(docs).parts))
    return sorted(pages)


def find_pages() -> Mapping[str, Path]:
    """Return the pages of the documentation by topic: "intake", "integrations/netbox"."""
    docs = CONTENT / "docs"
    return {p.relative_to(docs).with_suffix("").as_posix(): p for p in list_pages(docs)}


_PAGE = re.compile(r"docs/((?:[a-z0-9-]+/)*[a-z0-9-]+)\.md")


def point_to_pages(text: str) -> str:
    """Return a message with the command that shows each page which it names.

    A page that is a file below the working directory, as in a checkout, is left as it is.
    """

    def point(found: re.Match[str]) -> str:
        here = Path(found[0]).exists() or not (CONTENT / found[0]).is_file()
        return found[0] if here else f"`provisioner help {found[1]}`"

    return _PAGE.sub(point, text)
