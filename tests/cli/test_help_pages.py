"""`provisioner help TOPIC`, and messages that point to pages, from a folder without a checkout."""

from __future__ import annotations

import re
from pathlib import Path

import program
import pytest
import yaml

import provisioner
from provisioner.cli.offline.pages import find_tables
from provisioner.runtime.shipped import CONTENT, find_pages, point_to_pages

PRODUCT = Path(provisioner.__file__).parent


def test_a_page_is_printed_and_all_are_listed(tmp_path: Path) -> None:
    listed = program.run(["help"], tmp_path)
    page = program.run(["help", "intake"], tmp_path)

    assert (listed.returncode, page.returncode) == (0, 0)
    assert "first-rack" in listed.stdout
    assert page.stdout == find_pages()["intake"].read_text()


def test_a_table_that_a_page_links_to_is_printed_by_its_name_or_link(tmp_path: Path) -> None:
    shown = program.run(["help", "generated/bmc-faults.md"], tmp_path)

    assert shown.returncode == 0
    assert "| S1 | Sessions/auth | Session table full" in shown.stdout
    linked = {
        name
        for page in find_pages().values()
        for name in re.findall(r"generated/([\w-]+)\.md", page.read_text())
    }
    rows = yaml.safe_load((CONTENT / "docs/tables.yaml").read_text())
    of_docs = {name[:-3] for name, said in rows.items() if said["file"].startswith("docs/")}
    assert len(linked & of_docs) > 20
    assert of_docs - set(find_tables()) == set()


def test_a_page_that_is_not_there_is_answered_with_those_of_like_names(tmp_path: Path) -> None:
    done = program.run(["help", "intak"], tmp_path)

    assert done.returncode == 2
    assert "Did you mean intake" in done.stderr


def test_a_message_names_the_command_that_shows_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert point_to_pages("See docs/intake.md.") == "See `provisioner help intake`."
    absent = "docs/" + "no-such.md"
    assert point_to_pages(f"See {absent}.") == f"See {absent}."
    monkeypatch.chdir(PRODUCT.parent)
    assert point_to_pages("See docs/intake.md.") == "See docs/intake.md."


def test_every_page_that_the_program_names_is_there() -> None:
    named = {
        page
        for path in PRODUCT.rglob("*.py")
        for page in re.findall(r"docs/((?:[a-z0-9-]+/)*[a-z0-9-]+)\.md", path.read_text())
        if not page.startswith(("generated/", "decisions/"))
    }

    assert named - set(find_pages()) == set()
