"""Look for ports whose description is newer than the rows: a restore that no file remembers.

The high-water mark lies in the data directory. Where that was restored together with the database,
only the leaves record the moves since. This reads each leaf once, before a daemon acts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.model.port_label import DatabaseMark, PortLabel
from provisioner.planning.watch.recovery import find_newer_labels
from provisioner.ports import Store

log = logging.getLogger(__name__)

LEAVES_MAX = 64  # at once, one request each
LIMIT_S = 60.0  # of the whole look: a dead leaf must not keep the daemon from fencing at others


async def find_lost_moves(store: Store, tenancy: Tenancy, mark: DatabaseMark) -> str:
    """Return why the database lacks writes, by the descriptions at the leaves' ports; or ""."""
    leaves = sorted(
        n.id
        for n in await store.nodes.list()
        if n.kind is NodeKind.SWITCH and n.state is not State.RETIRED
    )
    slots = asyncio.Semaphore(LEAVES_MAX)
    labels: dict[str, PortLabel] = {}
    silent = set(leaves)

    async def look(leaf: str) -> None:
        async with slots:
            read: Mapping[str, PortLabel] | Blocker = await tenancy.read_labels(leaf)
        if not isinstance(read, Blocker):
            silent.discard(leaf)
            labels.update({f"{leaf}/{port}": label for port, label in read.items()})

    try:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*map(look, leaves))
    except TimeoutError:
        pass
    if silent:
        names = ", ".join(sorted(silent)[:8])
        log.warning("%d leaves gave no port descriptions: %s", len(silent), names)
    # rows are read after the ports: a row is written before its ports move
    epochs = {n.id: n.generation for n in await store.nodes.list()}
    epochs |= {n.id: n.generation for n in await store.nodes.list_set_aside()}
    return find_newer_labels(labels, epochs, mark)
