"""The tutorial works: its commands are run in their order, against the site that it starts.

`make tutorial` and `make test-long` run all of it. What a remark in the
page says is held: "until: PATTERN" repeats a command until its output has that, "without: PATTERN"
until it has not, "shows: PATTERN" is seen at once, "into: FILE" is where the output goes, and
"background" is a terminal of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_reading import ROOT, Block, blocks, simple_commands
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.integrations.simulated_site.simulated_agents import SimulatedRunner

PAGE = ROOT / "docs" / "tutorial.md"
LIMIT_S = 900.0  # for one thing to happen on a loaded machine; a hung one must end
STAYS = "--stay"
API_PORT = "8443"  # in the page
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}  # this tree, whatever is installed


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def steps(port: int, *, whole: bool) -> Iterator[tuple[Block, list[str]]]:
    """Every command of the lesson that is run, with the API at a port that is free here."""
    for block in blocks(PAGE):
        left_out = "not run" in block.remark or ("long" in block.remark and not whole)
        if block.language == "sh" and not left_out:
            for line in block.text.splitlines():
                line = line.replace(API_PORT, str(port))
                yield from ((block, words) for words in simple_commands(line))


def remark(block: Block, word: str) -> str:
    match = re.search(rf"{word}: ([^,]+)", block.remark)
    return match[1].strip() if match else ""


def run(words: list[str]) -> str:
    """In this process: a start of the program costs more than most of the commands."""
    done = CliRunner().invoke(app, words[1:])

    assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}\n{done.exception!r}"
    return done.stdout


def repeat(words: list[str], pattern: str, *, shown: bool = True) -> None:
    limit = time.monotonic() + LIMIT_S
    while bool(re.search(pattern, output := run(words))) is not shown:
        assert time.monotonic() < limit, f"not {'seen' if shown else 'gone'}: {pattern}\n{output}"
        time.sleep(2.0)


class Terminal:
    """Another terminal of the lesson; ready once its output has a pattern."""

    def __init__(self, words: list[str], folder: Path, ready: str) -> None:
        self.log = folder / f"{words[1]}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], stdout=log, stderr=log, cwd=folder, env=ENVIRONMENT
            )
        limit = time.monotonic() + LIMIT_S
        while ready not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, f"never seen: {ready}"
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


def follow(block: Block, words: list[str]) -> None:
    if until := remark(block, "until"):
        repeat(words, until)
        return
    if without := remark(block, "without"):
        repeat(words, without, shown=False)
        return
    output = run(words)
    assert re.search(remark(block, "shows"), output), f"{' '.join(words)}\n{output}"
    if into := remark(block, "into"):
        Path(into).write_text(output)


async def see_violations() -> list[object]:
    """Return what the simulator saw that should never happen at a site."""
    site = SimulatedRunner(Path("var/demo/control.sock"))
    try:
        truth = await site.get("/truth")
    finally:
        await site.close()
    violations: list[object] = truth["violations"]
    return violations


@pytest.mark.long
@pytest.mark.slow
def test_every_command_of_the_tutorial_does_what_the_tutorial_says(folder: Path) -> None:
    take_lesson(folder, whole=False)


@pytest.mark.long
@pytest.mark.slow
def test_the_tutorial_works_to_its_end(folder: Path) -> None:
    take_lesson(folder, whole=True)


def take_lesson(folder: Path, *, whole: bool) -> None:
    (_, first), *rest = steps(free_port(), whole=whole)
    assert STAYS in first
    site = Terminal(first, folder, "Every node serves")
    try:
        for block, words in rest:
            follow(block, words)
        violations = asyncio.run(see_violations())
    finally:
        left = site.end()

    assert len(rest) > 12
    assert violations == []
    assert left == 0
