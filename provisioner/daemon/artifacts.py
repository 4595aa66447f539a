"""The place that devices pull artifacts from: the directory that we serve, or an outside server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from provisioner.adapters.artifact_source import HttpArtifactServer
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts, sweep_parts
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Pin
from provisioner.ports import Clock
from provisioner.runtime import permit
from provisioner.runtime.bounded_listener import Limits, bind, serve_bound
from provisioner.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArtifactDoor:
    """The address for files: `url` of an outside server, or our own `host` and `port`."""

    host: str = "127.0.0.1"
    port: int = 8070
    url: str = ""


def open_artifacts(
    directory: Path, door: ArtifactDoor, clock: Clock, ca_file: Path | None, settings: Settings
) -> AbstractAsyncContextManager[Artifacts]:
    """Yield the artifacts of a daemon, as its options say; one that observes serves none."""
    if permit.is_observing():
        return nullcontext(Artifacts(directory))
    if door.url:
        return outside_artifacts(directory, door.url, clock, ca_file)
    return serve_artifacts(directory, door.host, door.port, settings)


@asynccontextmanager
async def outside_artifacts(
    directory: Path, url: str, clock: Clock, ca_file: Path | None = None
) -> AsyncIterator[OutsideArtifacts]:
    """Yield the files of an outside server with `directory` as cache. It need not answer yet.

    Raises InputError for a directory that cannot be written.
    """
    if not os.access(directory, os.W_OK | os.X_OK):
        remedy = "With --artifact-url it is a cache: name a directory that the daemon may write."
        raise InputError("--artifacts", str(directory), "it cannot be written", remedy)
    if leftover := await asyncio.to_thread(sweep_parts, directory):
        log.info("removed %d files that were half fetched once", leftover)
    server = HttpArtifactServer(url, ca_file)
    files = OutsideArtifacts(directory, server, clock)
    log.info("devices pull artifacts from %s", url)
    try:
        yield files
    finally:
        await files.close()
        await server.close()


@asynccontextmanager
async def serve_artifacts(
    directory: Path, host: str, port: int, settings: Settings
) -> AsyncIterator[Artifacts]:
    """Serve the artifact directory over plain HTTP, for devices that pull (a BFB is pulled).

    Vendor images are signed, and are verified by digest before they are offered; they hold no
    secret, and BlueField BMCs do not verify our certificate anyway.
    """
    try:
        bound = await bind(host, port)
    except OSError as error:
        problem = f"cannot serve artifacts there ({error.strerror or error})"
        remedy = "Name a free port at an address of this machine that BMCs reach."
        raise InputError("--artifact-host", f"{host}:{port}", problem, remedy) from None
    limits = Limits(
        settings.artifacts_connections_max,
        settings.artifacts_connections_per_peer,
        settings.api_idle_s,
        first_s=settings.api_first_s,
    )
    with bound:
        artifacts = Artifacts(directory, f"http://{host}:{bound.port}")
        served = web.AppRunner(
            artifacts.build_application(), access_log=None, keepalive_timeout=limits.idle_s
        )
        async with serve_bound("artifacts", served, bound, limits, None):
            yield artifacts


async def warn_of_boot_token(files: Artifacts, image: Pin | None, settings: Settings) -> None:
    """Log a warning if the pinned maintenance image cannot carry a boot token."""
    if image is None or not image.artifact:
        return
    if await files.carries_slot(image.artifact) is not False:
        return
    if settings.agent_lookup_trusts == "first":
        log.warning("%s carries no token: the first lookup of a boot gets it", image.artifact)
    else:
        message = "%s cannot carry the token of a boot: no node boots it (docs/agent.md)"
        log.warning(message, image.artifact)
