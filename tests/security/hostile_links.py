"""Links as a hostile device gives them, a device that gives them, and a place that must stay quiet.

The device answers each request by hand, so that no server library makes its lies well-formed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

# Each leads, or tries to lead, to OTHER (host and port); BMC is the device itself.
LINKS = (
    "//OTHER/",
    "///OTHER/",
    "http://OTHER/",
    "https://OTHER/redfish/v1/TaskService/Tasks/1",
    "HTTPS://OTHER/",
    "https:OTHER/",
    "https:/OTHER/",
    "https:///OTHER/",
    "https:\\\\OTHER\\",
    "\\\\OTHER\\",
    "/\\OTHER/",
    "\\/OTHER/",
    "@OTHER/",
    "/@OTHER/",
    ":80@OTHER/",
    ".OTHER/",
    "https://BMC@OTHER/",
    "https://root:calvin@OTHER/",
    "https://OTHER#@BMC/",
    "https://OTHER\\@BMC/",
    "//OTHER\\@BMC/",
    "/%2fOTHER/",
    "/.//OTHER/",
    "/x/..//OTHER/",
    "/redfish/v1/../../..//OTHER/",
    " //OTHER/",
    "\t//OTHER/",
    "/\t/OTHER/",
    "/\n/OTHER/",
    "/redfish/v1 HTTP/1.1\r\nHost: OTHER\r\n\r\nGET /",
    "/redfish/v1%0d%0aHost:%20OTHER",
    "//[fe80::1%25lo]/",
    "https://[fe80::1%lo]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[",
    "https://\uff0fOTHER/",
    "\uff0f\uff0fOTHER/",
    "//OTHER\u3002/",
    "http://169.254.169.254/latest/meta-data/",
    "//169.254.169.254/latest/",
    "http://2852039166/",
    "file:///etc/shadow",
    "unix:/run/docker.sock",
    "gopher://OTHER/_x",
    "javascript:0",
    "?x=//OTHER/",
    "#//OTHER/",
    "",
    "/\x00",
    "/" + "a" * 20_000,
)
REDIRECTS = (301, 302, 303, 307, 308)


def led(link: str, other: str, bmc: str = "127.0.0.1:443") -> str:
    """The link to this place."""
    return link.replace("OTHER", other).replace("BMC", bmc)


@dataclass
class Place:
    """A listener and what it was sent, whole requests as text."""

    port: int = 0
    heard: list[str] = field(default_factory=list)

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def hosts(self) -> set[str]:
        """What the requests say whom they are for."""
        return {
            line[5:].strip()
            for request in self.heard
            for line in request.split("\r\n")
            if line.lower().startswith("host:")
        }


Answer = Callable[[str], bytes]  # request -> whole response


def response(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    """A response whose headers are sent as they are."""
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", *headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def listening(
    answer: Answer = lambda _: response(200), tls: ssl.SSLContext | None = None
) -> AsyncIterator[Place]:
    """A place on loopback; any connection at all to it is noted, even one without a request."""
    place = Place()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = len(place.heard)
        place.heard.append("")
        try:
            async with asyncio.timeout(20):
                head = await reader.readuntil(b"\r\n\r\n")
                place.heard[at] = head.decode("latin-1")
                length = [w for w in place.heard[at].lower().split("\r\n") if "content-length" in w]
                if length:
                    place.heard[at] += (await reader.readexactly(int(length[0][15:]))).decode()
            writer.write(answer(place.heard[at]))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    place.port = server.sockets[0].getsockname()[1]
    try:
        yield place
    finally:
        server.close()
