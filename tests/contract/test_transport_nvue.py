"""The NVUE transport keeps the same promises as the Redfish one, with Basic on each request."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest
from aiohttp import web
from devices import Bmc, Broken, run

from provisioner.adapters import bounded_http
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.ports import (
    AccountLocked,
    Call,
    CertificateChanged,
    LoginRefused,
    Malformed,
    Secret,
    SwitchAddress,
    TooLarge,
    Unreachable,
)

GET = Call("GET", "/nvue_v1/vrf?rev=operational", timeout_s=5)
POST = Call("POST", "/nvue_v1/revision", {}, timeout_s=5)


def switch(device: Bmc | Broken, password: str = "") -> SwitchAddress:
    return SwitchAddress(
        device.url, device.username, Secret(password or device.password), device.pin
    )


def test_a_query_and_a_quoted_slash_reach_the_switch_as_written() -> None:
    async def scenario() -> None:
        async with Bmc() as device:
            raw = []

            async def note(request: web.Request) -> web.Response:
                raw.append(request.raw_path)
                return web.json_response({})

            device.answers["GET", "/nvue_v1/revision/changeset/cumulus/a/b"] = note
            transport = SwitchHttps()
            path = "/nvue_v1/revision/changeset%2Fcumulus%2Fa/b?rev=operational"
            reply = await transport.request(switch(device), Call("GET", path))

            assert (reply.status, raw) == (200, [path])
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_never_had_a_connection_was_not_executed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "CONNECT_MAX_S", 0.3)

    async def scenario(url: str) -> None:
        transport = SwitchHttps()
        with pytest.raises(Unreachable) as lost:
            await transport.request(SwitchAddress(url), Call(method, "/nvue_v1", timeout_s=27))
        assert not lost.value.maybe_executed
        await transport.close()

    with ExitStack() as held:
        full = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # its queue is full: the kernel answers no further one
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        run(scenario(f"https://127.0.0.1:{full.getsockname()[1]}"))


def test_a_refused_password_is_shown_once() -> None:
    async def scenario() -> None:
        async with Bmc() as device:
            transport = SwitchHttps()
            with pytest.raises(LoginRefused):
                await transport.request(switch(device, "wrong"), GET)
            for _ in range(5):
                with pytest.raises(AccountLocked):
                    await transport.request(switch(device, "wrong"), GET)

            assert device.logins_failed == 1
            assert (await transport.request(switch(device), GET)).status == 200
            await transport.close()

    run(scenario())


def test_a_switch_that_hangs_up_gets_a_write_once() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def scenario() -> None:
        async with Broken(hang_up) as device:
            transport = SwitchHttps()
            with pytest.raises(Unreachable) as caught:
                await transport.request(switch(device), POST)

            assert caught.value.maybe_executed
            assert len(device.requests) == 1
            await transport.close()

    run(scenario())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", TooLarge),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", Malformed),
        (b"hello\r\n\r\n", Malformed),
    ],
    ids=["huge", "cut", "not http"],
)
def test_a_broken_answer_is_a_promised_error(text, error) -> None:
    async def scenario() -> None:
        async with Broken(text) as device:
            transport = SwitchHttps()
            with pytest.raises(error):
                await transport.request(switch(device), GET)
            await transport.close()

    run(scenario())


def test_another_certificate_plain_http_and_another_host_are_refused() -> None:
    async def scenario() -> None:
        async with Bmc() as device:
            transport = SwitchHttps()
            good = switch(device)
            with pytest.raises(CertificateChanged):
                await transport.request(
                    SwitchAddress(good.url, good.username, good.secret, "0" * 64), GET
                )
            with pytest.raises(LoginRefused):
                await transport.request(
                    SwitchAddress("http://127.0.0.1:1", good.username, good.secret), GET
                )
            with pytest.raises(Malformed):
                await transport.request(good, Call("GET", "//evil.example/"))

            assert device.log == []
            await transport.close()

    run(scenario())
