"""Trays whose release brought them into NVLink partitions, while no manager is set any more.

Nothing takes their GPUs out then. Each is held until `racks_nvlink_manager` is set again, or a
person vouches for this one stay of it with its tenant: the word is void for the next one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from provisioner.integrations.racks.duty.approval import read_vouched
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow
from provisioner.ports.isolation import Drift

log = logging.getLogger(__name__)


class UnsetPartitions:
    """A `Membership` that admits nobody, and knows those alone whose rows name it."""

    name = "nvlink/partitions, unset"
    check = GateCheck.NVLINK_PARTITION

    def __init__(self, folder: Path) -> None:
        """`folder`: of racks, where people's words are kept."""
        self._folder = folder

    async def concerns(self, node: Node, seen: Inventory | None) -> bool:
        return self.check in node.beside

    async def admit(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        """Refuse one that may still be in its former tenant's."""
        return (self._refuse(node),) if self.check in node.beside else ()

    async def expel(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        """Hold a tray, unless a person vouches that its GPUs are in no partition."""
        if self.check not in node.beside:
            return ()
        mark = build_stay(node)
        try:
            vouched = await asyncio.to_thread(read_vouched, self._folder, mark)
        except InputError as error:
            log.error("racks: whether somebody vouches for %s cannot be read: %s", node.id, error)
            vouched = {}
        if node.id not in vouched:
            return (self._refuse(node),)
        log.warning(
            "racks: %s is in no partition by a person's word: %s", node.id, vouched[node.id]
        )
        return ()

    async def judge(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[GateRow, ...]:
        return ()

    async def find_drift(
        self, nodes: Sequence[Node], admitted: Callable[[Node], Awaitable[bool]]
    ) -> Mapping[str, Drift] | None:
        return None  # nobody can look; each of them is held by its reclaim

    def _refuse(self, node: Node) -> Blocker:
        return Blocker(
            reason=Reason.CANNOT_TELL,
            subject=node.id,
            detail="its release brought it into an NVLink partition, or began to, and nothing "
            "takes it out of that now: `racks_nvlink_manager` is not set",
            unblock="Set `racks_nvlink_manager` again, at least until it is back. Or take its GPUs "
            "out of every partition by hand, and say so: `provisioner rack vouch "
            f"{self._folder} {build_stay(node)} {node.id} --who YOU --why REASON`.",
        )


def build_stay(node: Node) -> str:
    """Return the name of one stay of a node with a tenant: it began behind its last fence."""
    told = f"{node.id} {node.fenced_at!r} {node.served}".encode()
    return f"nvlink-partition.{hashlib.sha256(told).hexdigest()[:8]}"
