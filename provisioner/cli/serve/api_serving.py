"""Serves the REST API in a daemon's process, from the daemon's parts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.checks.threshold_data import Limits
from provisioner.control.context import Context
from provisioner.control.node.observing import SiteObserver
from provisioner.daemon.api import SOCKET, api_parts, serve_api
from provisioner.daemon.data import Data
from provisioner.daemon.port_counters import open_port_reader
from provisioner.daemon.tenants import FabricAccess, open_keeper
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.matrix import Matrix
from provisioner.ports import BmcTransport
from provisioner.twin.rehearsal_process import RehearsalProcess

log = logging.getLogger(__name__)


@asynccontextmanager
async def served_api(
    data: Path,
    opened: Data,
    context: Context,
    access: FabricAccess,
    matrix: Matrix,
    files: Artifacts,
    transport: BmcTransport | None = None,
    thresholds: Mapping[str, Limits] | None = None,
    observer: SiteObserver | None = None,
    matrix_texts: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[str]:
    """Serve the REST API in this process; yield its URL, "" if only the socket is served."""
    gate = context.get_gate()
    clock = context.clock
    async with (
        open_keeper(opened.store, opened.vault, clock, access, gate) as keeper,
        open_port_reader(opened.vault, clock, access) as ports,
    ):
        parts = api_parts(
            opened.store,
            keeper,
            matrix,
            files.directory,
            context,
            access.ca_file,
            vault=opened.vault,
            signer=opened.signer,
            rehearsals=RehearsalProcess(matrix, access.settings),
            plan=access.plan,
            outside=files if isinstance(files, OutsideArtifacts) else None,
            transport=transport,
            port_reader=ports,
            thresholds=thresholds,
            observer=observer,
            matrix_texts=matrix_texts,
            opened=(data, opened),
        )
        async with serve_api(parts, data) as url:
            log.info("the API is at %s", data / SOCKET)
            if url:
                log.info("the API is at %s/v1/docs; its CA is %s", url, data / CERTIFICATE_FILE)
            yield url
