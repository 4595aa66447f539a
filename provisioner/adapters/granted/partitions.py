"""`Partitions` behind the gate of capabilities: GUIDs of adopted nodes move only where granted.

A move concerns the adopted nodes that have one of its GUIDs. Partitions are made empty and deleted
empty, which concerns the adopted nodes whose tenant's they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from provisioner.adapters.granted.hosts import admit_act
from provisioner.adapters.read_only.partitions import ReadOnlyPartitions
from provisioner.model.adoption.capability import Capability
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Tenant
from provisioner.planning.release.capabilities import GRANT_REMEDY
from provisioner.ports import FabricDelta, Member, NotGranted
from provisioner.ports.isolation import Partitions
from provisioner.runtime.capability_gate import CapabilityGate


class GrantedPartitions(ReadOnlyPartitions):
    """`Partitions` whose every change passes the gate; a refusal is a blocker, as of a device."""

    def __init__(self, partitions: Partitions, gate: CapabilityGate) -> None:
        super().__init__(partitions)
        self._partitions = partitions
        self._gate = gate

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        nodes = [n for n in await self._gate.list_guarded() if n.vrf in delta.networks]
        act = f"partitions: {'; '.join(line for step in delta.steps for line in step.lines)}"
        try:
            async with admit_act(self._gate, nodes, Capability.ISOLATION, act[:300]):
                return await self._partitions.bring(delta)
        except NotGranted as refused:
            return (_refuse("partitions", refused),)

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        guids = {member.name for member in members}
        nodes = [n for n in await self._gate.list_guarded() if _has(n, guids)]
        act = f"move {len(guids)} InfiniBand ports into the partition of {vrf}"
        try:
            async with admit_act(self._gate, nodes, Capability.ISOLATION, act):
                return await self._partitions.place(members, vrf, tenants)
        except NotGranted as refused:
            return (_refuse(nodes[0].id, refused),)


def _has(node: Node, guids: Collection[str]) -> bool:
    return any(port.guid in guids for port in node.ports if port.guid)


def _refuse(subject: str, refused: NotGranted) -> Blocker:
    return Blocker(
        reason=refused.reason, subject=subject, detail=str(refused)[:400], unblock=GRANT_REMEDY
    )
