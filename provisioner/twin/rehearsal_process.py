"""Rehearsals for the daemon: in a process of their own, since they take a core for minutes.

Rule: that process has the recorded fleet and nothing else: no store, no key, no device. It reads
one JSON object and writes one.
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
from provisioner.model.campaign import Campaign
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.ports import Store
from provisioner.ports.rehearsals import RehearsalFailed
from provisioner.settings import Settings
from provisioner.twin.rehearsal import document, prepared, rehearse
from provisioner.twin.site import Recorded

LIMIT_S = 1800.0  # of the wall clock; the largest twin takes some five minutes of a core
NICENESS = 15  # the daemon's own work comes first
log = logging.getLogger(__name__)


class Given(Record):
    """What the process reads."""

    campaign: Campaign
    nodes: tuple[Node, ...]
    inventories: Mapping[str, Inventory]
    tenants: tuple[Tenant, ...]
    of: int
    matrix: Matrix
    settings: Settings


class RehearsalProcess:
    """See `ports.rehearsals`."""

    def __init__(self, matrix: Matrix, settings: Settings) -> None:
        self._matrix, self._settings = matrix, settings
        self._turn = asyncio.Lock()

    async def rehearse(
        self, store: Store, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        """One process for each: what one leaves behind is nobody's."""
        async with self._turn:
            recorded, of = await prepared(store, campaign, rows, hosts)
            given = Given(
                campaign=campaign,
                nodes=tuple(recorded.nodes),
                inventories=recorded.inventories,
                tenants=tuple(recorded.tenants),
                of=of,
                matrix=self._matrix,
                settings=self._settings,
            )
            return await _asked(given.model_dump_json().encode())


async def _asked(given: bytes) -> Mapping[str, Any]:
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
            said, wrong = await process.communicate(given)
    except TimeoutError:
        raise RehearsalFailed(f"it did not end within {LIMIT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        log.warning("a rehearsal failed: %s", wrong.decode(errors="replace")[-2000:])
        raise RehearsalFailed(f"its process ended with code {process.returncode}; see the log")
    told: dict[str, Any] = json.loads(said)
    return told


def main() -> None:
    """In the other process."""
    os.nice(NICENESS)
    given = Given.model_validate_json(sys.stdin.buffer.read(), strict=False)
    recorded = Recorded(given.nodes, given.inventories, given.tenants)
    found = rehearse(given.campaign, recorded, given.of, given.matrix, given.settings)
    sys.stdout.write(json.dumps(document(found)))


if __name__ == "__main__":
    main()
