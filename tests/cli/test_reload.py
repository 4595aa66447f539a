"""A daemon works by its changed overlay without a restart, or keeps the old one and says why.

`provisioner serve` runs as a process of its own, as a site runs it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import alone

from provisioner.daemon.data import open_data
from provisioner.model.node import Node, NodeKind

LIMIT_S = 90.0
OVERLAY = """schema: "1"
releases:
  spectrum-x-1.2.0:
    profiles:
      hgx-h100-bf3:
        pins:
          host.bmc: {version: 11.01.01, evidence: our own trial}
"""


class Daemon:
    """A daemon in a folder, and what its log has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        words = ["serve", "--lab", "--matrix", "site.yaml", "--data", "data"]
        ports = [w for o in ("artifact", "agent", "api") for w in (f"--{o}-port", "0")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "provisioner", *words, *ports],
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def wait_for(self, words: str, times: int = 1) -> None:
        """Wait until the log has these words so often."""
        limit = time.monotonic() + LIMIT_S
        while (told := self.log.read_text()).count(words) < times:
            assert self.process.poll() is None, told
            assert time.monotonic() < limit, told
            time.sleep(0.1)

    def write(self, overlay: str) -> None:
        (self.folder / "site.yaml").write_text(overlay)

    def ask(self, *words: str) -> tuple[int, str]:
        done = alone([*words, "--data", "data"], self.folder)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "site.yaml").write_text(OVERLAY)
    running = Daemon(tmp_path)
    try:
        running.wait_for("serving")
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0


@pytest.mark.long
def test_a_changed_overlay_is_in_force_without_a_restart_and_a_wrong_one_never(
    daemon: Daemon,
) -> None:
    daemon.write(OVERLAY.replace("11.01.01", "11.02.07"))

    assert "11.01.01 becomes 11.02.07" in daemon.ask("overlay", "reload", "--dry-run")[1]
    assert "11.02.07" not in daemon.ask("overlay", "show", "1", "-o", "yaml")[1]
    assert daemon.ask("overlay", "reload", "--yes")[0] == 0
    daemon.wait_for("serving", 2)
    assert "11.02.07" in daemon.ask("overlay", "show", "1", "-o", "yaml")[1]

    daemon.write(OVERLAY + "spelled_wrong: 1\n")
    code, told = daemon.ask("overlay", "reload", "--yes")
    assert code != 0
    assert "spelled_wrong" in told
    os.kill(daemon.process.pid, signal.SIGHUP)
    daemon.wait_for("the matrix stays as it was")
    assert "11.02.07" in daemon.ask("overlay", "show", "1", "-o", "yaml")[1]

    daemon.write(OVERLAY.replace("11.01.01", "11.03.00"))
    os.kill(daemon.process.pid, signal.SIGHUP)
    daemon.wait_for("serving", 3)
    assert "11.03.00" in daemon.ask("overlay", "show", "1", "-o", "yaml")[1]
    told = daemon.ask("event", "list", "-o", "yaml")[1]
    assert told.count("request: reload") == 2
    assert "by: SIGHUP" in told


@pytest.mark.long
def test_a_release_that_nodes_run_cannot_be_taken_from_them(tmp_path: Path) -> None:
    own = OVERLAY.replace(
        "releases:\n",
        "releases:\n  own-1: {profiles: {gpu: {match: {kind: host}, pins: "
        "{host.bmc: {version: 11.01.01, evidence: own}}}}}\n",
    )

    async def add() -> None:
        async with open_data(tmp_path / "data", 1.0, migrates=True) as data:
            node = Node(id="n1", kind=NodeKind.HOST, release="own-1", entered_at=1.0)
            await data.store.nodes.add(node)

    asyncio.run(add())
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "site.yaml").write_text(own)
    running = Daemon(tmp_path)
    try:
        running.wait_for("serving")
        running.write(OVERLAY)

        code, told = running.ask("overlay", "reload", "--yes")

        assert code != 0
        assert "own-1" in told
        assert "n1" in told
    finally:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(60)
