"""How much the transport adds to bare aiohttp: requests per CPU second of the client, as a ratio.

Run it by hand (`.venv/bin/python tests/bench/bench_transport.py`); it is no test. The server is a
process of its own, so that only the client's CPU time is measured. Ratios are what to trust: the
facts (redfish 1.4) have 1.3 for redfish.aio alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from provisioner.event_loop import new_event_loop
from provisioner.ports import BmcAddress, Call, Secret
from provisioner.redfish.transport import RedfishTransport
from provisioner.sim.serve_tls import server_context

BODY = json.dumps({f"Property{n}": "x" * 40 for n in range(80)}).encode()  # 5 KB, as a system has
SESSIONS = "/redfish/v1/SessionService/Sessions"
Ask = Callable[[], Awaitable[None]]


async def serve() -> None:
    """The server process: writes its port to standard output, ends with standard input."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            return web.Response(
                status=201, headers={"X-Auth-Token": "t", "Location": f"{SESSIONS}/1"}
            )
        if request.path == "/redfish/v1/":
            return web.json_response({"Links": {"Sessions": {"@odata.id": SESSIONS}}})
        return web.Response(body=BODY, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = server_context("bench", "127.0.0.1")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def per_cpu_second(ask: Ask, requests: int) -> float:
    """Requests that one CPU second of this process pays for, two at a time."""
    await ask()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(requests // 2):
        await asyncio.gather(ask(), ask())
    after = resource.getrusage(resource.RUSAGE_SELF)
    return requests / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


async def compare(port: int, requests: int) -> dict[str, float]:
    url = f"https://127.0.0.1:{port}"
    transport = RedfishTransport()
    pin = await transport.fingerprint(BmcAddress(url))
    bmc = BmcAddress(url, "admin", Secret("secret"), pin=pin)
    call = Call("GET", "/redfish/v1/Systems/1")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:

        async def bare() -> None:
            async with session.get(f"{url}{call.path}") as response:
                json.loads(await response.read())

        async def ours() -> None:
            (await transport.request(bmc, call)).json()

        figures = {
            "aiohttp": await per_cpu_second(bare, requests),
            "transport": await per_cpu_second(ours, requests),
        }
    await transport.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--serve", action="store_true", help="be the server (internal)")
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, str(Path(__file__)), "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port = int(server.stdout.readline())
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            figures = runner.run(compare(port, asked.requests))
        server.stdin.close()
    ratio = figures["aiohttp"] / figures["transport"]
    for name, value in figures.items():
        sys.stdout.write(f"{name}: {value:.0f} requests per CPU second\n")
    sys.stdout.write(f"ratio: {ratio:.2f}\n")


if __name__ == "__main__":
    main()
