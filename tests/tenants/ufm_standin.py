"""The simulator's UFM over TLS, with faults of its answers and of other people."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.integrations.sim.switches.ufm import UfmService
from provisioner.ports import Secret
from provisioner.ports.isolation import UfmAddress


class Ufm(UfmService):
    """Its attributes are what it knows, and its faults."""

    def __init__(self, username: str = "admin", password: str = "the fabric's") -> None:
        super().__init__(username, password)
        self.requests: list[tuple[str, str]] = []
        self.lose: Callable[[int, str], bool] = lambda _n, _method: False
        self.deaf = False  # takes changes with 200, and makes none
        self.answer: web.Response | Callable[[], web.Response] | None = None
        self.before: Callable[[str], None] = lambda _method: None  # somebody else, in between

    async def __aenter__(self) -> Ufm:
        self._folder = tempfile.TemporaryDirectory()
        signed, key = make_certificate("ufm", "127.0.0.1")
        file = Path(self._folder.name) / "ufm.pem"
        file.write_bytes(signed + key)
        der = ssl.PEM_cert_to_DER_cert(signed.decode())
        self.pin = hashlib.sha256(der).hexdigest()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(file)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        self._tls = tls
        await self.start(0)
        self.port = self._runner.addresses[0][1]
        return self

    async def start(self, port: int) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls)
        await self._site.start()

    async def stop(self) -> None:
        """Nothing listens any more."""
        await self._site.stop()

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._folder.cleanup()

    def address(self, **changes: Any) -> UfmAddress:
        given = {"username": self.username, "secret": Secret(self.password), "pin": self.pin}
        return UfmAddress(f"https://127.0.0.1:{self.port}", **{**given, **changes})

    def members(self, pkey: int) -> set[str]:
        return set(self.partitions.get(f"{pkey:#x}", {}).get("guids", {}))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path))
        if self.answer is not None and self.admits(request.path, request.headers):
            return self.answer() if callable(self.answer) else self.answer
        self.before(request.method)
        if self.deaf and request.method != "GET":
            return web.json_response({})
        body = await request.read()
        told = self.handle(request.method, request.path, request.query, request.headers, body)
        if self.lose(len(self.requests), request.method):
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0)
        return web.Response(status=told.status, headers=told.headers, body=told.body)
