"""`--offline`: reading verbs for a daemon that is down, straight from its data directory.

The API itself is served to this one command, on a database that is opened for reading only: nothing
is written, nothing is migrated, and no master key is needed. Data in a running daemon's memory are
missing from the answers.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from aiohttp import web

from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.cli.client.connection import SOCKET, Answer, Connection, Place, connect
from provisioner.cli.options.bmc_options import KeyOption, read_trusted_keys
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.matrix_files import DataOption, read_matrix
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts
from provisioner.daemon.data import Data, database_of, has_data, open_data
from provisioner.model.input_error import InputError
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.runtime.bounded_listener import Limits, serve_at
from provisioner.runtime.wall_clock import read_clock
from provisioner.settings import Settings
from provisioner.store.database.journal_archive import read_archive
from provisioner.store.rows.journal import ChainCheck
from provisioner.store.sql_store import open_store

# ------------------------------------------------------------------------------
# `provisioner audit verify` and `check-archive`: prove that the journal is whole and unchanged.
#
# Only `verify` opens the database.


KNOWN = re.compile(r"(\d{1,15}):([0-9a-f]{64})")


def verify(
    known: Annotated[
        str, typer.Option("--known", help="ROWS:HEAD of an earlier check, kept elsewhere.")
    ] = "",
    archives: Annotated[
        Path | None,
        typer.Option("--archives", help="Directory of archives to verify too, from row 1."),
    ] = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Verify the whole chain. Exit code 0: unchanged; 1: a row was changed, removed or added.

    The command opens the database itself, so that it trusts no daemon. Without --known it cannot
    see whether the end was cut off, or the whole chain written anew. After a prune the chain begins
    at the row that is signed as its beginning; --archives follows the rest.

    Example: provisioner audit verify --known 4711:9f86d081...
    """
    earlier = _known(known)

    async def check(opened: Data) -> ChainCheck:
        if archives is not None:
            try:
                return await opened.store.archives.verify(archives, earlier)
            except InputError as error:
                return ChainCheck(0, "", 0, f"{error.source}: {error.problem}")
        return await opened.store.journal.verify(earlier)

    result = asyncio.run(_run_opened(data, check))
    if as_json:
        document = {
            "intact": result.intact,
            "rows": result.rows,
            "head": result.head,
            "broken_at": result.broken_at,
            "problem": result.problem,
            "known_checked": earlier is not None,
        }
        typer.echo(json.dumps(document))
    elif result.intact:
        typer.echo(f"intact: {result.rows} rows; keep this elsewhere: {result.rows}:{result.head}")
        if earlier is None:
            typer.echo("whether its end was cut off is not known: give --known", err=True)
    else:
        typer.echo(f"NOT INTACT at row {result.broken_at}: {result.problem}")
    raise typer.Exit(0 if result.intact else 1)


async def _run_opened(
    directory: Path, check: Callable[[Data], Awaitable[ChainCheck]]
) -> ChainCheck:
    """Run a check on an opened data directory, which needs no master key. Raises InputError."""
    if not has_data(directory):
        remedy = "Run `provisioner intake` first."
        raise InputError(str(directory), "", "there is no data directory here", remedy)
    now = read_clock(directory).now()
    async with open_data(directory, now, needs_key=False) as opened:
        return await check(opened)


def check_archive(
    files: Annotated[list[Path], typer.Argument(help="Archives, in any order.")],
    key: KeyOption,
    as_json: JsonOption = False,
) -> None:
    """Verify archives without a daemon: their signature, and the chain of their rows.

    Exit code 1: one is not intact.

    Example: provisioner audit check-archive journal-000000000001-000000050000.jsonl --key keys.pem
    """
    keys = read_trusted_keys(key)
    results: list[dict[str, object]] = []
    for file in files:
        try:
            statement = read_archive(file, keys).statement
        except InputError as error:
            results.append({"file": str(file), "problem": error.problem})
            continue
        span = {"first": statement.first, "last": statement.last, "head": statement.head}
        results.append({"file": str(file), **span, "problem": ""})
    if as_json:
        typer.echo(json.dumps(results))
    for result in () if as_json else results:
        line = f"NOT INTACT: {result['problem']}"
        if not result["problem"]:
            line = f"intact: rows {result['first']} to {result['last']}, head {result['head']}"
        typer.echo(f"{result['file']}: {line}")
    raise typer.Exit(1 if any(result["problem"] for result in results) else 0)


def _known(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    matched = KNOWN.fullmatch(text)
    if matched is None:
        remedy = "Give what an earlier `audit verify` printed: ROWS:HEAD."
        raise InputError("--known", text[:80], "this is no head of the journal", remedy)
    return int(matched[1]), matched[2]


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
