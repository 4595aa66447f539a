"""What a connection with one POST costs a server that does nothing but answer, in handshakes.

The least that uvloop and Python's `ssl` take for an event over a connection of its own. Run by
itself it is the client: PORT TIMES.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
import time

from bench_watch import handshakes

from provisioner.adapters import bounded_http
from provisioner.integrations.sim.hardware.clock import server_context

TIMES, ROUNDS = 500, 5
BODY = b'{"Events": [{"MessageId": "ResourceEvent.1.0.ResourceChanged"}]}'
POST = b"POST /e HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
ANSWER = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


class Answering(asyncio.Protocol):
    """Answers the first bytes, whatever they are, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, _: bytes) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]
        self._transport.close()


async def bare_event_in_handshakes() -> float:
    """CPU of such a server for one connection, over its handshake measured in the same seconds."""
    tls = server_context("bare", "127.0.0.1")
    tls.num_tickets = 0
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, ssl=tls)
    command = [sys.executable, __file__, str(server.sockets[0].getsockname()[1]), str(TIMES)]
    ratios = []
    for _ in range(ROUNDS):
        began, beside_s, shaken = time.process_time(), 0.0, []
        client = await asyncio.create_subprocess_exec(*command)
        ended = asyncio.ensure_future(client.wait())
        while not ended.done():
            at = time.thread_time()
            shaken.append(handshakes(5, served=True))
            beside_s += time.thread_time() - at
            await asyncio.wait([ended], timeout=0.2)
        if await ended:
            raise SystemExit("the client of the bare server failed")
        spent_ms = 1000 * (time.process_time() - began - beside_s) / TIMES
        ratios.append(spent_ms / statistics.median(shaken))
    server.close()
    return statistics.median(ratios)


def post(port: int, times: int) -> None:
    """Post an event so many times, each over a connection of its own."""
    for _ in range(times):
        plain = socket.create_connection(("127.0.0.1", port), 10.0)
        with bounded_http.bare_context().wrap_socket(plain) as one:
            one.sendall(POST)
            if not one.recv(65_536).startswith(b"HTTP/1.1 204 "):
                raise SystemExit("no answer of 204")


if __name__ == "__main__":
    post(int(sys.argv[1]), int(sys.argv[2]))
