"""Finds the shipped files that are not Python, and reads the text files that a person names.

A checkout has them at its root, where people look for them; the links in `provisioner/content`
make them data of the package, and a wheel contains the files themselves there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from provisioner.model.input_error import InputError

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


TEXT_BYTES_MAX = 2 * 1024 * 1024  # as the reader of matrix files takes


def read_text(path: Path, size_max: int = TEXT_BYTES_MAX) -> str:
    """Return the text of a file of at most `size_max` bytes. Raises InputError, never OSError."""
    try:
        if not path.is_file():
            problem = "this is no file" if path.exists() else "there is no such file"
            raise InputError(str(path), "", problem, "Check the path.")
        with path.open("rb") as file:
            content = file.read(size_max + 1)
    except OSError as error:
        raise InputError(
            str(path), "", f"it cannot be read ({error.strerror})", "Check its permissions."
        ) from None
    if len(content) > size_max:
        raise InputError(
            str(path), "", f"the file is larger than {size_max} bytes", "Is it the right file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(
            str(path), f"line {line}", "this is not UTF-8 text", "Save it as UTF-8."
        ) from None
