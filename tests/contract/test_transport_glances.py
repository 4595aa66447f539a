"""Single reads of the watch: one request with Basic, after the pin, and the ordinary way else."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from devices import SESSIONS, Bmc, Broken, run

from provisioner.adapters.bounded_http import Attempt, bare_context, open_session
from provisioner.adapters.redfish.glance import HEAD_MAX_BYTES, is_possible, read_answer, read_once
from provisioner.adapters.redfish.governor import WINDOW_S, LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    Call,
    CertificateChanged,
    LoginRefused,
    Malformed,
    Reply,
    Secret,
    TooLarge,
    Unreachable,
)

PATH = "/redfish/v1/Systems/1"
ALONE = Call("GET", PATH, alone=True)


class WithoutBasic(Bmc):
    """A service whose `HTTPBasicAuth` is disabled (DSP2046, AccountService): 401 to each."""

    def _authorized(self, request: web.Request) -> bool:
        return "Authorization" not in request.headers and super()._authorized(request)


def glancing(
    scenario: Callable[[Any, RedfishTransport], Awaitable[None]],
    device: type[Bmc] = Bmc,
    **options: Any,
) -> None:
    """Run a scenario with a BMC where a login has just been opened and closed again."""

    async def whole() -> None:
        async with device() as bmc:
            transport = RedfishTransport(**options)
            await transport.request(bmc.address(), ALONE)
            assert bmc.sessions_made == 1, "the first read proves the password by a login"
            await transport.forget(bmc.address())
            bmc.log.clear()
            bmc.headers.clear()
            await scenario(bmc, transport)
            await transport.close()

    run(whole())


def test_a_single_read_is_one_request_on_a_connection_that_the_bmc_closes() -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        reply = await transport.request(bmc.address(), ALONE)

        assert reply.json() == {"@odata.id": PATH}
        assert bmc.log == [("GET", PATH)]
        assert bmc.headers[0]["connection"] == "close"
        pair = f"{bmc.username}:{bmc.password}".encode()
        assert bmc.headers[0]["authorization"] == f"Basic {base64.b64encode(pair).decode()}"
        assert bmc.headers[0]["accept-encoding"] == "identity"

    glancing(scenario)


def test_a_site_without_basic_for_the_watch_has_a_session_for_each_read() -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        await transport.request(bmc.address(), ALONE)

        assert ("POST", SESSIONS) in bmc.log
        assert not any("authorization" in headers for headers in bmc.headers)

    glancing(scenario, watch_basic=False)


def test_a_session_that_was_just_used_is_used_again() -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        await transport.request(bmc.address(), Call("GET", PATH))
        await transport.request(bmc.address(), ALONE)

        assert not any("authorization" in headers for headers in bmc.headers)

    glancing(scenario)


def test_no_password_reaches_a_bmc_with_another_certificate() -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        address = bmc.address()
        await bmc.stop()
        bmc.renew_certificate()
        await bmc.start()
        with pytest.raises(CertificateChanged):
            await transport.request(address, ALONE)

        assert bmc.log == []

    glancing(scenario)


def test_where_basic_is_disabled_the_same_read_is_answered_by_a_session() -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        for _ in range(3):
            assert (await transport.request(bmc.address(), ALONE)).status == 200
            await transport.forget(bmc.address())

        assert sum("authorization" in headers for headers in bmc.headers) == 1

    glancing(scenario, WithoutBasic)


@pytest.mark.parametrize("device", [Bmc, WithoutBasic])
def test_a_password_changed_behind_our_back_fails_twice_at_most(device) -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        old = bmc.address()
        bmc.password = "another"
        for _ in range(5):
            with pytest.raises((LoginRefused, AccountLocked)):
                await transport.request(old, ALONE)

        refused_basic = sum("authorization" in headers for headers in bmc.headers)
        assert refused_basic + bmc.log.count(("POST", SESSIONS)) == 2
        times.append(times[-1] + WINDOW_S + 1.0)
        assert (await transport.request(bmc.address(), Call("GET", PATH))).status == 200

    times = [1_790_000_000.0]
    glancing(scenario, device, governor=LoginGovernor(backoff_s=0.0, clock=lambda: times[-1]))


async def _redirect(_: web.Request) -> web.Response:
    return web.Response(status=308, headers={"Location": f"{PATH}/"})


async def _packed(request: web.Request) -> web.Response:
    answer = web.json_response({"@odata.id": PATH})
    if "X-Auth-Token" not in request.headers:
        answer.headers["Content-Encoding"] = "br"
    return answer


@pytest.mark.parametrize("odd", [_redirect, _packed])
def test_an_answer_that_needs_more_is_left_to_the_ordinary_way(odd) -> None:
    async def scenario(bmc: Bmc, transport: RedfishTransport) -> None:
        bmc.answers["GET", PATH] = odd
        for _ in range(2):
            assert (await transport.request(bmc.address(), ALONE)).status == 200
            await transport.forget(bmc.address())

        assert sum("authorization" in headers for headers in bmc.headers) == 1

    glancing(scenario)


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", Unreachable),
        (b"", Unreachable),
        (b"SSH-2.0-dropbear\r\n", Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", TooLarge),
    ],
    ids=["ends early", "no answer", "another protocol", "too much"],
)
def test_a_broken_answer_is_a_promised_error(told, error) -> None:
    async def scenario() -> None:
        async with Broken(told) as server:
            with pytest.raises(error) as raised:
                await read_once(server.address(), ALONE, Attempt(safe=True))

            assert server.password not in str(raised.value)
            assert len(server.requests) == 1

    run(scenario())


def test_a_bmc_that_never_answers_is_unreachable_within_the_limit() -> None:
    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with Broken(silent) as server:
            with pytest.raises(Unreachable):
                await read_once(
                    server.address(),
                    Call("GET", PATH, timeout_s=0.3, alone=True),
                    Attempt(safe=True),
                )

    run(scenario())


def test_only_what_basic_can_carry_to_a_pinned_bmc_is_a_glance() -> None:
    pinned = BmcAddress("https://192.0.2.1", "operator", Secret("x"), pin="ab" * 32)
    assert is_possible(pinned, ALONE)
    for change in ({"pin": ""}, {"pin": "ab"}, {"username": "a:b"}, {"secret": None}):
        assert not is_possible(BmcAddress(**{**vars(pinned), **change}), ALONE)
    assert not is_possible(BmcAddress(**{**vars(pinned), "url": "http://192.0.2.1"}), ALONE)
    for path in ("//192.0.2.9/x", "/a b", "/a\r\nX: y", "/ü", "/a\\b", "x"):
        assert not is_possible(pinned, Call("GET", path, alone=True))
    assert not is_possible(pinned, Call("GET", PATH))
    assert not is_possible(pinned, Call("POST", PATH, alone=True))


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("received", "read"),
    [
        (OK + b"Content-Length: 2\r\n\r\n{}", b"{}"),
        (OK + b"Content-Length: 2\r\n\r\n{}more", b"{}"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"{}"),
        (OK + b"\r\n{}", b"{}"),  # its length is that of the connection
        (b"HTTP/1.0 200 OK\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\n{}", b"{}"),
        (OK + b"Content-Length: 3\r\n\r\n{}", None),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", None),
        (OK, None),
        (b"", None),
    ],
)
def test_an_answer_is_read_to_its_own_end(received, read) -> None:
    reply = read_answer(received, 1024)

    assert (reply.body if reply is not None else None) == read


def test_of_headers_with_one_name_the_first_counts() -> None:
    reply = read_answer(OK + b"ETag: a\r\nEtag: b\r\nContent-Length: 0\r\n\r\n", 1024)

    assert reply == Reply(200, {"etag": "a", "content-length": "0"}, b"")


@pytest.mark.parametrize(
    ("received", "error"),
    [
        (OK + b"Content-Length: 1025\r\n\r\n", TooLarge),
        (OK + b"\r\n" + b"x" * 1025, TooLarge),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n500\r\n" + b"x" * 0x500, TooLarge),
        (OK + b"X: " + b"x" * HEAD_MAX_BYTES + b"\r\n\r\n", TooLarge),
        (OK + b"Content-Encoding: gzip\r\n\r\n", Malformed),
        (OK + b"Content-Length: -1\r\n\r\n", Malformed),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Malformed),
        (b"GET / HTTP/1.1\r\n\r\n", Malformed),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
            Malformed,
        ),
    ],
)
def test_an_answer_out_of_bounds_is_refused(received, error) -> None:
    with pytest.raises(error):
        read_answer(received, 1024)


def test_a_pinned_bmc_is_reached_without_the_directory_of_authorities() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.answers["GET", "/redfish/v1"] = _long  # the connection is there until it is read
            session = open_session(per_host=1, keep_alive=True)
            contexts: list[ssl.SSLContext] = []
            for option in (aiohttp.Fingerprint(bytes.fromhex(bmc.pin)), False):
                async with session.get(f"{bmc.url}/redfish/v1", ssl=option) as answer:
                    assert answer.connection is not None
                    assert answer.connection.transport is not None
                    contexts.append(answer.connection.transport.get_extra_info("sslcontext"))
            await session.close()

            assert contexts == [bare_context()] * 2

    run(scenario())


async def _long(_: web.Request) -> web.Response:
    return web.Response(body=bytes(1024 * 1024))
