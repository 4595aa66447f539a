"""What a newcomer needs is whole: index of decisions, the tool that picks tests, second runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from page_reading import ROOT

sys.path.insert(0, str(ROOT / ".ci"))

import test_for


def test_the_index_lists_each_decision_once_and_explains_each_gap():
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.*\]\((\d{4}-[\w-]+\.md)\)$", index, flags=re.MULTILINE)
    files = sorted(p.name for p in (ROOT / "docs" / "decisions").glob("0*.md"))
    numbers = {int(name[:4]) for name in files}
    (gaps,) = re.findall(r"Numbers have gaps \(([^)]*)\)", index)
    explained = {
        number
        for span in gaps.split(", ")
        for number in range(int(span.split(" to ")[0]), int(span.split(" to ")[-1]) + 1)
    }

    assert sorted(listed) == files
    assert explained == set(range(1, max(numbers))) - numbers


def test_a_module_picks_the_tests_that_import_it_or_its_importer():
    planner = ROOT / "provisioner" / "planning" / "path" / "planner.py"
    picked = [file.name for file in test_for.pick([planner])]

    assert "test_planner_properties.py" in picked
    assert "test_console_fleet.py" not in picked


def test_a_changed_test_and_a_helper_of_tests_pick_tests():
    here = Path(__file__).resolve()
    helper = here.with_name("page_reading.py")

    assert test_for.pick([here]) == [here]
    assert here in test_for.pick([helper])


def test_every_folder_of_the_map_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`provisioner/.*?) \|", text, flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(?:provisioner/)?(\w+)`", row)]

    assert len(named) > 12
    assert [name for name in named if not (ROOT / "provisioner" / name).is_dir()] == []


def test_second_runs_are_counted_over_time(tmp_path: Path):
    failed = tmp_path / "lastfailed"
    failed.write_text('{"tests/a.py::test_b": true}')
    tool = ROOT / ".ci" / "second_runs"
    environment = {"SECOND_RUNS": str(tmp_path / "runs.tsv"), "PATH": "/usr/bin:/bin"}
    for outcome in ("passed", "failed"):
        words = (sys.executable, str(tool), "add", str(failed), outcome)
        subprocess.run(words, check=True, cwd=ROOT, env=environment)

    shown = subprocess.run(
        (sys.executable, str(tool), "show"), check=True, env=environment, capture_output=True
    ).stdout.decode()

    assert "second runs so far: 2, of 1 tests" in shown
    assert "2 tests/a.py::test_b" in shown
