"""Runs rehearsals for the daemon in a separate process, because they use a core for minutes.

That process gets the recorded fleet and nothing else: no store, no key, no device. It reads one
JSON object and writes one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignRow
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.ports.store import RehearsalFailed
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

LIMIT_S = 1800.0  # of wall-clock time; the largest twin takes some five minutes of a core
NICENESS = 15  # the daemon's own work takes precedence
log = logging.getLogger(__name__)


class RehearsalInput(Record):
    """The input of the rehearsal process."""

    campaign: Campaign
    nodes: tuple[Node, ...]
    inventories: Mapping[str, Inventory]
    tenants: tuple[Tenant, ...]
    of: int
    matrix: Matrix
    settings: Settings


class RehearsalProcess:
    """Implements `ports.rehearsals` with one process per rehearsal."""

    def __init__(self, matrix: Matrix, settings: Settings) -> None:
        self._matrix = matrix
        self._settings = settings
        self._turn = asyncio.Lock()

    async def rehearse(
        self, store: SqlStore, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        """Rehearse a campaign in a process of its own, which leaves nothing behind."""
        # the twin brings the whole simulator, which a daemon without campaigns never needs
        from provisioner.integrations.twin.rehearsal import prepare_rehearsal

        async with self._turn:
            recorded, of = await prepare_rehearsal(store, campaign, rows, hosts)
            request = RehearsalInput(
                campaign=campaign,
                nodes=tuple(recorded.nodes),
                inventories=recorded.inventories,
                tenants=tuple(recorded.tenants),
                of=of,
                matrix=self._matrix,
                settings=self._settings,
            )
            return await _run_process(request.model_dump_json().encode())


async def _run_process(request: bytes) -> Mapping[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            output, errors = await process.communicate(request)
    except TimeoutError:
        raise RehearsalFailed(f"it did not end within {LIMIT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        log.warning("a rehearsal failed: %s", errors.decode(errors="replace")[-2000:])
        raise RehearsalFailed(f"its process ended with code {process.returncode}; see the log")
    result: dict[str, Any] = json.loads(output)
    return result


def main() -> None:
    """Run one rehearsal from standard input to standard output."""
    from provisioner.integrations.twin.fleet_twin import RecordedFleet
    from provisioner.integrations.twin.rehearsal import run_rehearsal, to_json

    os.nice(NICENESS)
    request = RehearsalInput.model_validate_json(sys.stdin.buffer.read(), strict=False)
    recorded = RecordedFleet(request.nodes, request.inventories, request.tenants)
    result = run_rehearsal(request.campaign, recorded, request.of, request.matrix, request.settings)
    sys.stdout.write(json.dumps(to_json(result)))


if __name__ == "__main__":
    main()
