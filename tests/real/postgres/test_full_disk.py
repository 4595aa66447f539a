"""The disk of the database is full: writes fail with a reason, nothing is half done, it goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from postgres_server import Server

from provisioner.model.node import Node, NodeKind
from provisioner.ports import StoreFailed
from provisioner.store import open_store

pytestmark = pytest.mark.long
LIMIT_S = 60.0


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Path]]:
    """A server on a file system of 200 MB, and that file system."""
    if os.getuid() != 0:
        pytest.skip("a file system of its own needs root")
    place = tmp_path / "disk"
    place.mkdir()
    tmp_path.chmod(0o755)
    for above in tmp_path.parents:
        if above.stat().st_uid == os.getuid() and str(above).startswith("/tmp/"):
            above.chmod(0o755)  # the server's user has to enter
    mount = ["mount", "-t", "tmpfs", "-o", "size=200m,mode=755", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    monkeypatch.setattr(postgres_server, "ROOMY", place)
    monkeypatch.setattr(postgres_server, "_room", Path.is_dir)
    server = Server(memory=True)
    monkeypatch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
    try:
        server.start("-c", "min_wal_size=32MB", "-c", "max_wal_size=48MB")
        yield server, place
    finally:
        server.stop()
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Use up what is left."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"x" * 4096)
        except OSError:
            return filler


def test_a_full_disk_fails_writes_with_its_reason_and_what_was_answered_is_kept(small):
    server, place = small
    database = server.url(server.make())

    async def scenario() -> tuple[list[str], str, list[str], bool]:
        store = open_store(database)
        answered: list[str] = []
        why = ""
        filler = fill(place)
        until = time.monotonic() + LIMIT_S
        while not why and time.monotonic() < until:
            name = f"n{len(answered):04}{'x' * 6000}"
            try:
                await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
                answered.append(name)
            except StoreFailed as error:
                why = str(error)
        filler.unlink()
        await store.close()  # as the daemon, which ends with this reason and is started again
        await asyncio.to_thread(server_answers, server)
        again = open_store(database)
        await again.nodes.add(Node(id="after", kind=NodeKind.HOST))
        kept = [n.id for n in await again.nodes.list()]
        check = await again.journal.verify()
        await again.close()
        return answered, why, kept, check.intact

    answered, why, kept, intact = asyncio.run(scenario())

    assert "No space left on device" in why or "server closed the connection" in why
    assert sorted([*answered, "after"]) == sorted(kept)
    assert intact


def server_answers(server: Server) -> None:
    """Wait until the server, which may have ended itself for its log's sake, takes connections."""
    assert server.process is not None
    if server.process.poll() is not None:
        server.start()
    until = time.monotonic() + LIMIT_S
    while not server._answers():
        assert time.monotonic() < until
        time.sleep(0.1)
