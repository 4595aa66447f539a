"""Artifacts of a real nginx: nothing is offered that was not read whole there, and is still so."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from aiohttp.test_utils import TestClient, TestServer
from nginx_server import MISSING, NGINX, Nginx
from outside_files import BODY, NAME, OTHER, PINNED, names, reason, run
from served import MATRIX, serving

from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.execution.steps.methods_redfish import require_offer
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

pytestmark = pytest.mark.skipif(NGINX is None, reason=MISSING)


def test_a_file_is_fetched_once_verified_and_pulled_from_the_address_that_devices_get(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file(NAME, PINNED) is None
        assert await files.confirm_offer(NAME, PINNED) is None
        assert await files.resolve(NAME, PINNED) == cache / NAME
        assert await files.offer_file(NAME, PINNED) is None

        assert len(server.asked("GET")) == 1
        assert len(server.asked("HEAD")) >= 3
        with await asyncio.to_thread(urlopen, files.pull_url(NAME)) as pulled:
            assert pulled.read() == BODY

    run(scenario, cache, server.url)

    assert (cache / NAME).read_bytes() == BODY
    assert names(cache) == {NAME}


def test_a_hundred_that_ask_at_once_make_one_fetch(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await asyncio.gather(*(files.offer_file(NAME, PINNED) for _ in range(100)))

        assert set(told) == {None}
        assert len(server.asked("GET")) == 1

    run(scenario, cache, server.url)


def test_one_that_gives_up_waiting_does_not_stop_the_others(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        first, second = (asyncio.create_task(files.offer_file(NAME, PINNED)) for _ in range(2))
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
        assert reason(await files.confirm_offer(NAME, PINNED)) is Reason.BUSY
        assert await files.offer_file(NAME, PINNED) is None
        assert len(server.asked("GET")) == 1

    run(scenario, cache, server.url)


def test_a_cache_that_is_right_does_not_cover_a_server_that_is_wrong(
    server: Nginx, cache: Path
) -> None:
    (cache / NAME).write_bytes(BODY)
    server.put(NAME, OTHER)

    async def scenario(files: OutsideArtifacts) -> None:
        assert reason(await files.offer_file(NAME, PINNED)) is Reason.DIGEST_MISMATCH
        assert await files.resolve(NAME, PINNED) == cache / NAME

    run(scenario, cache, server.url)

    assert (cache / NAME).read_bytes() == BODY


def test_a_file_that_is_exchanged_is_refused_and_then_verified_again(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file(NAME, PINNED) is None
        server.put(NAME, OTHER, modified=1_700_000_009)
        assert reason(await files.confirm_offer(NAME, PINNED)) is Reason.BUSY
        assert reason(await files.offer_file(NAME, PINNED)) is Reason.DIGEST_MISMATCH
        assert reason(await files.confirm_offer(NAME, PINNED)) is Reason.BUSY

        server.put(NAME, BODY, modified=1_700_000_018)
        assert await files.offer_file(NAME, PINNED) is None
        assert await files.confirm_offer(NAME, PINNED) is None
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
        work = require_offer(site, Work(act=act, finish=finish), NAME, PINNED)
        assert await files.offer_file(NAME, PINNED) is None
        assert await work.act.send() == Sent()
        server.put(NAME, OTHER, modified=1_700_000_009)
        assert reason(await work.act.send()) is Reason.BUSY
        assert told == ["the device"]

    run(scenario, cache, server.url)


def test_a_file_as_young_as_its_date_is_coarse_is_read_again(server: Nginx, cache: Path) -> None:
    server.put(NAME, BODY, modified=time.time())

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file(NAME, PINNED) is None
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
        assert await files.offer_file(NAME, PINNED) is None

    run(scenario, cache, server.url)

    assert (cache / NAME).read_bytes() == BODY


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
            async with TestClient(TestServer(build_application(parts, table.ALL))) as client:
                for _ in range(2):
                    answer = await (await client.get("/v1/artifacts", headers=headers)).json()
                    assert answer["pulled_from"] == server.url
                    found = next(i for i in answer["items"] if i["name"] == NAME)
                    shown.append(
                        (found["present"], found["seen_outside"], found["seen_at"] is not None)
                    )
                    assert await files.offer_file(NAME, PINNED) is None

            assert shown == [(False, "", False), (True, PINNED, True)]

    run(scenario, cache, server.url)
