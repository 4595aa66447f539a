"""Tables that are shipped beside the modules that decide by them, as CSV with a head."""

from __future__ import annotations

import csv
from importlib import resources


def read_table(package: str, name: str) -> list[dict[str, str]]:
    """Return the rows of a table of ours, in its order."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
