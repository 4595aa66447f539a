"""The tutorial works: its commands are run in their order, against the site that it starts.

In CI until the node is repaired; `make tutorial` runs the campaign too. What a remark in the page
says is held: "until: PATTERN" repeats a command, "shows: PATTERN" is seen in its output.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_reading import ROOT, Block, blocks, simple_commands
from typer.testing import CliRunner

from provisioner.cli import app

PAGE = ROOT / "docs" / "tutorial.md"
WHOLE = os.environ.get("TUTORIAL") == "whole"
LIMIT_S = 900.0  # for one thing to happen on a loaded machine; a hung one must end
STAYS = "--stay"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}  # this tree, whatever is installed


def steps() -> Iterator[tuple[Block, list[str]]]:
    """Every command of the lesson that is run."""
    for block in blocks(PAGE):
        left_out = "not run" in block.remark or ("long" in block.remark and not WHOLE)
        if block.language == "sh" and not left_out:
            for line in block.text.splitlines():
                yield from ((block, words) for words in simple_commands(line))


def remark(block: Block, word: str) -> str:
    found = re.search(rf"{word}: ([^,]+)", block.remark)
    return found[1].strip() if found else ""


def run(words: list[str]) -> str:
    """In this process: a start of the program costs more than most of the commands."""
    done = CliRunner().invoke(app, words[1:])

    assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}\n{done.exception!r}"
    return done.output


def repeat(words: list[str], pattern: str) -> None:
    limit = time.monotonic() + LIMIT_S
    while not re.search(pattern, output := run(words)):
        assert time.monotonic() < limit, f"never seen: {pattern}\n{output}"
        time.sleep(2.0)


class Site:
    """The first terminal of the lesson."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.log = folder / "first-terminal.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], stdout=log, stderr=log, cwd=folder, env=ENVIRONMENT
            )
        limit = time.monotonic() + LIMIT_S
        while "Every node serves" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, "not every node serves"
            time.sleep(0.5)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Like a clone: the matrix lies there."""
    (tmp_path / "firmware_matrix.yaml").symlink_to(ROOT / "firmware_matrix.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_tutorial_does_what_the_tutorial_says(folder: Path):
    (_, first), *rest = steps()
    assert STAYS in first
    site = Site(first, folder)
    try:
        for block, words in rest:
            if until := remark(block, "until"):
                repeat(words, until)
            else:
                assert re.search(remark(block, "shows"), run(words)), words
    finally:
        left = site.end()

    assert len(rest) > 12
    assert left == 0
