"""`Partitions` of a daemon that only observes: it holds readings of UFM alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.adapters.read_only.refusals import refuse_act
from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Tenant
from provisioner.ports import FabricDelta, Member
from provisioner.ports.isolation import PartitionReads


class ReadOnlyPartitions:
    """Partitions over `PartitionReads`: no change has a method to leave by."""

    def __init__(self, reads: PartitionReads) -> None:
        self._reads = reads

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        return await self._reads.delta(tenants, only)

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker:
        return await self._reads.where(members, tenants)

    async def read_members(
        self, tenants: Sequence[Tenant]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        return await self._reads.read_members(tenants)

    async def list_partitions(self, tenants: Sequence[Tenant]) -> FabricPartitions:
        return await self._reads.list_partitions(tenants)

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        raise refuse_act("UFM", "a change of its partitions")

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        raise refuse_act("UFM", f"a move of {len(members)} ports into the partition of {vrf}")

    async def close(self) -> None:
        await self._reads.close()
