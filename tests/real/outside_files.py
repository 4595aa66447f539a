"""What the tests of artifacts of a server outside have in common: its file, and a daemon's side."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from nginx_server import Nginx, nginx

from provisioner.daemon.artifacts import outside_artifacts
from provisioner.execution.artifacts.outside_artifacts import PART, OutsideArtifacts
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.wall_clock import WallClock

NAME, BODY = "bf-bundle 3.3.0+é.bfb", b"firmware" * 300_000  # 2.4 MB, more than one piece
PINNED = hashlib.sha256(BODY).hexdigest()
OTHER = b"malware!" * 300_000  # of the same length


@contextlib.contextmanager
def serving_files(tmp_path: Path) -> Iterator[Nginx]:
    """A server that has the file."""
    home = tmp_path / "nginx"
    home.mkdir()
    with nginx(home) as running:
        running.put(NAME, BODY)
        yield running


def run(
    scenario: Callable[[OutsideArtifacts], Awaitable[None]],
    cache: Path,
    url: str,
    ca_file: Path | None = None,
) -> None:
    async def main() -> None:
        async with outside_artifacts(cache, url, WallClock(), ca_file) as files:
            await asyncio.wait_for(scenario(files), 60)

    asyncio.run(main())


def reason(told: object) -> Reason | None:
    return told.reason if isinstance(told, Blocker) else None


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def half_fetched(folder: Path) -> int:
    """Bytes that came so far."""
    return sum(p.stat().st_size for p in folder.glob(f"{PART}*"))


async def until(so: Callable[[], bool]) -> None:
    for _ in range(1500):
        if so():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it never came")
