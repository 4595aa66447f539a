"""A receiver of webhooks as others write one: real HTTP, and answers that get lost."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Receiver:
    """Keeps what came, in the order in which it came; `answer` says what is told of each."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[dict[str, Any], int], int | None] = lambda _event, _time: 204
        self.queries: list[str] = []  # of the URL, of each request
        self._times: dict[str, int] = {}

    @property
    def events(self) -> list[dict[str, Any]]:
        """Each event once: the first time that it came."""
        seen: dict[str, dict[str, Any]] = {}
        for _, body in self.got:
            event = json.loads(body)
            seen.setdefault(event["id"], event)
        return list(seen.values())

    async def take(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.queries.append(request.query_string)
        self.got.append(({k.lower(): v for k, v in request.headers.items()}, body))
        event = json.loads(body)
        time = self._times[event["id"]] = self._times.get(event["id"], 0) + 1
        status = self.answer(event, time)
        if status is None:  # it was taken, and the answer is lost
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return web.Response(status=status, headers={"Location": "https://192.0.2.1/"})


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/events", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
        yield receiver
    finally:
        await runner.cleanup()


def verified(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """As the Standard Webhooks specification tells a receiver to verify, in words of our own."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{digest}" in headers["webhook-signature"].split(" ")
