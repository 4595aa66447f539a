"""A BlueField pulls its bundle from an nginx that is none of ours, and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from card_bench import BFB, BUNDLE, HOST, NAME, Bench, carded, runs, updated
from nginx_server import MISSING, NGINX, Nginx, nginx
from simulated import Served

from provisioner.daemon.artifacts import outside_artifacts
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.wall_clock import WallClock

pytestmark = [
    pytest.mark.skipif(NGINX is None, reason=MISSING),
    pytest.mark.filterwarnings("ignore"),
]


def play(
    tmp_path: Path, content: bytes, *, merge: bool = True
) -> tuple[tuple[Blocker, ...], str, list[str], list[str]]:
    """What came of the update, what the card runs, what nginx was asked for, and the ledger."""
    with together(tmp_path, content, merge=merge) as (site, server):
        told, running, ledger = updated(site, server.url, tmp_path / "cache")
        return told, running, server.asked("GET"), ledger


@contextlib.contextmanager
def together(
    tmp_path: Path, content: bytes, *, merge: bool = True
) -> Iterator[tuple[Served, Nginx]]:
    """A site, and a server outside that has the bundle."""
    for name in ("cache", "peer", "nginx"):
        (tmp_path / name).mkdir()
    with nginx(tmp_path / "nginx", merge=merge) as server, carded() as site:
        server.put(NAME, content)
        yield site, server


def test_a_card_installs_the_bundle_that_it_pulls_from_outside(tmp_path: Path) -> None:
    told, running, asked, ledger = play(tmp_path, BFB)

    assert told == ()
    assert running == BUNDLE
    assert asked == [f"/files/{NAME}", f"//files/{NAME}"]  # ours, and the card's own way to ask
    assert ledger == [ActionStatus.CONFIRMED]


def test_a_card_is_told_nothing_of_a_file_that_is_not_the_pinned_one(tmp_path: Path) -> None:
    told, running, asked, ledger = play(tmp_path, BFB.replace(b"147_25.01", b"666_25.01"))

    assert [b.reason for b in told] == [Reason.DIGEST_MISMATCH]
    assert running != BUNDLE
    assert asked == [f"/files/{NAME}"]
    assert ledger == []


def test_a_card_is_told_nothing_by_a_server_that_takes_its_two_slashes_for_another_file(
    tmp_path: Path,
) -> None:
    told, running, asked, ledger = play(tmp_path, BFB, merge=False)

    assert [b.reason for b in told] == [Reason.MISSING_ARTIFACT]
    assert f"//files/{NAME}" in told[0].detail
    assert "two slashes" in told[0].unblock
    assert running != BUNDLE
    assert asked == [f"/files/{NAME}"]
    assert ledger == []


def test_the_end_of_a_daemon_breaks_no_transfer_and_its_peer_needs_no_server_to_see_it_through(
    tmp_path: Path,
) -> None:
    async def main(site: Served, server: Nginx) -> tuple[Blocker | None, list[str]]:
        url, clock = server.url, WallClock()
        async with outside_artifacts(tmp_path / "cache", url, clock) as files:
            bench = Bench(site, files)
            await bench.open()
            going = asyncio.create_task(bench.update(hashlib.sha256(BFB).hexdigest()))
            for _ in range(1000):
                rows = await bench.store.operations.list_entries(HOST)
                if [r.status for r in rows] == [ActionStatus.SENT] and server.asked()[1:]:
                    break
                await asyncio.sleep(0.02)
            going.cancel()
        server.stop()
        async with outside_artifacts(tmp_path / "peer", url, clock) as files:
            problem = await asyncio.wait_for(bench.resume(files), 60)
        await bench.transport.close()
        return problem, [r.status for r in await bench.store.operations.list_entries(HOST)]

    with together(tmp_path, BFB) as (site, server):
        problem, ledger = asyncio.run(main(site, server))

        assert problem is None
        assert runs(site) == BUNDLE
    assert ledger == [ActionStatus.CONFIRMED]
    assert server.asked("GET") == [f"/files/{NAME}", f"//files/{NAME}"]
    assert list((tmp_path / "peer").iterdir()) == []
