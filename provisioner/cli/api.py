"""`provisioner api`: the REST API of a data directory, on the loopback address."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
from aiohttp import web

from provisioner.api.app import application
from provisioner.cli.data_options import with_data
from provisioner.cli.tenant import TOKEN_FILE
from provisioner.model.input_error import InputError
from provisioner.opening import Data, read_settings, read_text
from provisioner.planning import address_plan
from provisioner.planning.address_plan import AddressPlan
from provisioner.store.data_directory import check_private
from provisioner.tenants_opening import FabricAccess, open_keeper
from provisioner.wall_clock import WallClock

HOST = "127.0.0.1"  # TLS, and whoever comes from elsewhere, is a proxy's


def api(
    data: Annotated[Path, typer.Option(help="Data directory of the daemon.")] = Path("var"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8080,
    plan: Annotated[Path | None, typer.Option(help="The site's address plan.")] = None,
    settings: Annotated[Path | None, typer.Option(help="docs/settings.md.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="CAs of switches.")] = None,
) -> None:
    """Serve the REST API until it is stopped (docs/tenants.md). It runs beside the daemon.

    Whoever asks shows the token of `provisioner tenant api-token`.
    """
    chosen = AddressPlan() if plan is None else address_plan.parse(str(plan), read_text(plan))
    access = FabricAccess(chosen, read_settings(settings), ca_file)
    file = data / TOKEN_FILE
    if not file.is_file():
        remedy = "Run `provisioner tenant api-token` first."
        raise InputError(str(file), "", "there is no token yet", remedy)
    check_private(file)
    digest = read_text(file).strip()

    async def run(opened: Data) -> None:
        async with open_keeper(opened.store, opened.vault, WallClock(), access) as keeper:
            app = application(keeper, opened.store, digest)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, HOST, port).start()
                typer.echo(f"http://{HOST}:{runner.addresses[0][1]}")
                await _stopped()
            except OSError as error:
                problem = f"it cannot be served there ({error.strerror or error})"
                raise InputError("--port", str(port), problem, "Name a free port.") from None
            finally:
                await runner.cleanup()

    with_data(data, run)


async def _stopped() -> None:
    stopped = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stopped.set)
    await stopped.wait()
