"""Redirects of a GET are followed within the BMC itself, a few times, and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from devices import Bmc, run

from provisioner.adapters.bounded_http import REDIRECTS_MAX, redirected_path
from provisioner.adapters.redfish.eventing.event_stream import RedfishStreams
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import Call, Unreachable

OLD, NEW = "/redfish/v1/Systems/1", "/redfish/v1/Systems/1/"
SITE = "https://bmc.example:8443"


def moved(location: str, status: int = 308) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": location})

    return answer


def asked(answers: dict[tuple[str, str], Any], call: Call) -> tuple[int, list[tuple[str, str]]]:
    """The answer's status, and which resources were asked for, logins aside."""

    async def scenario() -> tuple[int, list[tuple[str, str]]]:
        async with Bmc() as bmc:
            bmc.answers = answers
            transport = RedfishTransport()
            try:
                reply = await transport.request(bmc.address(), call)
            finally:
                await transport.close()
            return reply.status, [e for e in bmc.log if "Systems" in e[1]]

    status, log = run(scenario())
    return status, log


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", [NEW, "1/", "../Systems/1/"])
def test_a_resource_that_moved_within_the_bmc_is_read_there(status: int, location: str) -> None:
    found = asked({("GET", OLD): moved(location, status)}, Call("GET", OLD))

    assert found == (200, [("GET", OLD), ("GET", NEW)])


def test_a_circle_ends() -> None:
    answers = {("GET", OLD): moved(NEW), ("GET", NEW): moved(OLD)}

    status, log = asked(answers, Call("GET", OLD))

    assert (status, len(log)) == (308, REDIRECTS_MAX + 1)


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_what_changes_something_is_sent_once(method: str) -> None:
    status, log = asked({(method, OLD): moved(NEW, 307)}, Call(method, OLD, {}))

    assert (status, log) == (307, [(method, OLD)])


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (f"{SITE}/redfish/v1/", "/redfish/v1/"),
        ("/redfish/v1/a%2Fb?c=d", "/redfish/v1/a%2Fb?c=d"),
        ("#x", "/redfish/v1"),
        ("https://bmc.example/redfish/v1/", None),  # another port
        ("http://bmc.example:8443/redfish/v1/", None),  # in the clear
        ("https://other.example:8443/redfish/v1/", None),
        ("//other.example/redfish/v1/", None),
        ("https://root@bmc.example:8443/redfish/v1/", None),
        ("https://[bad/", None),
        ("", None),
    ],
)
def test_only_the_very_same_origin_is_followed(location: str, path: str | None) -> None:
    assert redirected_path(SITE, "/redfish/v1", 302, location) == path
    assert redirected_path(SITE, "/redfish/v1", 200, location) is None


def test_a_stream_that_moved_is_opened_there_and_a_circle_ends() -> None:
    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'id: 1\ndata: {"Events": []}\n\n')
        return response

    async def scenario() -> tuple[str, str]:
        async with Bmc() as bmc:
            bmc.answers = {("GET", "/sse"): moved("/sse/"), ("GET", "/sse/"): events}
            bmc.answers |= {("GET", "/circle"): moved("/circle")}
            transport = RedfishTransport()
            streams = RedfishStreams(transport)
            try:
                async with streams.open(bmc.address(), "/sse", "") as opened:
                    first, _ = await anext(opened)
                with pytest.raises(Unreachable, match="do not end"):
                    async with streams.open(bmc.address(), "/circle", ""):
                        pass
            finally:
                await streams.close()
                await transport.close()
            return first, "ended"

    assert run(scenario()) == ("1", "ended")
