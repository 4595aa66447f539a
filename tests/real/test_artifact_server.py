"""Artifacts of a real nginx: nothing is offered that was not read whole there, and is still so."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from aiohttp.test_utils import TestClient, TestServer
from nginx_server import MISSING, NGINX, Nginx, nginx
from served import MATRIX, serving

from provisioner.api import table
from provisioner.api.app import application
from provisioner.artifact_serving import outside_artifacts
from provisioner.execution.offering import confirmed
from provisioner.execution.once import Act, Sent, Snapshot
from provisioner.execution.outside_artifacts import LEFT_S, PART, OutsideArtifacts
from provisioner.execution.work import Site, Work
from provisioner.model.input_error import InputError
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.settings import Settings
from provisioner.sim.serve_tls import certificate
from provisioner.wall_clock import WallClock

NAME, BODY = "bf-bundle 3.3.0+é.bfb", b"firmware" * 300_000  # 2.4 MB, more than one piece
PINNED = hashlib.sha256(BODY).hexdigest()
OTHER = b"malware!" * 300_000  # of the same length

pytestmark = pytest.mark.skipif(NGINX is None, reason=MISSING)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nginx]:
    home = tmp_path / "nginx"
    home.mkdir()
    with nginx(home) as running:
        running.put(NAME, BODY)
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


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


def test_a_file_is_fetched_once_verified_and_pulled_from_the_address_that_devices_get(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer(NAME, PINNED) is None
        assert await files.confirm(NAME, PINNED) is None
        assert await files.resolve(NAME, PINNED) == cache / NAME
        assert await files.offer(NAME, PINNED) is None

        assert len(server.asked("GET")) == 1
        assert len(server.asked("HEAD")) >= 3
        with await asyncio.to_thread(urlopen, files.pull_url(NAME)) as pulled:
            assert pulled.read() == BODY

    run(scenario, cache, server.url)

    assert (cache / NAME).read_bytes() == BODY
    assert names(cache) == {NAME}


def test_a_hundred_that_ask_at_once_make_one_fetch(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await asyncio.gather(*(files.offer(NAME, PINNED) for _ in range(100)))

        assert set(told) == {None}
        assert len(server.asked("GET")) == 1

    run(scenario, cache, server.url)


def test_one_that_gives_up_waiting_does_not_stop_the_others(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        first, second = (asyncio.create_task(files.offer(NAME, PINNED)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()

        assert await second is None
        assert first.cancelled()

    run(scenario, cache, server.url)


def test_what_is_in_the_cache_already_is_read_outside_once_before_it_is_offered(
    server: Nginx, cache: Path
) -> None:
    (cache / NAME).write_bytes(BODY)

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.resolve(NAME, PINNED) == cache / NAME
        assert server.asked("GET") == []  # what we push needs nobody
        assert reason(await files.confirm(NAME, PINNED)) is Reason.BUSY
        assert await files.offer(NAME, PINNED) is None
        assert len(server.asked("GET")) == 1

    run(scenario, cache, server.url)


def test_a_cache_that_is_right_does_not_cover_a_server_that_is_wrong(
    server: Nginx, cache: Path
) -> None:
    (cache / NAME).write_bytes(BODY)
    server.put(NAME, OTHER)

    async def scenario(files: OutsideArtifacts) -> None:
        assert reason(await files.offer(NAME, PINNED)) is Reason.DIGEST_MISMATCH
        assert await files.resolve(NAME, PINNED) == cache / NAME

    run(scenario, cache, server.url)

    assert (cache / NAME).read_bytes() == BODY


def test_a_file_that_is_exchanged_is_refused_and_then_verified_again(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer(NAME, PINNED) is None
        server.put(NAME, OTHER, modified=1_700_000_009)
        assert reason(await files.confirm(NAME, PINNED)) is Reason.BUSY
        assert reason(await files.offer(NAME, PINNED)) is Reason.DIGEST_MISMATCH
        assert reason(await files.confirm(NAME, PINNED)) is Reason.BUSY

        server.put(NAME, BODY, modified=1_700_000_018)
        assert await files.offer(NAME, PINNED) is None
        assert await files.confirm(NAME, PINNED) is None
        assert len(server.asked("GET")) == 3

    run(scenario, cache, server.url)


def test_a_device_is_told_no_address_of_a_file_that_was_exchanged_since(
    server: Nginx, cache: Path
) -> None:
    told: list[str] = []

    async def send() -> Sent:
        told.append("the device")
        return Sent()

    async def look() -> Snapshot:
        return {}

    async def finish(_: LedgerEntry) -> None:
        return None

    async def scenario(files: OutsideArtifacts) -> None:
        site = Site(
            clock=WallClock(), settings=Settings(), reach=None, runner=None, shell=None,
            agents=None, artifacts=files,
        )  # fmt: skip
        act = Act(name="pull", before={}, look=look, send=send, happened=lambda _a, _b: False)
        work = confirmed(site, Work(act=act, finish=finish), NAME, PINNED)
        assert await files.offer(NAME, PINNED) is None
        assert await work.act.send() == Sent()
        server.put(NAME, OTHER, modified=1_700_000_009)
        assert reason(await work.act.send()) is Reason.BUSY
        assert told == ["the device"]

    run(scenario, cache, server.url)


def test_a_file_as_young_as_its_date_is_coarse_is_read_again(server: Nginx, cache: Path) -> None:
    server.put(NAME, BODY, modified=time.time())

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer(NAME, PINNED) is None
        assert len(server.asked("GET")) == 2

    run(scenario, cache, server.url)


def test_a_wrong_file_is_not_kept_and_not_fetched_again_while_it_is_the_same(
    server: Nginx, cache: Path
) -> None:
    server.put(NAME, OTHER)

    async def scenario(files: OutsideArtifacts) -> None:
        for _ in range(3):
            told = await files.resolve(NAME, PINNED)
            assert isinstance(told, Blocker)
            assert (told.reason, PINNED in told.detail) == (Reason.DIGEST_MISMATCH, True)
        assert len(server.asked("GET")) == 1

    run(scenario, cache, server.url)

    assert names(cache) == set()


def test_a_cached_file_of_an_older_pin_gives_way_to_the_pinned_one(
    server: Nginx, cache: Path
) -> None:
    (cache / NAME).write_bytes(OTHER)

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer(NAME, PINNED) is None

    run(scenario, cache, server.url)

    assert (cache / NAME).read_bytes() == BODY


def test_an_absent_file_is_told_with_what_would_unblock_it(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await files.offer("gone.bin", PINNED)
        assert isinstance(told, Blocker)
        assert told.reason is Reason.MISSING_ARTIFACT
        assert f"{server.url}/gone.bin" in told.detail
        assert "put it on the server" in told.unblock

        assert await files.offer(NAME, PINNED) is None
        (server.files / NAME).unlink()
        assert reason(await files.confirm(NAME, PINNED)) is Reason.MISSING_ARTIFACT

    run(scenario, cache, server.url)


def test_a_server_that_is_away_is_waited_for(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        server.stop()
        assert reason(await files.offer(NAME, PINNED)) is Reason.UNREACHABLE
        server.start()
        assert await files.offer(NAME, PINNED) is None
        server.stop()
        assert reason(await files.confirm(NAME, PINNED)) is Reason.UNREACHABLE
        assert await files.resolve(NAME, PINNED) == cache / NAME
        assert await files.renew(NAME, PINNED) is None

    run(scenario, cache, server.url)


def test_a_connection_that_breaks_in_the_middle_leaves_nothing_and_is_tried_again(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        asked = asyncio.create_task(files.resolve(NAME, PINNED))
        await until(lambda: half_fetched(cache) > 0)
        assert not (cache / NAME).exists()
        server.stop(signal.SIGKILL)
        assert reason(await asked) is Reason.UNREACHABLE
        assert names(cache) == set()

    run(scenario, cache, f"{server.origin}/slow")


def test_a_daemon_that_ends_in_the_middle_of_a_fetch_leaves_nothing(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        asked = asyncio.create_task(files.resolve(NAME, PINNED))
        await until(lambda: half_fetched(cache) > 0)
        asked.cancel()

    run(scenario, cache, f"{server.origin}/slow")

    assert names(cache) == set()


def test_what_a_killed_daemon_left_half_fetched_is_removed_when_nobody_can_be_at_it(
    server: Nginx, cache: Path
) -> None:
    for name, age_s in (("old", LEFT_S + 60), ("young", 60)):
        (cache / f"{PART}{name}").write_bytes(b"half")
        os.utime(cache / f"{PART}{name}", (time.time() - age_s,) * 2)

    async def scenario(files: OutsideArtifacts) -> None:
        assert names(cache) == {f"{PART}young"}
        assert reason(await files.offer(f"{PART}young", "")) is Reason.MISSING_ARTIFACT

    run(scenario, cache, server.url)


@pytest.mark.parametrize(
    ("folder", "wanted", "word"),
    [
        ("moved", Reason.NOT_OFFERED, "302"),
        ("closed", Reason.NOT_OFFERED, "403"),
        ("packed", Reason.NOT_OFFERED, "gzip"),
        ("broken", Reason.BUSY, "503"),
    ],
)
def test_an_answer_that_is_not_the_plain_file_is_refused(
    server: Nginx, cache: Path, folder: str, wanted: Reason, word: str
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await files.offer(NAME, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, word in told.detail) == (wanted, True)

    run(scenario, cache, f"{server.origin}/{folder}")

    assert not any("/files" in path for path in server.asked("HEAD"))


def test_a_server_without_validators_is_read_for_each_offer(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        for count in (2, 3):
            assert await files.offer(NAME, PINNED) is None
            assert await files.confirm(NAME, PINNED) is None  # read whole just before
            assert len(server.asked("GET")) == count

    run(scenario, cache, f"{server.origin}/silent")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "..", "a\x00b", "a\nb", "x" * 300])
def test_a_name_that_is_no_plain_file_is_never_asked_for(
    server: Nginx, cache: Path, name: str
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert reason(await files.resolve(name, PINNED)) is Reason.MISSING_ARTIFACT
        assert reason(await files.offer(name, PINNED)) is Reason.MISSING_ARTIFACT

    run(scenario, cache, server.url)

    assert server.asked("HEAD") + server.asked("GET") == []


def test_a_cache_that_cannot_be_written_is_told(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        cache.rmdir()  # noqa: ASYNC240 (of the test)
        told = await files.offer(NAME, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, "--artifacts" in told.unblock) == (Reason.MISSING_ARTIFACT, True)

    run(scenario, cache, server.url)


def test_a_cache_that_is_not_there_is_told_before_anything_is_asked(
    server: Nginx, tmp_path: Path
) -> None:
    async def scenario(_: OutsideArtifacts) -> None:
        pytest.fail("it was opened")

    with pytest.raises(InputError, match="--artifacts"):
        run(scenario, tmp_path / "not made", server.url)


def test_the_api_tells_where_devices_pull_from_and_what_was_seen_there(
    server: Nginx, cache: Path
) -> None:
    pin = MATRIX.images["maintenance"].model_copy(update={"artifact": NAME, "sha256": PINNED})
    matrix = MATRIX.model_copy(update={"images": {"maintenance": pin}})

    async def scenario(files: OutsideArtifacts) -> None:
        async with serving() as api:
            parts = replace(api.parts, matrix=matrix, artifacts=cache, outside=files)
            headers = {"Authorization": f"Bearer {api.tokens['viewer']}"}
            shown = []
            async with TestClient(TestServer(application(parts, table.ALL))) as client:
                for _ in range(2):
                    answer = await (await client.get("/v1/artifacts", headers=headers)).json()
                    assert answer["pulled_from"] == server.url
                    found = next(i for i in answer["items"] if i["name"] == NAME)
                    shown.append((found["present"], found["seen_outside"], found["seen_at"] > 0))
                    assert await files.offer(NAME, PINNED) is None

            assert shown == [(False, "", False), (True, PINNED, True)]

    run(scenario, cache, server.url)


def test_only_a_certificate_of_a_trusted_ca_is_believed(tmp_path: Path, cache: Path) -> None:
    own, foreign = certificate("files", "127.0.0.1"), certificate("files", "127.0.0.1")
    home = tmp_path / "tls"
    home.mkdir()
    (tmp_path / "own.pem").write_bytes(own[0])
    (tmp_path / "foreign.pem").write_bytes(foreign[0])

    async def good(files: OutsideArtifacts) -> None:
        assert await files.offer(NAME, PINNED) is None

    async def bad(files: OutsideArtifacts) -> None:
        told = await files.offer(NAME, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, "--ca-file" in told.unblock) == (Reason.CERTIFICATE_CHANGED, True)

    with nginx(home, own) as server:
        server.put(NAME, BODY)
        run(bad, cache, server.url)
        run(bad, cache, server.url, tmp_path / "foreign.pem")
        run(good, cache, server.url, tmp_path / "own.pem")
