"""A simulated site served over HTTPS from a thread, for clients that block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import uvloop

from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.hardware.parts import Bmc
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site


@dataclass(frozen=True)
class Served:
    """The site and how its endpoints are reached. Read its machines only between requests."""

    site: Site

    def bmc(self, name: str) -> Bmc:
        """The hardware of "su0-n00/host"."""
        node, _, bmc = name.partition("/")
        return self.site.machines[node].bmcs[bmc]

    def url(self, name: str) -> str:
        """Its URL."""
        return self.site.urls[name]


@contextlib.contextmanager
def served(vendor: str = "supermicro", speed: float = 1.0, nodes: int = 1) -> Iterator[Served]:
    """Serve a site until the block ends."""
    site = Site(nodes, 7, clock=FastClock(speed), vendor=vendor)
    ready, stop = threading.Event(), asyncio.Event()
    loop = uvloop.new_event_loop()

    async def run() -> None:
        server = await serve_site(site)
        ready.set()
        await stop.wait()
        await server.close()

    thread = threading.Thread(target=partial(loop.run_until_complete, run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Served(site)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@contextlib.contextmanager
def web_server(files: dict[str, bytes]) -> Iterator[str]:
    """A plain HTTP server for images; its "host:port"."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path.strip("/"))
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
