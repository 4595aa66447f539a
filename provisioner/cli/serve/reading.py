"""`--offline`: reading verbs for a daemon that is down, straight from its data directory.

The API itself is served to this one command, on a database that is opened for reading only: nothing
is written, nothing is migrated, and no master key is needed. Data in a running daemon's memory are
missing from the answers.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.cli.client.connection import SOCKET, Answer, Connection, connect
from provisioner.cli.client.contexts import Place
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts
from provisioner.daemon.data import database_of, has_data
from provisioner.model.input_error import InputError
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.runtime.bounded_listener import Limits, serve_at
from provisioner.runtime.site_clock import read_clock
from provisioner.settings import Settings
from provisioner.store.sql_store import open_store

CONNECTIONS_MAX = 8
IDLE_S = 60.0


class OfflineConnection(Connection):
    """Requests that are answered in this process; reading ones only."""

    def __init__(self, place: Place, matrices: Sequence[Path] = ()) -> None:
        self.place = place
        self._matrices = matrices
        directory = Path(place.data)
        if not has_data(directory):
            problem = "there is no data directory here"
            raise InputError(place.data, "", problem, "Name one with --data.")

    def send_request(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        changes: bool = False,
    ) -> Answer:
        """Answer one request. Raises InputError for a database that cannot be read."""
        assert not changes, "a change needs a daemon"
        with _Serving(Path(self.place.data), self._matrices) as here:
            return connect(here).send_request(verb, path, query, body, headers)


class _Serving:
    """Serves the API of a directory in a thread, at a socket of its own."""

    def __init__(self, directory: Path, matrices: Sequence[Path]) -> None:
        self._directory = directory
        self._matrices = matrices
        self._folder = tempfile.TemporaryDirectory(prefix="provisioner-")
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Place:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            self._folder.cleanup()
            raise self._error
        return Place(data=self._folder.name)

    def __exit__(self, *_error: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._folder.cleanup()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # the calling thread raises it
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with _application(self._directory, self._matrices) as app:
            runner = web.AppRunner(app, access_log=None, keepalive_timeout=IDLE_S)
            await runner.setup()
            limits = Limits(CONNECTIONS_MAX, CONNECTIONS_MAX, IDLE_S)
            file = Path(self._folder.name) / SOCKET
            try:
                async with serve_at("offline api", runner, file, limits):
                    self._ready.set()
                    await self._stop.wait()
            finally:
                await runner.cleanup()


@asynccontextmanager
async def _application(directory: Path, matrices: Sequence[Path]) -> AsyncIterator[web.Application]:
    """Yield the API on the directory's database, opened for reading only."""
    store = open_store(database_of(directory), reads_only=True)
    try:
        clock = read_clock(directory)
        keeper = TenantKeeper(store, clock, [], _no_leaves)
        context = Context(store, clock, Settings())
        parts = api_parts(store, keeper, read_matrix(matrices), directory, context)
        yield build_application(parts, table.ALL)
    finally:
        await store.close()


async def _no_leaves() -> FabricPlan:
    return FabricPlan(plan=AddressPlan(), leaves=())
