"""A new operating system of switches touches as many places as its page says."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner.adapters import switches

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/new-switch-os.md"
ADAPTERS = "provisioner/adapters/switches"
PROOF = ROOT / "tests/switches/bench_os"


def table() -> list[str]:
    """The places in the page's table."""
    rows = re.findall(r"^\| (?:folder )?`([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    return [row.rstrip("/") for row in rows]


def naming(name: str, *folders: str) -> set[str]:
    """The modules below these folders, and outside of the system's own, that name a system."""
    pattern = re.compile(rf"\b{name}\b")
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != name and pattern.search(path.read_text())
    }


def test_the_table_has_one_folder_and_one_line() -> None:
    assert table() == [f"{ADAPTERS}/NAME", f"{ADAPTERS}/__init__.py"]


def test_each_system_is_one_folder_and_a_line_of_the_table_of_contents() -> None:
    listing = (ROOT / ADAPTERS / "__init__.py").read_text()

    for system in switches.ALL:
        assert (ROOT / ADAPTERS / system.facts.name / "__init__.py").is_file()
        assert listing.count(f"{system.facts.name}.SYSTEM,") == 1


def test_the_third_system_was_added_by_one_folder_and_one_line() -> None:
    touched = naming("bench_os", "provisioner", "tests") - {"tests/docs/test_new_switch_os.py"}

    assert PROOF.is_dir()
    assert touched == {"tests/switches/switch_boxes.py"}
    assert (ROOT / "tests/switches/switch_boxes.py").read_text().count("bench_os.SYSTEM") == 1
