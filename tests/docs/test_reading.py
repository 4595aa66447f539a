"""The guided reading leads to lines that are there, and the solutions of its exercises work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_reading import ROOT

READING = ROOT / "docs" / "reading"
LINK = re.compile(r"\[`(\w+)`\]\((\.\./\.\./[\w/.-]+\.py)#L(\d+)\)")
NEAR = 20  # lines: code moves a little with every change, and a reader still sees the definition
SOLUTIONS = sorted((READING / "solutions").glob("*.patch"))
RECORD = os.environ.get("RECORD_LINES") == "1"


def find_definition(file: Path, name: str, near: int) -> int | None:
    """Return the line that defines a name, of several the nearest one."""
    pattern = re.compile(rf"^\s*(?:(?:async )?def|class) {name}\b|^{name}\b ?[:=]")
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if pattern.match(line)]
    return min(found, key=lambda number: abs(number - near), default=None)


@pytest.mark.parametrize("page", sorted(READING.glob("[0-9]-*.md")), ids=lambda p: p.stem)
def test_every_link_to_code_leads_to_the_definition(page: Path):
    text = page.read_text(encoding="utf-8")
    links = LINK.findall(text)
    lines = {
        (name, path, line): find_definition((READING / path).resolve(), name, int(line))
        for name, path, line in links
    }
    if RECORD:
        for (name, path, line), now in lines.items():
            text = text.replace(f"[`{name}`]({path}#L{line})", f"[`{name}`]({path}#L{now})")
        page.write_text(text, encoding="utf-8")
        return
    far = [
        f"{name} is at line {now} of {path}, not {line}"
        for (name, path, line), now in lines.items()
        if now is None or abs(now - int(line)) > NEAR
    ]

    assert len(links) >= 8
    assert far == [], "RECORD_LINES=1 pytest tests/docs/test_reading.py moves the links"


def test_every_way_has_a_drawing():
    for page in READING.glob("[0-9]-*.md"):
        assert "```mermaid\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("patch", SOLUTIONS, ids=lambda p: p.stem)
def test_a_solution_applies_to_this_tree(patch: Path):
    done = subprocess.run(
        ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr.decode()


def test_a_field_of_a_node_touches_ten_files():
    """Those of the patch, and three that tests write."""
    patch = (READING / "solutions" / "4-field.patch").read_text(encoding="utf-8")

    assert len(re.findall(r"^diff --git ", patch, re.MULTILINE)) + 3 <= 10


@pytest.mark.long
@pytest.mark.parametrize("patch", SOLUTIONS, ids=lambda p: p.stem)
def test_the_tests_of_a_solution_pass(patch: Path, tmp_path: Path):
    tree = subprocess.run(
        ["git", "ls-files", "-z", "provisioner", "pyproject.toml", "LICENSE", "docs/intake.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    words = ["tar", "c", "--null", "--ignore-failed-read", "-T", "-"]
    packed = subprocess.run(words, cwd=ROOT, check=True, input=tree.stdout, capture_output=True)
    subprocess.run(["tar", "x"], cwd=tmp_path, check=True, input=packed.stdout)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
