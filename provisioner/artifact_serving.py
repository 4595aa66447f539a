"""Serves the artifact directory to devices that pull."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from provisioner.execution.artifacts import Artifacts
from provisioner.model.input_error import InputError


@asynccontextmanager
async def serve_artifacts(directory: Path, host: str, port: int) -> AsyncIterator[Artifacts]:
    """The artifact directory over plain HTTP, for devices that pull (a BFB is pulled, not pushed).

    Vendor images are signed, and are verified by digest before they are offered; they hold no
    secret, and BlueField BMCs do not verify our certificate anyway.
    """
    artifacts = Artifacts(directory)
    runner = web.AppRunner(artifacts.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        problem = f"cannot serve artifacts there ({error.strerror or error})"
        remedy = "Name a free port at an address of this machine that BMCs reach."
        raise InputError("--artifact-host", f"{host}:{port}", problem, remedy) from None
    bound = runner.addresses[0][1]
    artifacts.url = f"http://{host}:{bound}"
    try:
        yield artifacts
    finally:
        await runner.cleanup()
