"""An agent's API over real HTTPS that answers whatever a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from authority_rig import open_own_authority

from provisioner.ports import AgentAddress, Secret

HOST, TOKEN = "127.0.0.1", "token-of-this-boot-and-of-no-other-one-43-x"
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def hostile_agent(folder: Path, handle: Handle) -> AsyncIterator[AgentAddress]:
    """Serve `handle` for every request; its address has the right certificate."""
    context = open_own_authority(folder).server_context((HOST,))
    app = web.Application()

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handle(request)

    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    try:
        yield AgentAddress(
            node="n1",
            url=f"https://{HOST}:{port}",
            certificate=await _shown(port),
            token=Secret(TOKEN),
            version="13.0.0",
            seen_at=0.0,
        )
    finally:
        await runner.cleanup()


async def _shown(port: int) -> str:
    """The certificate that the server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(HOST, port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(der)
