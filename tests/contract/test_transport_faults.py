"""Answers that break HTTP or JSON: the Redfish transport raises what its port promises."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp import web
from devices import Bmc, Broken, run

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import Call as Request
from provisioner.ports import (
    Malformed,
    PortError,
    Reply,
    TooLarge,
    Unreachable,
)

GET = Request("GET", "/redfish/v1/Systems/1", timeout_s=5)
POST = Request("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {}, timeout_s=5)
PATCH = Request("PATCH", "/redfish/v1/Systems/1", {"AssetTag": "1"}, timeout_s=5)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def ask(device: Broken, call: Request) -> Reply:
    transport = RedfishTransport()
    try:
        return await transport.request(device.stranger(), call)
    finally:
        await transport.close()


BROKEN = {
    "t12 body shorter than announced": OK + b"Content-Length: 400\r\n\r\n{}",
    "not http": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "bad status line": b"HTTP/1.1 abc OK\r\n\r\n",
    "bad length": OK + b"Content-Length: -5\r\n\r\n{}",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "bad chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "chunks without end": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "header of 100 KB": OK + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n{}",
    "5,000 headers": OK + b"".join(b"X-%d: a\r\n" % i for i in range(5000)) + b"\r\n{}",
    "nul in a header": OK + b"X-Odd: a\0b\r\n\r\n{}",
    "bad gzip": OK + b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nnogzip",
    "cut gzip": OK + b"Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
    + gzip.compress(b"{}" * 900)[:12],
    "unasked coding": OK + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
    "nothing at all": b"",
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_answer_to_a_get_is_a_promised_error(text) -> None:
    async def scenario() -> None:
        async with Broken(text) as device:
            with pytest.raises((Malformed, Unreachable, TooLarge)):
                await ask(device, GET)

            assert len(device.requests) <= 2

    run(scenario())


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_t3_a_broken_answer_to_a_post_leaves_it_in_doubt_and_is_not_repeated(text) -> None:
    async def scenario() -> None:
        async with Broken(text) as device:
            with pytest.raises(Unreachable) as caught:
                await ask(device, POST)

            assert caught.value.maybe_executed
            assert len(device.requests) == 1

    run(scenario())


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_t2_a_write_on_a_connection_that_dies_is_sent_once(method) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def scenario() -> None:
        async with Broken(hang_up) as device:
            with pytest.raises(Unreachable) as caught:
                await ask(device, Request(method, "/redfish/v1/Systems/1"))

            assert caught.value.maybe_executed
            assert len(device.requests) == 1

    run(scenario())


def test_t1_a_get_on_a_dead_connection_is_repeated_once() -> None:
    async def once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(device.requests) in (1, 3):
            writer.write(OK + b"Content-Length: 2\r\n\r\n{}")
        else:
            writer.transport.abort()

    device = Broken(once)

    async def scenario() -> None:
        async with device:
            transport = RedfishTransport()
            await transport.request(device.stranger(), GET)

            assert (await transport.request(device.stranger(), GET)).status == 200
            assert len(device.requests) == 3
            await transport.close()

    run(scenario())


def test_t2_a_write_never_takes_the_connection_that_reads_left_open() -> None:
    ports = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(writer.get_extra_info("peername")[1])
        writer.write(OK + b"Content-Length: 2\r\n\r\n{}")

    async def scenario() -> None:
        async with Broken(note) as device:
            transport = RedfishTransport()
            for call in (GET, GET, POST, GET):
                await transport.request(device.stranger(), call)

            assert ports[0] == ports[1] == ports[3] != ports[2]
            await transport.close()

    run(scenario())


def test_t2_a_setting_takes_the_connection_of_a_moment_ago_until_one_broke() -> None:
    ports = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(writer.get_extra_info("peername")[1])
        if len(ports) == 3:
            writer.transport.abort()
        else:
            writer.write(OK + b"Content-Length: 2\r\n\r\n{}")

    async def scenario() -> None:
        async with Broken(note) as device:
            transport = RedfishTransport()
            for call in (GET, PATCH):
                await transport.request(device.stranger(), call)
            with pytest.raises(Unreachable) as caught:
                await transport.request(device.stranger(), PATCH)

            assert caught.value.maybe_executed
            assert len(ports) == 3  # the lost one was sent once
            for call in (GET, PATCH):
                await transport.request(device.stranger(), call)
            assert ports[0] == ports[1] == ports[2] != ports[3] != ports[4]
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("call", [GET, POST], ids=["get", "post"])
def test_nobody_there_means_that_nothing_was_executed(call) -> None:
    async def scenario() -> None:
        async with Broken(b"") as device:
            await device.stop()
            with pytest.raises(Unreachable) as caught:
                await ask(device, call)

            assert not caught.value.maybe_executed

    run(scenario())


@pytest.mark.parametrize(
    ("body", "meant"),
    [(b"\xef\xbb\xbf{}", {}), (b'{"a": 1, "a": 1}', {"a": 1})],
    ids=["byte order mark", "name twice"],
)
def test_odd_json_is_read(body, meant) -> None:
    async def scenario() -> None:
        text = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
        async with Broken(text) as device:
            assert (await ask(device, GET)).json() == meant

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b"<html>504 Gateway Timeout</html>",
        b"",
        b"{",
        b"[" * 100_000,
        b'{"a": \xff}',
        b'{"a": 1, "a": 2}',
    ],
    ids=["t5 html", "t14 empty", "cut", "deep", "not utf-8", "two values of one name"],
)
def test_what_is_no_json_says_so_when_it_is_read(body) -> None:
    async def scenario() -> None:
        text = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
        async with Broken(text) as device:
            reply = await ask(device, GET)
            with pytest.raises(Malformed):
                reply.json()

    run(scenario())


def test_e5_of_two_headers_with_one_name_the_first_counts() -> None:
    async def scenario() -> None:
        text = OK + b'ETag: "1"\r\nETag: "2"\r\nContent-Length: 2\r\n\r\n{}'
        async with Broken(text) as device:
            assert (await ask(device, GET)).headers["etag"] == '"1"'

    run(scenario())


def test_t16_http_1_0_is_understood() -> None:
    async def scenario() -> None:
        async with Broken(b"HTTP/1.0 200 OK\r\n\r\n{}") as device:
            assert (await ask(device, GET)).json() == {}

    run(scenario())


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def scenario() -> None:
        async with Broken(b"HTTP/1.1 301 M\r\nLocation: https://evil.example/\r\n\r\n") as device:
            assert (await ask(device, GET)).status == 301
            assert len(device.requests) == 1

    run(scenario())


@pytest.mark.parametrize("path", ["//evil.example/x", "https://evil.example/x", "http://["])
def test_a_link_to_another_place_is_not_followed(path) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            with pytest.raises(Malformed):
                await transport.request(bmc.address(), Request("GET", path))
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("header", [{"If-Match": 'a"\r\nX: y'}, {"If-Match": "a\0"}])
def test_a_header_that_breaks_the_line_is_not_sent(header) -> None:
    async def scenario() -> None:
        async with Broken(OK + b"\r\n{}") as device:
            with pytest.raises(PortError):
                await ask(device, Request("GET", GET.path, headers=header))

            assert device.requests == []

    run(scenario())


def test_t9_a_bmc_that_refuses_identity_gets_gzip(monkeypatch) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:

            async def picky(request: web.Request) -> web.Response:
                if request.headers["Accept-Encoding"] == "identity":
                    return web.Response(status=406)
                return web.Response(
                    body=gzip.compress(b'{"Id": "1"}'), headers={"Content-Encoding": "gzip"}
                )

            bmc.answers["GET", "/redfish/v1/Systems/1"] = picky
            transport = RedfishTransport()

            assert (await transport.request(bmc.address(), GET)).json() == {"Id": "1"}
            await transport.close()

    run(scenario())
