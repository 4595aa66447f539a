"""docs/architecture.md shows where each concept stands, as the tree has it."""

from __future__ import annotations

import os
import re
import sys

from page_reading import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import reference_tables

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- concepts: begin -->", "<!-- concepts: end -->"


def test_the_page_has_the_table_of_the_tree() -> None:
    """RECORD_GOLDEN=1 writes it anew."""
    table, text = reference_tables.concepts(), PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    shown, tail = rest.split(END)
    if os.environ.get("RECORD_GOLDEN"):
        PAGE.write_text(f"{head}{BEGIN}\n\n{table}\n{END}{tail}", encoding="utf-8")
        return

    assert shown.strip() == table.strip()


def test_each_floor_of_the_page_is_a_folder_and_none_is_left_out() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)/`", text.partition("## Where")[0]))
    folders = {p.parent.name for p in (ROOT / "provisioner").glob("*/__init__.py")}

    assert named <= folders
    assert folders - named <= {"runtime", "telemetry", "content"}
