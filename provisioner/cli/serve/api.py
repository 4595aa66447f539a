"""`provisioner api`: the REST API of a data directory; `serve` has it from here too."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.cli.options.checked_options import check_ca
from provisioner.cli.options.data_options import with_data
from provisioner.cli.options.fabric_options import (
    Limited,
    PlanFile,
    UfmPin,
    UfmUrl,
    UfmUser,
    fabric_access,
)
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.api import api_parts, serve_api
from provisioner.daemon.data import Data, read_settings
from provisioner.daemon.tenants import FabricAccess, open_keeper
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.matrix import Matrix
from provisioner.ports import Clock
from provisioner.twin.rehearsal_process import RehearsalProcess

log = logging.getLogger(__name__)


def api(
    data: Annotated[Path, typer.Option(help="Data directory of the daemon.")] = Path("var"),
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: a free one; api_port without.")
    ] = None,
    matrix: Annotated[list[Path] | None, typer.Option(help="Matrix, then overlays.")] = None,
    artifacts: Annotated[Path, typer.Option(help="Firmware files.")] = Path("artifacts"),
    plan: PlanFile = None,
    settings: Annotated[Path | None, typer.Option(help="docs/settings.md.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="CAs of switches and UFM.")] = None,
    ufm: UfmUrl = "",
    ufm_user: UfmUser = "",
    ufm_pin: UfmPin = "",
    default_limited: Limited = False,
) -> None:
    """Serve the REST API alone (docs/api.md). `provisioner serve` serves it too: it needs no other.

    Whoever asks shows a token of `provisioner token create`.
    """
    check_ca("--ca-file", ca_file)
    chosen = read_settings(settings, api_port=port, api_serve=True)
    pinned = read_matrix(matrix or [])
    access = fabric_access(
        plan,
        chosen,
        ca_file,
        (ufm, ufm_user, ufm_pin),
        default_limited,
    )

    async def run(opened: Data) -> None:
        files = Artifacts(artifacts)
        async with served_api(data, opened, opened.clock, access, pinned, files) as url:
            typer.echo(url)
            await _stopped()

    with_data(data, run)


@asynccontextmanager
async def served_api(
    data: Path, opened: Data, clock: Clock, access: FabricAccess, matrix: Matrix, files: Artifacts
) -> AsyncIterator[str]:
    """The REST API in this process, unless the settings say otherwise; its URL."""
    if not access.settings.api_serve:
        yield ""
        return
    async with open_keeper(opened.store, opened.vault, clock, access) as keeper:
        parts = api_parts(
            opened.store,
            keeper,
            matrix,
            files.directory,
            clock,
            access.settings,
            access.ca_file,
            vault=opened.vault,
            signer=opened.signer,
            rehearsals=RehearsalProcess(matrix, access.settings),
            plan=access.plan,
            outside=files if isinstance(files, OutsideArtifacts) else None,
        )
        async with serve_api(parts, data) as url:
            log.info("the API is at %s/v1/docs; its CA is %s", url, data / CERTIFICATE_FILE)
            yield url


async def _stopped() -> None:
    stopped = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stopped.set)
    await stopped.wait()
