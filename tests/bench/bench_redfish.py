"""What our Redfish client costs: against bare aiohttp, a bare TLS socket, and per open connection.

`make bench NAME=redfish`. The server is a process of its own, so that only the client's CPU time is
measured; the three take turns and the median of the ratios counts, since the machine may be busy.
docs/sources/engine.md#tls has 308 KB a connection for asyncio as it comes, and the other clients.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import ssl
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.integrations.sim.hardware.clock import server_context
from provisioner.ports import BmcAddress, Call, Secret
from provisioner.runtime.event_loop import new_event_loop

BODY = json.dumps({f"Property{n}": "x" * 40 for n in range(80)}).encode()  # 5 KB, as a system has
SESSIONS = "/redfish/v1/SessionService/Sessions"
PATH = "/redfish/v1/Systems/1"
Ask = Callable[[], Awaitable[None]]


async def serve(addresses: int) -> None:
    """The server process: writes its ports to standard output, ends with standard input."""

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
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=600)
    await runner.setup()
    context = server_context("bench", "127.0.0.1")
    for _ in range(addresses):
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    sys.stdout.write(json.dumps([address[1] for address in runner.addresses]) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


def trusting() -> ssl.SSLContext:
    """Checks nothing: what the others are spared, ours does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def per_cpu_second(ask: Ask, requests: int) -> float:
    """Requests that one CPU second of this process pays for, two at a time."""
    await ask()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(requests // 2):
        await asyncio.gather(ask(), ask())
    after = resource.getrusage(resource.RUSAGE_SELF)
    return requests / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


class Socket:
    """The least that can be done: bytes out, bytes in, JSON; nothing of HTTP is checked."""

    def __init__(self) -> None:
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._context = trusting()

    async def get(self, port: int) -> None:
        """One exchange on a kept connection."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self._context)
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        json.loads(await reader.readexactly(len(BODY)))
        self._idle.append((reader, writer))

    async def close(self) -> None:
        """Close what is kept."""
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()


async def speed(port: int, requests: int, rounds: int) -> dict[str, float]:
    """Requests per CPU second of each, and ours as a part of the others."""
    url = f"https://127.0.0.1:{port}"
    transport, raw = RedfishTransport(), Socket()
    pin = await transport.fingerprint(BmcAddress(url))
    bmc = BmcAddress(url, "admin", Secret("secret"), pin=pin)
    call = Call("GET", PATH)
    connector = aiohttp.TCPConnector(ssl=trusting())
    async with aiohttp.ClientSession(connector=connector) as session:

        async def bare() -> None:
            async with session.get(f"{url}{PATH}") as response:
                json.loads(await response.read())

        async def ours() -> None:
            (await transport.request(bmc, call)).json()

        async def least() -> None:
            await raw.get(port)

        seen: dict[str, list[float]] = {"ours": [], "aiohttp": [], "socket": []}
        for _ in range(rounds):
            for name, ask in (("aiohttp", bare), ("ours", ours), ("socket", least)):
                seen[name].append(await per_cpu_second(ask, requests // rounds))
    await transport.close()
    await raw.close()
    pairs = {name: zip(seen["ours"], seen[name], strict=True) for name in ("aiohttp", "socket")}
    return {
        **{f"{name}_per_cpu_s": statistics.median(values) for name, values in seen.items()},
        **{f"ours_over_{n}": statistics.median(a / b for a, b in p) for n, p in pairs.items()},
    }


async def memory(ports: list[int]) -> float:
    """KiB that one more BMC with a session and an open connection takes."""
    transport = RedfishTransport()
    call = Call("GET", PATH)

    async def open_all(some: list[int]) -> None:
        for port in some:
            url = f"https://127.0.0.1:{port}"
            pin = await transport.fingerprint(BmcAddress(url))
            bmc = BmcAddress(url, "admin", Secret("secret"), pin=pin)
            (await transport.request(bmc, call)).json()

    first, rest = ports[: len(ports) // 5], ports[len(ports) // 5 :]
    await open_all(first)  # what is needed once is there now
    before = resident_kib()
    await open_all(rest)
    used = (resident_kib() - before) / len(rest)
    await transport.close()
    return used


def resident_kib() -> int:
    """Memory of this process that is in use."""
    rows = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Rss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--serve", type=int, help="be the server at so many ports (internal)")
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if asked.serve:
            runner.run(serve(asked.serve))
            return
        command = [sys.executable, __file__, "--serve", str(asked.connections)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            ports = json.loads(server.stdout.readline())
            kib = runner.run(memory(ports))
            figures = runner.run(speed(ports[0], asked.requests, asked.rounds))
            server.stdin.close()
    tell({**figures, "kib_per_connection": kib})


def tell(figures: dict[str, float]) -> None:
    """A table, then JSON."""
    versions = f"Python {platform.python_version()}, aiohttp {aiohttp.__version__}"
    load = os.getloadavg()[0]
    sys.stdout.write(f"{platform.platform()}, {os.cpu_count()} CPUs, load {load:.1f}, {versions}\n")
    for name, value in figures.items():
        sys.stdout.write(f"{name:24} {value:10.2f}\n")
    told = {name: round(value, 3) for name, value in figures.items()}
    told["cpus"] = os.cpu_count() or 0
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
