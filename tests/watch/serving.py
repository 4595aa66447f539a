"""A simulated node that serves a tenant, and daemons that watch it, under virtual time.

The node is put where the journey would have brought it: taken in, read, certified, released.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from given_events import in_state
from rig import World

from provisioner.adapters.redfish.eventing.event_stream import SseReader
from provisioner.control.watch.watcher import Watcher, WatchParts
from provisioner.daemon.daemon import Daemon
from provisioner.integrations.sim.redfish.redfish_events import Events
from provisioner.model.cohort import HealthReport
from provisioner.model.node import Node, Placement, State
from provisioner.model.operation import OperationStatus
from provisioner.planning.certification import certification
from provisioner.ports import BmcAddress, Unreachable
from provisioner.store.repositories.signing_keys import open_signer

HOST = "su0-n00"


class MemoryStreams:
    """`EventStreams` onto the simulated BMCs of a world; a broken one raises, as a socket does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.opened: list[tuple[str, str]] = []  # URL, last id
        self.open_now: dict[str, asyncio.Queue[bytes | None]] = {}

    @asynccontextmanager
    async def open(
        self, bmc: BmcAddress, path: str, last_id: str
    ) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        assert bmc.secret is not None
        self.opened.append((bmc.url, last_id))
        service = self._world.services[bmc.url]
        assert service.events is not None
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        login = await self._world.transport.request(bmc, _root())
        assert login.status == 200
        resource = service.tree.find(urlsplit(path).path)
        assert resource is not None
        assert resource.stream is not None
        told = resource.stream(_asking(last_id, self._world.clock.now()))
        if told.stream is None:
            raise Unreachable("no stream now", maybe_executed=False)
        end = told.stream(pieces.put_nowait)
        self.open_now[bmc.url] = pieces
        try:
            yield _frames(pieces)
        finally:
            end()

    def break_off(self, url: str) -> None:
        """The connection is gone."""
        self.open_now[url].put_nowait(None)

    async def close(self) -> None:
        return None


async def _frames(pieces: asyncio.Queue[bytes | None]) -> AsyncIterator[tuple[str, Any]]:
    reader = SseReader()
    while (piece := await pieces.get()) is not None:
        for frame in reader.feed(piece):
            yield frame.id, frame.data
    raise Unreachable("connection reset", maybe_executed=False)


def _root() -> Any:
    from provisioner.ports import Call

    return Call("GET", "/redfish/v1/Systems")


def _asking(last_id: str, now: float) -> Any:
    from provisioner.integrations.sim.redfish.redfish_tree import Request

    return Request("GET", "/", {}, {"last-event-id": last_id}, b"", None, "admin", now)


class Serving:
    """One released node, and the daemon that watches it now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = world.store.alerts
        self.streams = MemoryStreams(world)
        self.daemon: Daemon | None = None
        self._named = 0

    @property
    def watcher(self) -> Watcher:
        assert self.daemon is not None
        assert self.daemon.watcher is not None
        return self.daemon.watcher

    async def release(self, valid_s: int = 30 * 86400) -> Node:
        """Take the node in, and put it where a journey ends. `valid_s`: the certificate's life."""
        world = self.world
        await world.take_in()
        await world.start()
        assert world.daemon is not None
        await world.daemon.stop()
        for operation in await world.store.operations.list_active():
            taken = await world.store.operations.take(operation.id)
            await world.store.operations.end(taken, OperationStatus.DONE, "")
        for other in await world.store.nodes.list():  # nothing else happens at this site
            if other.id != HOST:
                await world.store.nodes.save(in_state(other, State.RETIRED, world.clock.now()))
        node = await self.node()
        inventory, unseen = await world.daemon.observer.collect(node)
        assert inventory is not None, unseen
        now = world.clock.now()
        report = HealthReport(
            node=node.id,
            inventory_digest=certification.identify_installation(inventory),
            started_at=now,
            ended_at=now,
            results=(),
        )
        moved = in_state(node, State.RELEASED, now, placement=Placement.CUSTOMER, vrf="RED",
                           tenant="red", release="r", profile="p", certificate="c1",
                           blockers=(), note="")  # fmt: skip
        made = certification.issue_certificate(certificate_id="c1", node=moved, inventory=inventory,
                                   report=report, matrix_digest="m", now=now,
                                   valid_s=valid_s)  # fmt: skip
        signer = await open_signer(world.store, world.key, now)
        operation = await world.store.operations.open(node.id, "test", now)
        assert operation is not None
        taken, _ = await world.store.operations.record(
            await world.store.operations.take(operation.id),
            node=moved,
            inventory=inventory,
            certificate=signer.sign(made),
            now=now,
        )
        await world.store.operations.end(taken, OperationStatus.DONE, "")
        await world.clock.sleep(2.0)  # certificates are issued in whole seconds
        return await self.node()

    async def start(self, *, listener: str = "", streams: bool = True) -> None:
        """A daemon that watches; the one before it is gone."""
        await self.stop()
        assert self.world.daemon is not None
        watch = WatchParts(
            book=self.book,
            new_secret=self._secret,
            streams=self.streams if streams else None,
            listener=listener,
        )
        self.daemon = Daemon(dataclasses.replace(self.world.daemon.parts, watch=watch))
        await self.daemon.start()

    async def stop(self) -> None:
        if self.daemon is not None:
            await self.daemon.stop()
            self.daemon = None

    def _secret(self) -> str:
        self._named += 1
        return f"secret-{self._named:040d}"

    async def node(self) -> Node:
        found = await self.world.store.nodes.get(HOST)
        assert found is not None
        return found

    def url(self, bmc: str = "host") -> str:
        return self.world.site.urls[f"{HOST}/{bmc}"]

    def events(self, bmc: str = "host") -> Events:
        found = self.world.services[self.url(bmc)].events
        assert found is not None
        return found

    async def standing(self) -> dict[tuple[str, str], str]:
        """(id, target) -> source of what stands."""
        return {(a.id, a.target): a.source for a in await self.book.list(HOST) if a.active}

    async def until(
        self, seen: Callable[[dict[tuple[str, str], str]], bool], limit_s: float
    ) -> bool:
        """Let time pass until the alerts look so; whether they did within the limit."""
        end = self.world.clock.now() + limit_s
        while self.world.clock.now() < end:
            if seen(await self.standing()):
                return True
            await self.world.clock.sleep(5.0)
        return False


def world(folder: Path, **settings: float) -> World:
    """A site of one node, whose ports no one looks for: they were never moved."""
    return World(folder, 1, 7, **{"watch_ports_s": 1e9, **settings})
