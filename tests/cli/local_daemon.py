"""A daemon's API at the unix socket of a data directory, in a thread of the test's own process.

It has the store, the vault, the keys and the routes of a daemon. It drives no node.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.control.context import Context
from provisioner.daemon.api import api_parts, open_port_reader, serve_api
from provisioner.daemon.data import open_data, read_matrix
from provisioner.daemon.tenants import FabricAccess, open_keeper
from provisioner.integrations.twin.rehearsal_process import RehearsalProcess
from provisioner.model.matrix import Matrix
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Clock
from provisioner.runtime.wall_clock import read_clock
from provisioner.settings import Settings

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
START_S = 60.0


@asynccontextmanager
async def served(
    directory: Path,
    matrix: Matrix,
    settings: Settings,
    clock: Clock | None,
    plan: AddressPlan,
    artifacts: Path | None = None,
    reads_ports: bool = False,
) -> AsyncIterator[str]:
    async with open_data(directory, read_clock(directory).now(), migrates=True) as opened:
        now = clock or opened.clock
        access = FabricAccess(plan, settings)
        transport = RedfishTransport()
        try:
            context = Context(opened.store, now, settings)
            gate = context.get_gate()
            async with (
                open_keeper(opened.store, opened.vault, now, access, gate) as keeper,
                open_port_reader(opened.vault, now, access) as reader,
            ):
                parts = api_parts(
                    opened.store,
                    keeper,
                    matrix,
                    artifacts or directory,
                    context,
                    vault=opened.vault,
                    signer=opened.signer,
                    rehearsals=RehearsalProcess(matrix, settings),
                    plan=plan,
                    transport=transport,
                    port_reader=reader if reads_ports else None,
                    opened=(directory, opened),
                )
                async with serve_api(parts, directory, opened.master) as url:
                    yield url
        finally:
            await transport.close()


@cache
def _shipped() -> Matrix:
    return read_matrix([SHIPPED])


@contextmanager
def daemon(
    directory: Path,
    *,
    matrix: Matrix | None = None,
    clock: Clock | None = None,
    plan: AddressPlan | None = None,
    artifacts: Path | None = None,
    reads_ports: bool = False,
    **settings: Any,
) -> Iterator[str]:
    """Serve the directory until the block ends; yields the URL, "" without `api_serve`."""
    ready: list[str] = []
    failed: list[BaseException] = []
    waiting, loops = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()
    chosen = Settings(**{"api_serve": False, "api_port": 0, **settings})
    pinned = matrix or _shipped()

    async def work() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        planned = plan or AddressPlan()
        async with served(directory, pinned, chosen, clock, planned, artifacts, reads_ports) as url:
            ready.append(url)
            waiting.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # the test's own thread raises it
            failed.append(error)
        finally:
            waiting.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert waiting.wait(START_S)
    if failed:
        raise failed[0]
    try:
        yield ready[0]
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(START_S)
        assert not failed, failed
