"""A simulated rack over HTTPS, in accelerated time, and `provisioner serve` beside it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import BodyPartReader, web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.cli.options.checked_options import PASSWORD
from provisioner.integrations.demo.rack_site import OURS, RackSite
from provisioner.integrations.racks import update_commands
from provisioner.integrations.racks.duty.rack_duty import USER
from provisioner.integrations.racks.fabric import switch_looks
from provisioner.integrations.sim.hardware.clock import (
    FastClock,
    load_certificate,
    make_certificate,
)
from provisioner.integrations.sim.racks.logins import Account, ask, read_login
from provisioner.integrations.sim.racks.rack import Push, Silence
from provisioner.integrations.sim.racks.switch import DEFAULT
from provisioner.integrations.sim.site.control import Control
from provisioner.integrations.sim.site.site import Site

ROOT = Path(__file__).parents[2]
STEP_S = 0.05  # of real time
LIMIT_S = 240.0  # of a loaded machine


class ServedRack:
    """The rack of `RackSite`, each BMC and NVOS at a port of its own.

    `watch` is told of each request that writes once it took effect, before its answer leaves.
    """

    def __init__(self, site: RackSite, folder: Path, speed: float) -> None:
        self.site = site
        self.folder = folder
        self.speed = speed
        self.socket = folder / "site.sock"
        self.watch: Callable[[str, str], None] = lambda _url, _path: None
        self.urls: dict[str, str] = {}  # as the plan has them now, by the simulator's address
        self.most: dict[str, int] = {}  # connections that an address had at one time
        self.asked: Counter[str] = Counter()  # requests that it has now
        self.asked_most: Counter[str] = Counter()
        self.accounts: dict[str, Account] = {}  # of BMCs that ask for a login
        certificate, key = make_certificate("rack", "127.0.0.1")
        self.authority = folder / "rack.pem"
        self.authority.write_bytes(certificate)
        der = x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
        self.pin = hashlib.sha256(der).hexdigest()
        self._tls = (certificate, key)

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Serve it until the block ends; the plan's addresses are the served ones."""
        ready = threading.Event()
        stop = asyncio.Event()
        loop = asyncio.new_event_loop()

        async def run() -> None:
            runners = [await self._offer(url) for url in self.site.rack.hosts]
            control = Control(Site(1, 7, clock=FastClock(self.speed)), self.socket)
            await control.start()
            ready.set()
            ticking = asyncio.create_task(self._tick())
            await stop.wait()
            ticking.cancel()
            await control.stop()
            for runner in runners:
                await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
        thread.start()
        assert ready.wait(LIMIT_S)
        for unit in self.site.units:
            unit |= {name: self.urls[unit[name]] for name in ("bmc", "nvos") if name in unit}
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(LIMIT_S)
            loop.close()

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(STEP_S)
            now = time.monotonic()
            self.site.rack.advance((now - last) * self.speed)
            last = now

    async def _offer(self, url: str) -> web.ServerRunner:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_certificate(context, *self._tls)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            self.most[url] = max(self.most.get(url, 0), len(server.connections))
            self.asked[url] += 1
            self.asked_most[url] = max(self.asked_most[url], self.asked[url])
            try:
                return await serve(request)
            finally:
                self.asked[url] -= 1

        async def serve(request: web.BaseRequest) -> web.StreamResponse:
            body = await _read_body(request)
            login = read_login(request.headers)
            account = self.accounts.get(url)
            path = request.path_qs
            try:
                told = ask(self.site.rack, account, url, request.method, path, body, login)
            except Silence:
                assert request.transport is not None
                request.transport.abort()
                raise
            if request.method != "GET":
                await asyncio.to_thread(self.watch, url, request.path)
            headers = {"Content-Type": "application/json", **told.headers}
            return web.Response(status=told.status, body=told.encode(), headers=headers)

        server = web.Server(answer, access_log=None)
        runner = web.ServerRunner(server)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.urls[url] = f"https://127.0.0.1:{runner.addresses[0][1]}"
        return runner


async def _read_body(request: web.BaseRequest) -> Any:
    """Return a body for the simulator: an upload as a push with what is inside its package."""
    if request.content_type == "multipart/form-data":
        return await _read_push(request)
    content = await request.read()
    if request.method == "GET" or not content:
        return None
    if request.content_type == "application/octet-stream":
        return Push((), "raw", json.loads(content))
    return json.loads(content)


async def _read_push(request: web.BaseRequest) -> Push:
    parameters: dict[str, Any] = {}
    inside: dict[str, str] = {}
    name = ""
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        content = json.loads(await part.read())
        if part.filename:
            name = part.filename
            inside = content
        else:
            parameters = content
    return Push(tuple(parameters.get("Targets", ())), name, inside)


class Served:
    """`provisioner serve` in a folder, again and again."""

    def __init__(self, folder: Path, rack: ServedRack, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.rack = rack
        self.log = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "artifacts").mkdir()
        given = {"api_serve": False, **settings}
        (folder / "settings.yaml").write_text(yaml.safe_dump(given))

    def start(self) -> None:
        command = [
            sys.executable, "-m", "provisioner", "serve", "--data", "data",
            "--matrix", str(ROOT / "firmware_matrix.yaml"), "--artifacts", "artifacts",
            "--artifact-port", "0", "--settings", "settings.yaml",
            "--simulator", str(self.rack.socket), "--lab",
        ]  # fmt: skip
        logins = {USER: "admin", PASSWORD: "p", switch_looks.OURS: OURS}
        logins |= {update_commands.FACTORY: DEFAULT, "SSL_CERT_FILE": str(self.rack.authority)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env={**os.environ, **logins}
            )

    def kill(self) -> None:
        """End it as a crash does: SIGKILL, and it is gone when this returns."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until it holds, while the daemon runs."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert self.process is not None
            assert self.process.poll() is None, f"{what}: {self.log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"{what}: {self.log.read_text()[-4000:]}"
            time.sleep(0.1)
