"""A ticket system for tests: a server that keeps what it is told, and can lose its answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


class Desk:
    """Knows messages by their id, as Standard Webhooks ask of receivers."""

    def __init__(self, secret: str = "s3cret-of-the-desk") -> None:
        self.secret = secret
        self.tickets: dict[str, dict[str, Any]] = {}  # by key: the first message
        self.messages: list[dict[str, Any]] = []
        self.posts = 0
        self.lose_answers = 0  # so many of the next messages arrive, and their answer does not
        self.status = 0  # answered instead, if set
        self.looks = True  # whether it can be asked
        self.unsigned: list[str] = []
        self._server: TestServer | None = None

    async def start(self) -> str:
        """Its URL."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/hook", self._post)
        app.router.add_get("/hook", self._get)
        self._server = TestServer(app)
        await self._server.start_server()
        return str(self._server.make_url("/hook"))

    async def stop(self) -> None:
        """Close it."""
        assert self._server is not None
        await self._server.close()

    async def _post(self, request: web.Request) -> web.Response:
        content = await request.read()
        self.posts += 1
        if not self._signed(request, content):
            return web.Response(status=401)
        if self.status:
            return web.Response(status=self.status)
        name, said = request.headers["webhook-id"], await request.json()
        if name not in self.tickets:
            self.tickets[name] = said
            self.messages.append(said)
        if self.lose_answers:
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response(self._ref(said["key"]))

    async def _get(self, request: web.Request) -> web.Response:
        if not self._signed(request, b""):
            return web.Response(status=401)
        if not self.looks:
            return web.Response(status=405)
        found = self.tickets.get(request.query["key"])
        if found is None:
            return web.Response(status=404)
        return web.json_response(self._ref(found["key"]))

    def _ref(self, key: str) -> dict[str, object]:
        return {"id": f"T-{key.rpartition('/')[2]}", "url": "https://desk.test/T"}

    def _signed(self, request: web.Request, content: bytes) -> bool:
        sent = request.headers
        signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + content
        wanted = hmac.new(self.secret.encode(), signed, hashlib.sha256).digest()
        good = sent["webhook-signature"] == f"v1,{base64.b64encode(wanted).decode()}"
        if not good:
            self.unsigned.append(request.method)
        return good
