"""Which tests `make test` leaves to CI: decision 140.

Programs of others do the work in their folders (browsers, routers, hosts under Ansible, clusters of
databases, wheels in empty environments), or a process dies at each of its writes. A test elsewhere
that takes more than three CPU seconds has the mark itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

FOLDERS = frozenset({"ansible", "console", "crash", "packaging", "real"})
RUN_BY = {"slow": "make test-ci, as CI does", "long": "make test-long"}


def is_slow(file: Path) -> bool:
    """Whether all tests of a file are, by its folder."""
    here = Path(__file__).parent
    return file.is_relative_to(here) and file.relative_to(here).parts[0] in FOLDERS


def mark_folders(items: Sequence[pytest.Item]) -> None:
    """Mark each test of such a folder as slow."""
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")


def tell_left_out(items: Sequence[pytest.Item]) -> Iterator[str]:
    """Yield how many tests of which mark were not run, and the command that runs them."""
    marks = [{mark.name for mark in item.iter_markers()} for item in items]
    for mark, others in (("long", set()), ("slow", {"long"})):
        count = sum(mark in of_one and not others & of_one for of_one in marks)
        if count:
            yield f"{count} {mark} tests were left out: {RUN_BY[mark]}"
