"""Image writes whose daemon is killed: the next one goes on, the right disk ends with the image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "agent_lab"))

from image_bench import DISKS, IMAGE_BYTES, RIGHT, Machine, ledger, machine
from lab import why_not

from provisioner.model.operation import ActionStatus
from provisioner.planning.path.history import OPEN

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "possible")

KILLS = int(os.environ.get("KILLS", "50"))
SEED = int(os.environ.get("SEED", "7"))
LIMIT_S = 400.0
CHUNK_S = 0.06  # of twelve chunks: a write takes about a second
LIFE_S = 1.8  # from the first look at the disks to power off, on an idle machine, and less


@dataclass
class Drivers:
    """The process that forks drivers, the machine that they write, and what each is asked."""

    process: subprocess.Popen[str]
    machine: Machine
    asked: dict[str, Any]
    killed = 0

    def begin(self, asked: dict[str, Any]) -> int:
        """Start a driver; its process id."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**self.asked, **asked}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def ended(self) -> int:
        """Wait for its end: exit code, or the signal that ended it."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def run(self, image: dict[str, str], kill_after_s: float) -> bool:
        """One driver's life; whether it came to its end before it was killed.

        It is killed some time after it, or one before it, began to look at the disks.
        """
        looks, pid = len(self.machine.acts("disks")), self.begin(image)
        if self.machine.runs != "agent":
            wait(lambda: len(self.machine.acts("disks")) > looks or not alive(pid))
        time.sleep(kill_after_s)
        writing = self.machine.runs == "agent"
        os.kill(pid, signal.SIGKILL)  # a zombie until its status is read: never another's
        status = self.ended()
        assert status in (0, signal.SIGKILL), self.errors()
        if status:
            self.killed += writing
            self.machine.killed.set()
        return status == 0

    def errors(self) -> str:
        """What drivers said at their end, other than that they were done."""
        files = [self.machine.folder / name for name in ("driver-errors", "problem")]
        return "\n".join(file.read_text() for file in files if file.exists())


@contextlib.contextmanager
def drivers_of(built: Machine, asked: dict[str, Any]) -> Iterator[Drivers]:
    """The process that forks drivers of this machine, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("image_driver.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Drivers(process, built, asked)
    finally:
        process.kill()
        process.communicate()


def wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 90.0
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def image(folder: Path, number: int) -> dict[str, str]:
    """An image of its own for each version: one that is there already is never a success."""
    content = hashlib.shake_256(f"image {number}".encode()).digest(IMAGE_BYTES)
    (folder / "images" / f"os-{number}.raw").write_bytes(content)
    return {
        "version": str(number),
        "artifact": f"os-{number}.raw",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    with machine(tmp_path, CHUNK_S) as (built, asked), drivers_of(built, asked) as made:
        yield made


@pytest.mark.slow
@pytest.mark.long
def test_killed_at_random_moments_of_image_writes_every_write_ends_right(
    tmp_path: Path, drivers: Drivers
) -> None:
    rng, built, until = random.Random(SEED), drivers.machine, time.monotonic() + LIMIT_S
    before = [built.disk(number) for number in range(DISKS)]
    images, kills = [image(tmp_path, 0)], [0]
    while drivers.killed < KILLS:
        assert time.monotonic() < until, f"{drivers.killed} kills, {len(images)} images"
        if drivers.run(images[-1], rng.uniform(0.0, LIFE_S)):
            images.append(image(tmp_path, len(images)))
            kills.append(0)
        else:
            kills[-1] += 1
    drivers.begin(images[-1])
    finished = drivers.ended() == 0
    after, rows = [built.disk(number) for number in range(DISKS)], ledger(tmp_path)
    writes, log = built.acts("write", "written", "broken"), (built.state / "log").read_text()

    assert finished, drivers.errors()
    assert built.failed == ""
    assert drivers.errors() == ""
    assert hashlib.sha256(after[RIGHT][:IMAGE_BYTES]).hexdigest() == images[-1]["sha256"]
    before[RIGHT] = after[RIGHT][:IMAGE_BYTES] + before[RIGHT][IMAGE_BYTES:]
    assert after == before
    assert [row for row in rows if row.status in OPEN] == []
    assert [a for a in writes if a["act"] == "write" and not a["alone"]] == []
    for one, times in zip(images, kills, strict=True):
        acts = [a["act"] for a in writes if a["image"] == one["sha256"]]
        begun, name = acts.count("write"), f"host.os {one['version']} on SCRATCH{RIGHT}"
        # its last act is its only success; what came before was cut off with the daemon that
        # served the image, so there is at most one more write than there were kills
        assert acts == ["write", "broken"] * (begun - 1) + ["write", "written"]
        assert begun <= times + 1
        assert [r.status for r in rows if r.action == name].count(ActionStatus.CONFIRMED) == 1
    # the agent's own word for it: as many writes, and none to another disk
    assert log.count("Attempting to download image from") == len(writes) // 2
    assert log.count(f"Image streamed onto device /run/state/disk{RIGHT} ") == len(images)
    assert log.count("Image streamed onto device") == len(images)
    assert built.boots == len(images)  # nobody boots a machine anew because a daemon was killed
    assert built.runs == "disk"
    assert processes_with(built.cable.gateway) == []


def processes_with(word: str) -> list[str]:
    """Command lines with this word: agents have our address in theirs."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if word in line]
