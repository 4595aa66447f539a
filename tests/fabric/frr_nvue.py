"""NVUE's REST API in front of a switch of FRRouting: revisions in, operational state out.

Rule: `rev=operational` is answered from FRRouting and the kernel, never from what was applied.
Shapes follow NVIDIA's Cumulus documents, chapter "NVUE API". Basic authentication over HTTPS.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from frr_reading import Reader
from frr_rendering import at
from frr_revisions import Revision, Tree, changed, invalid
from frr_switch import FrrSwitch

from provisioner.integrations.sim.hardware.clock import make_certificate

PREFIX = "/nvue_v1"
IMAGES = {"1": "5.12.0.26", "2": "5.12.1.100"}  # what the partitions call themselves: no more
USER, PASSWORD = "provisioner", "not-the-factory's"


class Nvue:
    """One switch's API. Faults: `meet(method, path)` may raise ConnectionAbortedError before a
    request is served, `lose(method, path)` drops its connection afterwards, and `before_apply`
    runs between the acceptance of a revision and its carrying out.
    """

    def __init__(self, switch: FrrSwitch, startup: Tree) -> None:
        self.switch = switch
        self.applied: Tree = copy.deepcopy(startup)
        self.startup: Tree = copy.deepcopy(startup)
        self.revisions: dict[str, Revision] = {}
        self.requests: list[tuple[str, str]] = []
        self.meet: Callable[[str, str], None] = lambda _method, _path: None
        self.lose: Callable[[str, str], bool] = lambda _method, _path: False
        self.before_apply: Callable[[], None] = lambda: None
        self.images = {"current": "1", "next": "1"} | {
            f"partition{n}": {"build-id": version} for n, version in IMAGES.items()
        }
        self.url = self.pin = ""
        self._reader = Reader(switch)
        self._lock = threading.Lock()  # one hand on the switch at a time
        self._loop = asyncio.new_event_loop()
        self._work: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._stopped = asyncio.Event()  # set before it is awaited, it ends the server at once
        self._thread = threading.Thread(target=self._serve, name=f"nvue of {switch.name}")

    def start(self) -> Nvue:
        self.switch.carry_out(self.startup)
        self._thread.start()
        assert self._ready.wait(60.0), "the API does not listen"
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(timeout=60.0)

    def count(self, method: str, path: str) -> int:
        """How many of these requests there were."""
        return self.requests.count((method, f"{PREFIX}{path}"))

    def reboot(self) -> None:
        """Only what was saved is left. The caller's thread must stay (`Box.start`)."""
        with self._lock:
            self.images["current"] = self.images["next"]
            self.applied = copy.deepcopy(self.startup)
            for revision in self.revisions.values():
                if revision.state not in ("applied", "applied_and_saved", "invalid"):
                    revision.state = "invalid"
            self.switch.reboot(self.startup)

    # --- what somebody else does, not over the wire

    def begin_revision(self, tree: Tree) -> str:
        """A pending revision with these changes; its name."""
        name = f"changeset/{USER}/2025-01-01_00.00.{len(self.revisions):02}_AAAA"
        self.revisions[name] = Revision([((), tree)] if tree else [])
        return name

    def apply_revision(self, name: str) -> Future[None]:
        """Accept it; what is returned ends when it is carried out."""
        revision = self.revisions[name]
        revision.state = "verifying"
        return asyncio.run_coroutine_threadsafe(self._apply(revision), self._loop)

    def save(self) -> None:
        """It starts with what is applied."""
        self.startup = copy.deepcopy(self.applied)

    # --- serving

    def _serve(self) -> None:
        async def serve() -> None:
            app = web.Application(client_max_size=4 * 1024 * 1024)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            context, self.pin = _secured(self.switch)
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            self._ready.set()
            await self._stopped.wait()
            await runner.cleanup()

        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(serve())
        self._loop.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        self.requests.append((request.method, path))
        if not _authorized(request.headers.get("Authorization", "")):
            return _problem(401, "Unauthorized", "wrong username or password")
        body = await request.read()
        try:
            document = json.loads(body) if body else None
        except ValueError:
            return _problem(400, "Bad Request", "the body is not JSON")
        if not path.startswith(PREFIX):
            return _problem(404, "Not Found", path)
        parts = tuple(unquote(p) for p in path[len(PREFIX) :].split("/") if p)
        try:
            self.meet(request.method, path)
        except ConnectionAbortedError:
            assert request.transport is not None
            request.transport.abort()
            raise
        answer = await self._answer(request.method, parts, request.query, document)
        if self.lose(request.method, path) and request.transport is not None:
            request.transport.abort()
        return answer

    async def _answer(
        self, method: str, parts: tuple[str, ...], query: Mapping[str, str], document: Any
    ) -> web.Response:
        rev = query.get("rev", "")
        match method, parts:
            case "GET", ("revision",):
                return _json({name: r.shown() for name, r in self.revisions.items()})
            case "GET", ("revision", name) if name in self.revisions:
                return _json(self.revisions[name].shown())
            case "GET", ("action", _):
                return _json({"state": "action_success", "detail": ""})
            case "GET", ("system", "image"):
                return _json(self.images)
            case "GET", _ if rev == "operational" or parts[:1] == ("system",):
                seen = await asyncio.to_thread(self._operational, parts, query.get("view", ""))
                return _problem(404, "Not Found", "/".join(parts)) if seen is None else _json(seen)
            case "GET", _:
                return self._configured(parts, rev or "applied")
            case "POST", ("system", "image") if "@boot-next" in at(document):
                self.images["next"] = "2" if self.images["current"] == "1" else "1"
                return _json(1, 202)
            case "POST", ("system",) if "@reboot" in at(document):
                self._loop.call_later(0.1, self.reboot)  # this thread: it answers nobody meanwhile
                return _json(2, 202)
            case "POST", ("revision",):
                name = self.begin_revision({})
                return _json({name: self.revisions[name].shown()}, 201)
            case "PATCH", ("revision", "applied") if at(document).get("state") == "save":
                self.save()
                return _json({"state": "applied_and_saved", "transition": {"issue": {}}})
            case "PATCH", ("revision", name) if name in self.revisions:
                return self._begin(name, at(document))
            case (("PATCH" | "DELETE"), _):
                return self._change(method, parts, rev, document)
        return _problem(404, "Not Found", "/".join(parts))

    def _operational(self, parts: tuple[str, ...], view: str) -> Any:
        with self._lock:
            return self._reader.read(parts, view)

    def _configured(self, parts: tuple[str, ...], rev: str) -> web.Response:
        trees = {"applied": self.applied, "startup": self.startup}
        if rev in self.revisions:
            trees[rev] = changed(self.applied, self.revisions[rev])
        tree: Any = trees.get(rev)
        for part in parts:
            tree = tree.get(part) if isinstance(tree, dict) else None
        return _problem(404, "Not Found", "/".join(parts)) if tree is None else _json(tree)

    def _change(self, method: str, parts: tuple[str, ...], rev: str, document: Any) -> web.Response:
        revision = self.revisions.get(rev)
        if revision is None or revision.state != "pending":
            return _problem(400, "Bad Request", f"rev={rev} is not a pending revision")
        revision.changes.append((parts, document if method == "PATCH" else None))
        return _json(document) if method == "PATCH" else web.Response(status=204)

    def _begin(self, name: str, asked: Any) -> web.Response:
        revision = self.revisions[name]
        if asked.get("state") != "apply" or revision.state != "pending":
            return _problem(400, "Bad Request", f"revision {name} is {revision.state}")
        if at(asked, "auto-prompt").get("ays") != "ays_yes":
            revision.state = "ays_fail"
            return _json(revision.shown())
        revision.state = "verifying"
        task = self._loop.create_task(self._apply(revision))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return _json(revision.shown())

    async def _apply(self, revision: Revision) -> None:
        tree = changed(self.applied, revision)
        if problem := invalid(tree):
            revision.state, revision.issue = "invalid", {"0": {"message": problem}}
            return
        revision.state = "reloading"

        def carry_out() -> None:
            self.before_apply()
            with self._lock:
                self.switch.carry_out(tree)

        try:
            await asyncio.to_thread(carry_out)
        except AssertionError as error:
            revision.state, revision.issue = "invalid", {"0": {"message": str(error)}}
            return
        self.applied, revision.state = tree, "applied"


def _authorized(header: str) -> bool:
    wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return header == f"Basic {wanted}"


def _secured(switch: FrrSwitch) -> tuple[ssl.SSLContext, str]:
    """A certificate of its own, and its fingerprint as one pins it."""
    cert, key = make_certificate(switch.name, "127.0.0.1")
    file = switch.folder / "api.pem"
    file.write_bytes(key + cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(cert.decode())).hexdigest()


def _json(document: Any, status: int = 200) -> web.Response:
    return web.json_response(document, status=status)


def _problem(status: int, title: str, detail: str) -> web.Response:
    return _json({"title": title, "detail": detail, "status": status}, status)
