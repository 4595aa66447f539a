"""Devices for the transports' contract tests: a BMC with sessions, and a server that breaks HTTP.

Each listens on loopback with a certificate of its own. They are attributes to be changed by a test,
not mocks: what is tested talks to them through real TLS.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import functools
import hashlib
import ipaddress
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.event_loop import new_event_loop

SESSIONS = "/redfish/v1/SessionService/Sessions"


def run(scenario: Coroutine[Any, Any, Any], limit_s: float = 60) -> Any:
    """Run to its end on the daemon's own kind of event loop; the limit only stops a hung test."""

    async def bounded() -> Any:
        async with asyncio.timeout(limit_s):
            return await scenario

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(bounded())


def certificate(folder: Path) -> tuple[Path, str]:
    """A self-signed certificate for 127.0.0.1 with its key in one file, and its SHA-256 in hex."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    der = signed.public_bytes(serialization.Encoding.DER)
    return path, hashlib.sha256(der).hexdigest()


class _Listening:
    """Shared by both devices: a certificate, a port, an address with the pin."""

    username, password = "operator", "correct horse"
    port = 0

    async def __aenter__(self) -> Any:
        self._folder = tempfile.TemporaryDirectory()
        self.renew_certificate()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._folder.cleanup()

    def renew_certificate(self) -> None:
        self.certificate_file, self.pin = certificate(Path(self._folder.name))
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.certificate_file)

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def address(self, password: str | None = None, **changes: Any) -> BmcAddress:
        fields = {"username": self.username, "pin": self.pin, **changes}
        return BmcAddress(self.url, secret=Secret(password or self.password), **fields)

    def stranger(self) -> BmcAddress:
        """The address without a login."""
        return BmcAddress(self.url, pin=self.pin)


class Bmc(_Listening):
    """A Redfish service with sessions, whose faults are its attributes."""

    def __init__(self) -> None:
        self.sessions: dict[str, str] = {}  # path -> token
        self.sessions_made = 0
        self.logins_failed = 0
        self.sessions_max = 8
        self.location: Callable[[str], str | None] = lambda path: path
        self.token_given = True
        self.body_names_session = True
        self.session_service = True
        self.root_guarded = False
        self.login_answer: Callable[[], web.Response] | None = None
        self.log: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.peers: set[int] = set()  # ports that requests came from: one for each connection
        self.answers: dict[tuple[str, str], Callable[[web.Request], Awaitable[Any]]] = {}
        self.under_way = 0
        self.under_way_most = 0

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 34)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def restart(self) -> None:
        """Sessions and connections are gone afterwards, as after a BMC reset."""
        await self.stop()
        self.sessions.clear()
        await self.start()

    def connections(self) -> int:
        """How many connections are open."""
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    def asked(self, method: str, path: str) -> int:
        """How often this was asked."""
        return self.log.count((method, path))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.log.append((request.method, request.path))
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername")[1])
        self.under_way += 1
        self.under_way_most = max(self.under_way_most, self.under_way)
        try:
            return await self._route(request)
        finally:
            self.under_way -= 1

    async def _route(self, request: web.Request) -> web.StreamResponse:
        key = (request.method, request.path)
        if request.path.rstrip("/") == "/redfish/v1" and not self.root_guarded:
            return await self._of(key, request) or web.json_response(self._root())
        if key == ("POST", SESSIONS) and self.session_service:
            return await self._log_in(request)
        if not self._authorized(request):
            return web.Response(status=401)
        answer = await self._of(key, request)
        if answer is not None:
            return answer
        if request.path in self.sessions:
            if request.method == "DELETE":
                del self.sessions[request.path]
                return web.Response(status=204)
            return web.json_response({"UserName": self.username})
        if key == ("GET", SESSIONS):
            return web.json_response({"Members": [{"@odata.id": p} for p in self.sessions]})
        if request.path.rstrip("/") == "/redfish/v1":
            return web.json_response(self._root())
        if request.method == "GET":
            return web.json_response({"@odata.id": request.path})
        return web.Response(status=204)

    async def _of(self, key: tuple[str, str], request: web.Request) -> web.StreamResponse | None:
        return await self.answers[key](request) if key in self.answers else None

    def _root(self) -> dict[str, Any]:
        root: dict[str, Any] = {
            "RedfishVersion": "1.17.0",
            "Vendor": "Example",
            "Product": "Box",
            "UUID": "92384634-2938-2342-8820-489239905423",
            "Systems": {"@odata.id": "/redfish/v1/Systems"},
        }
        if self.session_service:
            root["Links"] = {"Sessions": {"@odata.id": SESSIONS}}
        return root

    async def _log_in(self, request: web.Request) -> web.Response:
        if self.login_answer is not None:
            return self.login_answer()
        body = await request.json()
        if (body["UserName"], body["Password"]) != (self.username, self.password):
            self.logins_failed += 1
            return web.Response(status=401)
        if len(self.sessions) >= self.sessions_max:
            message = {"error": {"message": "The maximum number of user sessions is reached."}}
            return web.json_response(message, status=503, headers={"Retry-After": "30"})
        self.sessions_made += 1
        path = f"{SESSIONS}/{self.sessions_made}"
        self.sessions[path] = f"token-{self.sessions_made}"
        headers = {"X-Auth-Token": self.sessions[path]} if self.token_given else {}
        location = self.location(path)
        if location is not None:
            headers["Location"] = location
        body = {"@odata.id": path} if self.body_names_session else {}
        return web.json_response(body, status=201, headers=headers)

    def _authorized(self, request: web.Request) -> bool:
        if request.headers.get("X-Auth-Token", "-") in self.sessions.values():
            return True
        given = request.headers.get("Authorization", "")
        if not given:
            return False
        pair = f"{self.username}:{self.password}".encode()
        good = given == "Basic " + base64.b64encode(pair).decode()
        self.logins_failed += not good
        return good


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Broken(_Listening):
    """A TLS server that reads a request's head and then does what `talk` does."""

    def __init__(self, talk: Talk | bytes) -> None:
        self._talk = functools.partial(_say, talk) if isinstance(talk, bytes) else talk
        self.requests: list[bytes] = []
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await self._talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, RuntimeError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()


async def _say(text: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(text)
    await writer.drain()
    writer.close()
