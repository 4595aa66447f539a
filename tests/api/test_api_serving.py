"""The API as the daemon opens it: TLS of our own authority, bounded connections, slow peers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from served import MATRIX, StillClock, no_leaves

from provisioner.access.tokens import new_token
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts, serve_api
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState, Role
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.rows import request_rows
from provisioner.store.rows import request_rows as token_rows
from provisioner.store.sql_store import SqlStore, open_store

Scenario = Callable[[str, SqlStore, ssl.SSLContext, str], Awaitable[None]]


def run(folder: Path, scenario: Scenario, role: Role = Role.VIEWER, **settings: Any) -> None:
    async def bounded() -> None:
        data = folder / "data"
        store, clock = open_store(data / "provisioner.db"), StillClock()
        try:
            token, record = new_token("ada", role, "", 1.0, clock.now())
            await store.write(partial(token_rows.add_token, token=record, now=clock.now()))
            chosen = Settings(api_port=0, **settings)
            keeper = TenantKeeper(store, clock, [], no_leaves)
            parts = api_parts(store, keeper, MATRIX, folder, Context(store, clock, chosen))
            async with (
                asyncio.timeout(60),
                serve_api(replace(parts), data, MasterKey.generate()) as url,
            ):
                trust = ssl.create_default_context(cafile=data / "agent-ca.pem")
                await scenario(url, store, trust, token)
        finally:
            await store.close()

    asyncio.run(bounded())


def test_it_is_served_over_tls_of_our_own_authority(tmp_path):
    async def scenario(url: str, _store: SqlStore, trust: ssl.SSLContext, token: str) -> None:
        async with aiohttp.ClientSession() as session:
            key = {"Authorization": f"Bearer {token}"}
            async with session.get(url + "/v1/me", ssl=trust, headers=key) as answer:
                assert (await answer.json())["subject"] == "ada"
            async with session.get(url + "/v1/docs", ssl=trust) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert (answer.status, "default-src 'none'" in policy) == (200, True)
                page = await answer.text()
            assert "http" not in page.replace("http-equiv", "")
            assert "<script>" not in page

    run(tmp_path, scenario)


async def opened(url: str, trust: ssl.SSLContext) -> tuple[Any, Any]:
    port = int(url.rpartition(":")[2])
    return await asyncio.open_connection("127.0.0.1", port, ssl=trust)


def test_whoever_sends_headers_too_slowly_is_cut_off(tmp_path):
    async def scenario(url: str, _store: SqlStore, trust: ssl.SSLContext, _token: str) -> None:
        reader, writer = await opened(url, trust)
        writer.write(b"GET /v1/docs HTTP/1.1\r\nHost: x\r\n")
        for _ in range(100):
            if reader.at_eof() or writer.is_closing():
                break
            writer.write(b"X-Slow: 1\r\n")
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("it is still open")
        writer.close()

    run(tmp_path, scenario, api_idle_s=0.5)


def test_whoever_goes_in_the_middle_of_a_body_is_no_bug_of_ours(tmp_path, caplog):
    async def scenario(url: str, _store: SqlStore, trust: ssl.SSLContext, token: str) -> None:
        _, writer = await opened(url, trust)
        head = f"POST /v1/pins/remove HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Content-Length: 99\r\n\r\n{{".encode())
        await asyncio.sleep(0.3)  # the body is waited for
        writer.transport.abort()
        await asyncio.sleep(0.3)
        async with aiohttp.ClientSession() as session, session.get(url + "/v1/docs", ssl=trust):
            pass

    run(tmp_path, scenario, Role.OPERATOR)
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []


def test_connections_over_the_limit_are_closed(tmp_path):
    async def scenario(url: str, _store: SqlStore, trust: ssl.SSLContext, _token: str) -> None:
        # of 16, four are kept for known callers, and four for strangers
        ends = [await opened(url, trust) for _ in range(8)]
        for reader, writer in ends:  # one that asked for something makes no room
            writer.write(b"GET /absent HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"404" in await reader.readline()
        with contextlib.suppress(OSError):  # closed before TLS, or with nothing to read
            _reader, writer = await opened(url, trust)
            writer.close()
            raise AssertionError("it was let in")
        for _, end in ends:
            end.close()

    run(tmp_path, scenario, api_connections_max=16)


def test_a_caller_that_proved_itself_comes_in_beside_a_flood_and_a_stranger_too(tmp_path):
    async def scenario(url: str, _store: SqlStore, trust: ssl.SSLContext, token: str) -> None:
        async def ask(source: str, key: str) -> int:
            connector = aiohttp.TCPConnector(local_addr=(source, 0))
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(
                    f"{url}/v1/nodes", headers={"Authorization": f"Bearer {key}"}, ssl=trust
                ) as answer,
            ):
                return answer.status

        assert await ask("127.0.5.5", token) == 200
        place = urlsplit(url)
        held = []
        for number in range(64):  # of four addresses, silent
            address = (f"127.0.{number % 4 + 1}.7", 0)
            with contextlib.suppress(OSError):
                held.append(
                    await asyncio.open_connection(place.hostname, place.port, local_addr=address)
                )
        assert await ask("127.0.5.5", token) == 200
        assert await ask("127.0.6.6", "guessed") == 401
        assert await ask("127.0.0.1", token) == 200
        for _, end in held:
            end.close()

    run(tmp_path, scenario, api_connections_max=32, api_connections_per_peer=8)


def test_what_was_under_way_when_a_daemon_ended_is_told_as_lost(tmp_path):
    async def prepared() -> None:
        store = open_store(tmp_path / "data" / "provisioner.db")
        asked = ChangeRequest(
            kind=ChangeKind.TENANT_PUT, subject="red", asked_by="ada", asked_at=1.0
        )
        await store.write(partial(request_rows.add_request, asked=asked))
        await store.close()

    async def scenario(_url: str, store: SqlStore, _trust: ssl.SSLContext, _token: str) -> None:
        (row,) = await store.read(request_rows.read_requests)
        assert row.state is RequestState.LOST
        assert "look at it" in row.note

    asyncio.run(prepared())
    run(tmp_path, scenario)
