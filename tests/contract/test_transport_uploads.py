"""Multipart pushes: streamed with their length, never from a file that is not there."""

from __future__ import annotations

import resource

import pytest
from aiohttp import web
from devices import Bmc, run

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import Call as Request
from provisioner.ports import (
    Unreachable,
    Upload,
)

GET = Request("GET", "/redfish/v1/Systems/1", timeout_s=5)
POST = Request("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {}, timeout_s=5)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def test_t10_an_upload_is_streamed_with_its_length_and_little_memory(tmp_path) -> None:
    image = tmp_path / "image.bin"
    with image.open("wb") as file:
        file.truncate(150 << 20)
    upload = Upload(
        parts=(("UpdateParameters", "application/json", b'{"Targets": []}'),),
        file=image,
        file_name="bf-bundle.bfb",
    )

    async def scenario() -> None:
        async with Bmc() as bmc:
            seen = []

            async def take(request: web.Request) -> web.Response:
                reader = await request.multipart()
                async for part in reader:
                    size = 0
                    while piece := await part.read_chunk(1 << 16):
                        size += len(piece)
                    seen.append((part.name, part.filename, part.headers["Content-Type"], size))
                return web.Response(status=202)

            bmc.answers["POST", "/push"] = take
            transport = RedfishTransport()
            await transport.request(bmc.address(), GET)
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            reply = await transport.request(
                bmc.address(), Request("POST", "/push", upload, timeout_s=50)
            )
            after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

            assert reply.status == 202
            assert seen == [
                ("UpdateParameters", None, "application/json", 15),
                ("UpdateFile", "bf-bundle.bfb", "application/octet-stream", 150 << 20),
            ]
            assert int(bmc.headers[-1]["content-length"]) > 150 << 20
            assert "transfer-encoding" not in bmc.headers[-1]
            assert after_kb - before_kb < 32 * 1024
            await transport.close()

    run(scenario())


def test_an_upload_that_is_refused_early_tells_the_answer(tmp_path) -> None:
    image = tmp_path / "image.bin"
    with image.open("wb") as file:
        file.truncate(8 << 20)

    async def scenario() -> None:
        async with Bmc() as bmc:

            async def full(_: web.Request) -> web.Response:
                return web.Response(status=413)

            bmc.answers["POST", "/push"] = full
            transport = RedfishTransport()
            call = Request("POST", "/push", Upload((), image, "image.bin"))

            assert (await transport.request(bmc.address(), call)).status == 413
            assert bmc.asked("POST", "/push") == 1
            await transport.close()

    run(scenario())


def test_an_image_that_is_not_there_is_not_sent(tmp_path) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            call = Request("POST", "/push", Upload((), tmp_path / "none", "none"))
            with pytest.raises(Unreachable) as caught:
                await transport.request(bmc.address(), call)

            assert not caught.value.maybe_executed
            await transport.close()

    run(scenario())
