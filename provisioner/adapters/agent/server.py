"""The lookup and heartbeat API on HTTPS: bounded bodies, and a bounded rate for each peer.

aiohttp bounds request lines and headers to 8 KB. Every host of the maintenance network may ask; no
answer holds a secret but the one that hands a token to a node that is to boot now.
"""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from provisioner.adapters.agent import protocol
from provisioner.adapters.agent.service import BODY_MAX, AgentService
from provisioner.runtime.peer_rates import Rate

FILES = "/images"  # no path of ironic's API
BODY_S = 10.0  # a heartbeat's body is there within this


def application(service: AgentService, files: web.Application | None = None) -> web.Application:
    """Return the API of `service`, and beside it, under /images, the files for agents."""
    rate = Rate(lambda: asyncio.get_running_loop().time())

    async def handle(request: web.Request) -> web.Response:
        peer = request.remote or ""
        if not rate.admits(peer):
            return _answer(429, None, {"Retry-After": "30"})
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.content.read(BODY_MAX + 1)
                while len(body) <= BODY_MAX and not request.content.at_eof():
                    body += await request.content.read(BODY_MAX + 1 - len(body))
        except TimeoutError:
            return _answer(408, None)
        answer = await service.handle(request.method, request.path, request.query, body, peer)
        return _answer(answer.status, answer.body)

    app = web.Application()
    if files is not None:
        app.add_subapp(FILES, files)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


def _answer(status: int, body: object, headers: dict[str, str] | None = None) -> web.Response:
    version = {
        "X-OpenStack-Ironic-API-Version": protocol.API_VERSION,
        "X-OpenStack-Ironic-API-Minimum-Version": "1.1",
        "X-OpenStack-Ironic-API-Maximum-Version": protocol.API_VERSION,
        "Cache-Control": "no-store",
    }
    response = web.Response(
        status=status,
        body=b"" if body is None else json.dumps(body).encode(),
        content_type="application/json",
        headers={**version, **(headers or {})},
    )
    response.force_close()  # an agent calls once a minute: an idle connection costs 57 KB
    return response
