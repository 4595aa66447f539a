"""The listener for pushed data: events that BMCs post, and alerts that monitoring sends.

Events come on connections of their own kind (`event_connections.py`), all else by aiohttp.

It serves HTTPS only. Rule: a request is anonymous until its secret was checked, and its body is not
read before its size is known to be small. Its content is data and triggers no action by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from provisioner.adapters.agent.tls import open_authority
from provisioner.adapters.redfish.eventing.events import parse_document
from provisioner.control.watch.alert_keeper import PortReport
from provisioner.control.watch.watcher import ALONE, PortWatches, Watcher, WatchParts
from provisioner.daemon.data import kept_status
from provisioner.daemon.event_connections import (
    BARRED_S,
    BODY_MAX,
    BODY_S,
    EVENTS,
    Bars,
    EventConnection,
)
from provisioner.daemon.event_supervisor import EventSupervisor
from provisioner.execution.observe.collector import read_port_names
from provisioner.model.input_error import InputError
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.watch.pushed_alerts import Directory, Source, Told, parse_push
from provisioner.ports import Clock, EventStreams, Secret
from provisioner.runtime.bounded_listener import (
    BoundedListener,
    KeptConnections,
    Limits,
    get_handlers,
)
from provisioner.runtime.integrations import open_optic_series
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile, Sealing
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

WEBHOOK = "/v1/alerts/webhook"
REPLAY_S = 300.0  # a signed request is valid for so long, either way of our clock
SEEN_MAX = 65_536  # signatures remembered for that time
DIRECTORY_S = 60.0  # seconds until names and serials are read again
SIGNATURE = "X-Provisioner-Signature"
TIMESTAMP = "X-Provisioner-Timestamp"
SOURCE = "X-Provisioner-Source"


@dataclass(frozen=True)
class Sender:
    """A source with its secret. `signed`: it signs its requests, else it shows a bearer token."""

    source: Source
    secret: Secret
    signed: bool


class Intake:
    """The HTTP side of the watch. Until `attach` it answers 503, as no watcher can receive."""

    def __init__(
        self,
        senders: tuple[Sender, ...],
        store: SqlStore,
        clock: Clock,
        plan: AddressPlan | None = None,
    ) -> None:
        self._senders = {s.source.name: s for s in senders}
        self._store = store
        self._clock = clock
        self._plan = plan
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._watcher: Watcher | None = None
        self._bars = Bars(lambda: asyncio.get_running_loop().time())
        self._directory: tuple[float, Directory] | None = None
        self._serials: dict[str, tuple[str, ...]] = {}  # certificate -> serials

    def attach_watcher(self, watcher: Watcher) -> None:
        """Hand requests to this watcher from now on."""
        self._watcher = watcher

    def build_application(self) -> web.Application:
        """Return the application of all that is no event of a BMC; another path is 404."""

        @web.middleware
        async def refuse_when_barred(request: web.Request, handler: Any) -> web.StreamResponse:
            peer = request.remote or ""
            if self.bars(peer):
                refusal = web.Response(status=429, headers={"Retry-After": f"{BARRED_S:.0f}"})
                refusal.force_close()
                return refusal
            answer: web.StreamResponse = await handler(request)
            answer.force_close()
            self.count(peer, answer.status)
            return answer

        app = web.Application(middlewares=[refuse_when_barred])
        app.router.add_post(WEBHOOK, self._webhook)
        return app

    async def deliver(self, name: str, body: bytes) -> int:
        """Take an event in; return the status for it."""
        document = parse_document(body)
        if self._watcher is None:
            return 503 if document is not None else 400
        status = await self._watcher.feeds.take_delivery(name, document)
        # of one that is no JSON the subscription's BMC is looked at
        return status if document is not None else 400

    def doubt(self, name: str) -> None:
        """Rely on no subscription, or not on this one: events by it may have been lost."""
        if self._watcher is not None:
            self._watcher.feeds.doubt(name)

    def bars(self, peer: str) -> bool:
        """Return whether an address is refused for a while."""
        return self._bars.bars(peer)

    def count(self, peer: str, status: int) -> None:
        """Count an answer, which may bar the address."""
        self._bars.count(peer, status)

    async def _webhook(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if isinstance(body, web.Response):
            return body
        sender = self._sender(request.headers, body)
        if sender is None:
            return web.Response(status=401)
        document = _json(body)
        if document is None:
            return web.Response(status=400)
        if self._watcher is None or not self._watcher.takes_reports:
            return web.Response(status=503)
        alerts = parse_push(sender.source, document, await self._known(), self._clock.now())
        await self._hand_on(self._watcher, alerts)
        if alerts.unnamed:
            log.warning("%s: names no node of ours: %s", sender.source.name, alerts.unnamed[:3])
        answer = {
            "alerts": len(alerts.signals),
            "ports": len(alerts.ports),
            "unknown_nodes": list(alerts.unnamed[:16]),
            "unreadable": alerts.unreadable,
        }
        return web.json_response(answer, status=202)

    async def _hand_on(self, watcher: Watcher, found: Told) -> None:
        for node in dict.fromkeys(s.node for s in found.signals):
            await watcher.report(node, [s for s in found.signals if s.node == node])
        await watcher.count(
            PortReport(node=p.node, port=p.port, counters=p.counters, link=p.link, at=p.at)
            for p in found.ports
        )

    def _sender(self, headers: Mapping[str, str], body: bytes) -> Sender | None:
        """Return the proved sender, by its bearer token or by a signature that is new."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            digest = hashlib.sha256(token.strip().encode()).digest()
            return next(
                (
                    s
                    for s in self._senders.values()
                    if not s.signed and hmac.compare_digest(digest, _digest(s.secret))
                ),
                None,
            )
        sender = self._senders.get(headers.get(SOURCE, ""))
        stamp = headers.get(TIMESTAMP, "")
        if sender is None or not sender.signed or not stamp.isascii() or not stamp.isdigit():
            return None
        now = self._clock.now()
        if len(stamp) > 12 or abs(now - int(stamp)) > REPLAY_S:
            return None
        name = sender.source.name
        expected = sign_request(sender.secret, name, stamp, body)
        if not hmac.compare_digest(expected, headers.get(SIGNATURE, "").lower()):
            return None
        while self._seen and next(iter(self._seen.values())) < now - 2 * REPLAY_S:
            self._seen.popitem(last=False)
        if expected in self._seen or len(self._seen) >= SEEN_MAX:
            return None
        self._seen[expected] = now
        return sender

    async def _known(self) -> Directory:
        now = self._clock.now()
        if self._directory is None or now - self._directory[0] > DIRECTORY_S:
            nodes = await self._store.nodes.list()
            serials = {}
            for node in nodes:
                if node.certificate and node.certificate not in self._serials:
                    certificate = await self._store.evidence.get_certificate(node.certificate)
                    listed = certificate.serials if certificate is not None else ()
                    self._serials[node.certificate] = tuple(
                        part.partition("=")[2] for part in listed
                    )
                serials[node.id] = self._serials.get(node.certificate, ())
            leaves = {port.switch for node in nodes for port in node.ports if not port.guid}
            names = await read_port_names(self._store, leaves)
            self._serials = {n.certificate: serials[n.id] for n in nodes if n.certificate}
            self._directory = (now, Directory(nodes, serials, self._plan, names))
        return self._directory[1]


def sign_request(secret: Secret, source: str, stamp: str, body: bytes) -> str:
    """Return a signing source's header: HMAC-SHA-256 over "source.timestamp." and the body."""
    content = f"{source}.{stamp}.".encode() + body
    return "sha256=" + hmac.new(secret.reveal().encode(), content, hashlib.sha256).hexdigest()


class WatchedSite(Protocol):
    """What the watch uses of a site: the rails whose addresses alerts name, and its limits."""

    @property
    def plan(self) -> AddressPlan | None: ...

    @property
    def settings(self) -> Settings: ...


@asynccontextmanager
async def open_watch(
    url: str,
    senders: tuple[Sender, ...],
    data: Path,
    store: SqlStore,
    clock: Clock,
    streams: EventStreams | None,
    keys: Sealing,
    site: WatchedSite | None = None,
) -> AsyncIterator[WatchParts]:
    """Yield the parts of the watch; with `url`, listen there, at an address of this machine.

    Raises `InputError` if it cannot listen.
    """
    chosen = Settings() if site is None else site.settings
    limits = Limits(
        chosen.events_connections_max,
        chosen.events_connections_per_peer,
        chosen.events_kept_s,
        stranger_s=chosen.api_idle_s,
    )
    if chosen.events_process and senders:
        remedy = "Set events_process: false; alerts are taken by the daemon itself."
        raise InputError("--alert-sources", "", "events have a process of their own", remedy)
    intake = Intake(senders, store, clock, None if site is None else site.plan)

    def build_parts(listener: str, begin: Callable[[Watcher, PortWatches], None]) -> WatchParts:
        def attach(watcher: Watcher, beside: PortWatches = ALONE) -> None:
            intake.attach_watcher(watcher)
            begin(watcher, beside)

        secret = partial(secrets.token_urlsafe, 32)
        optics = open_optic_series(data, chosen, os.environ, store.evidence)
        return WatchParts(store.alerts, secret, streams, listener, attach, optics)

    if not url:
        async with kept_status(data, clock) as begin:
            yield build_parts("", begin)
        return
    place = _place(url)
    listening = _listen_apart if chosen.events_process else _listen
    try:
        async with listening(intake, place, SealedFile(data, keys), chosen, limits) as port:
            bracketed = f"[{place[0]}]" if ":" in place[0] else place[0]
            bound = f"https://{bracketed}:{port}"
            log.info("events and alerts are taken at %s", bound)
            async with kept_status(data, clock) as begin:
                yield build_parts(bound + EVENTS, begin)
    except _CannotListen as error:
        problem = f"cannot listen there ({error})"
        remedy = "Name a free port at an address of this machine."
        raise InputError("--events-url", url, problem, remedy) from None


@asynccontextmanager
async def _listen(
    intake: Intake, place: tuple[str, int], kept: SealedFile, chosen: Settings, limits: Limits
) -> AsyncIterator[int]:
    """Take events and alerts in this process; yield the port."""
    runner = web.AppRunner(
        intake.build_application(), access_log=None, keepalive_timeout=chosen.api_idle_s
    )
    await runner.setup()
    tls = open_authority(kept.path.parent, kept).server_context((place[0],))
    tls.num_tickets = 0  # tickets are made and sent in each handshake, and no sender uses one again
    others = get_handlers(runner)

    def make_connection() -> EventConnection:
        return EventConnection(intake, proved, others, limits.idle_s)

    listener = BoundedListener("events", make_connection, limits, tls)
    # half of the places are for those who come anew
    most = min(chosen.events_kept_max, listener.limits.connections_max // 2)
    proved = KeptConnections(most, listener.prove)
    try:
        try:
            await listener.start(*place)
        except OSError as error:
            raise _CannotListen(error.strerror or str(error)) from None
        yield listener.port
    finally:
        await listener.stop()
        proved.close()
        await runner.cleanup()


@asynccontextmanager
async def _listen_apart(
    intake: Intake, place: tuple[str, int], kept: SealedFile, chosen: Settings, limits: Limits
) -> AsyncIterator[int]:
    """Take events in a process of its own; yield the port."""
    pem = open_authority(kept.path.parent, kept).make_server_pem((place[0],))
    kept_max = chosen.events_kept_max
    supervisor = EventSupervisor(place, pem, limits, kept_max, intake.deliver, intake.doubt)
    try:
        try:
            await supervisor.start()
        except OSError as error:
            raise _CannotListen(error.strerror or str(error)) from None
        yield supervisor.port
    finally:
        await supervisor.stop()


class _CannotListen(Exception):
    """The address is taken, or is none of this machine."""


def _place(url: str) -> tuple[str, int]:
    """Return host and port of our own URL. Raises `InputError`."""
    try:
        where = urlsplit(url)
        if where.scheme == "https" and where.hostname and not where.path.strip("/"):
            return where.hostname, 443 if where.port is None else where.port
    except ValueError:
        pass
    remedy = "Write https://ADDRESS:PORT, as BMCs and exporters reach this machine."
    raise InputError("--events-url", url, "this is no such address", remedy)


def _digest(secret: Secret) -> bytes:
    return hashlib.sha256(secret.reveal().encode()).digest()


async def _body(request: web.Request) -> bytes | web.Response:
    if (request.content_length or 0) > BODY_MAX:
        return web.Response(status=413)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > BODY_MAX:
                    return web.Response(status=413)
    except TimeoutError:
        return web.Response(status=408)
    return bytes(body)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
