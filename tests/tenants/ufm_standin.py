"""A stand-in for NVIDIA's UFM: the P_Key part of its documented REST API, over TLS, with state.

As its guide ("PKey GUIDs REST API") and NVIDIA's own clients have it: `POST /resources/pkeys/add`
makes an empty partition, `POST /resources/pkeys/` adds ports and makes the partition if need be,
`DELETE .../guids/a,b` takes ports away, and with the last one the partition is gone. Unknown
parameters, and GUIDs of other lengths than 16 to 20 characters, are answered with 400.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.adapters.ufm import UfmAddress
from provisioner.ports import Secret
from provisioner.sim.hardware.serve_tls import make_certificate

KNOWN = {"pkey", "guids", "index0", "ip_over_ib", "membership", "memberships"}


class Ufm:
    """Its attributes are what it knows, and its faults."""

    def __init__(self, username: str = "admin", password: str = "the fabric's") -> None:
        self.username, self.password = username, password
        self.partitions: dict[str, dict[str, Any]] = {"0x7fff": {"ip_over_ib": True, "guids": {}}}
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
        app.router.add_route("*", "/{path:.*}", self._handle)
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

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path))
        if not self._admitted(request):
            return web.Response(status=401)
        if self.answer is not None:
            return self.answer() if callable(self.answer) else self.answer
        self.before(request.method)
        body = await request.json() if request.can_read_body else {}
        parts = request.path.removeprefix("/ufmRestV3").removeprefix("/ufmRest")
        words = [w for w in parts.split("/") if w]
        if words[:2] != ["resources", "pkeys"]:
            return web.Response(status=404)
        deaf = self.deaf and request.method != "GET"
        status, answer = (200, {}) if deaf else self._told(request, words[2:], body)
        if self.lose(len(self.requests), request.method):
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0)
        return web.json_response(answer, status=status)

    def _admitted(self, request: web.Request) -> bool:
        if request.path.startswith("/ufmRestV3/"):
            wanted = self.password
        else:
            wanted = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return request.headers.get("Authorization") == f"Basic {wanted}"

    def _told(self, request: web.Request, words: list[str], body: Any) -> tuple[int, Any]:
        match (request.method, *words):
            case ("GET",):
                shown = request.query.get("guids_data") == "true"
                return 200, {k: self._shown(k, guids=shown) for k in self.partitions}
            case ("POST", "add"):
                return self._make(body)
            case ("POST",):
                return self._add(body)
            case ("DELETE", key):
                if self._key(key) not in self.partitions:
                    return 404, {}
                del self.partitions[self._key(key)]
                return 200, {}
            case ("DELETE", key, "guids", listed):
                return self._remove(self._key(key), listed.split(","))
        return 405, {}

    def _make(self, body: Any) -> tuple[int, Any]:
        if set(body) - KNOWN or not 0 < int(body.get("pkey", "0"), 16) < 0x7FFF:
            return 400, {"error": "bad or missing parameters"}
        key = self._key(body["pkey"])
        if key in self.partitions:
            return 400, {"error": f"{key} exists"}
        self.partitions[key] = {"ip_over_ib": body.get("ip_over_ib", True), "guids": {}}
        return 200, {}

    def _add(self, body: Any) -> tuple[int, Any]:
        guids = body.get("guids")
        good = isinstance(guids, list) and guids and all(16 <= len(g) <= 20 for g in guids)
        if set(body) - KNOWN or not good or not 0 < int(body.get("pkey", "0"), 16) < 0x7FFF:
            return 400, {"error": "bad or missing parameters"}
        if body.get("membership", "full") not in ("full", "limited"):
            return 400, {"error": "membership"}
        made = {"ip_over_ib": body.get("ip_over_ib", True), "guids": {}}
        there = self.partitions.setdefault(self._key(body["pkey"]), made)
        for guid in guids:
            there["guids"][guid.lower()] = body.get("membership", "full")
        return 200, {}

    def _remove(self, key: str, guids: list[str]) -> tuple[int, Any]:
        if key not in self.partitions:
            return 404, {"error": "no such pkey"}
        held = self.partitions[key]["guids"]
        gone = [guid for guid in guids if held.pop(guid, None) is not None]
        if gone and not held:
            del self.partitions[key]
        return 200, {}

    def _shown(self, key: str, *, guids: bool) -> dict[str, Any]:
        entry = self.partitions[key]
        shown: dict[str, Any] = {
            "partition": "management" if key == "0x7fff" else f"api_pkey_{key}",
            "ip_over_ib": entry["ip_over_ib"],
        }
        if guids:
            shown["guids"] = [
                {"guid": g, "membership": m, "index0": True} for g, m in entry["guids"].items()
            ]
        return shown

    @staticmethod
    def _key(text: str) -> str:
        return f"{int(text, 16):#x}"
