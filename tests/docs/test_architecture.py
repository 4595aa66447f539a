"""docs/architecture.md shows where each concept stands, as the tree has it."""

from __future__ import annotations

import ast
import os
import re
import sys

from page_reading import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import reference_tables

from provisioner.planning.lifecycle.destruction import Destruction, Need

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


# objects of libraries, which offer no other way
OF_LIBRARIES = {
    ("cli/serve/backup.py", "bar.length"),  # click's progress bar
    ("daemon/api.py", "self.context.minimum_version"),  # ssl.SSLContext
    ("daemon/events.py", "tls.num_tickets"),
    ("daemon/events_process.py", "tls.num_tickets"),
}


def list_late_wiring(source: str) -> list[str]:
    """Return each attribute that is set on an object other than `self`, also by `setattr`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            found.append(ast.unparse(node))
        for target in targets:
            for each in ast.walk(target):
                if (
                    isinstance(each, ast.Attribute)
                    and isinstance(each.ctx, ast.Store)
                    and ast.unparse(each.value) not in {"self", "cls"}
                ):
                    found.append(ast.unparse(each))
    return found


def test_the_daemon_sets_no_attribute_of_an_object_that_is_made() -> None:
    """What a part needs is an argument of its constructor; what changes later is a method's."""
    found = {
        (str(file.relative_to(ROOT / "provisioner")), late)
        for folder in ("daemon", "cli/serve")
        for file in (ROOT / "provisioner" / folder).rglob("*.py")
        for late in list_late_wiring(file.read_text(encoding="utf-8"))
    }

    assert found == OF_LIBRARIES
    for planted, late in (
        ("seat.list_keys = f", "seat.list_keys"),
        ("self.a.mark, x = 1, 2", "self.a.mark"),
        ("daemon.tenancy.spaces += x", "daemon.tenancy.spaces"),
        ("setattr(door, 'kept', x)", "setattr(door, 'kept', x)"),
    ):
        assert list_late_wiring(planted) == [late]
    assert list_late_wiring("self.a = 1\nlocal = self.a.b") == []


def test_the_core_stays_a_house_that_one_person_can_walk_through() -> None:
    """What grows beyond it is moved to `integrations/`, or pays for itself elsewhere."""
    modules = [
        path
        for path in (ROOT / "provisioner").rglob("*.py")
        if path.relative_to(ROOT / "provisioner").parts[0] not in ("integrations", "content")
    ]

    assert sum(path.read_text("utf-8").count("\n") for path in modules) <= 150_000
    assert len(modules) <= 750


def test_the_page_has_a_row_for_each_act_and_a_line_for_each_condition() -> None:
    table, conditions = (
        reference_tables.render_table().splitlines(),
        reference_tables.render_needs().splitlines(),
    )

    assert [row.split(" | ")[0] for row in table[2:]] == [f"| {act}" for act in Destruction]
    assert [line.split("`")[1] for line in conditions] == [need.value for need in Need]
    assert len({row.count("|") for row in table}) == 1
