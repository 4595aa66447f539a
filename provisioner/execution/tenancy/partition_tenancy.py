"""A node's ports where InfiniBand partitions keep tenants apart: `Tenancy` by GUIDs, through UFM.

Ports with a `guid` are placed by `Isolation`, which takes a port out of every partition before it
enters the next one; ports without one (north-south, Ethernet) remain the leaves' affair. Towards a
customer the partitions come last and towards maintenance both are tried, so that a node is never
half a customer's on purpose. Every result is a state that was read back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.execution.tenancy.leaf import LeafOutcome, Objections
from provisioner.execution.tenancy.memberships import Memberships
from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.execution.tenancy.tenancy import MoveOutcome, Tenancy
from provisioner.model.host_filter import DatabaseMark, Door, FilterState, PortLabel
from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, LeafState, RowVerdict
from provisioner.model.switch import TenantPort
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement
from provisioner.planning.release.port_isolation import find_misplaced_ports
from provisioner.ports import Isolation, Member
from provisioner.store.sql_store import SqlStore


class PartitionTenancy(Tenancy):
    """As `Tenancy`, which keeps the ports on Ethernet leaves."""

    def __init__(
        self,
        leaves: Tenancy,
        partitions: Isolation,
        store: SqlStore,
        spaces: TenantSpaces | None = None,
        memberships: Memberships | None = None,
    ) -> None:
        super().__init__(leaves.site, store, leaves.plan, spaces, memberships)
        self._leaves_only = leaves
        self._partitions = partitions
        self._rows = store

    def name_ports(self, mark: DatabaseMark | None) -> None:
        """Describe moved ports of the Ethernet leaves; a partition has no descriptions."""
        super().name_ports(mark)
        self._leaves_only.name_ports(mark)

    async def read(self, ports: Sequence[Port]) -> tuple[PortPlacement, ...] | Blocker:
        """Return the network of every port; one in two is named twice, one in none with ""."""
        return self.find_unjudged(ports) or await self.read_group(ports)

    def find_unjudged(self, ports: Sequence[Port]) -> Blocker | None:
        """Return the refusal of a node without a GUID: it has no partition to be judged by."""
        return None if _parted(ports)[1] else _no_guid()

    def group_ports(self, ports: Sequence[Port]) -> Mapping[str, Sequence[Port]]:
        """Return ports by the device that lists their networks: their leaf, or UFM with ""."""
        plain, guids = _parted(ports)
        return {**({"": list(guids)} if guids else {}), **self._leaves_only.group_ports(plain)}

    async def read_group(self, ports: Sequence[Port]) -> tuple[PortPlacement, ...] | Blocker:
        """Return the same of ports that are no whole node's: there may be no GUID among them."""
        plain, guids = _parted(ports)
        placements: tuple[PortPlacement, ...] = ()
        if plain:
            read = await self._leaves_only.read(plain)
            if isinstance(read, Blocker):
                return read
            placements = read
        if not guids:
            return placements
        where = await self._partitions.where(list(guids.values()), await self._rows.tenants.list())
        if isinstance(where, Blocker):
            return where
        return (*placements, *_placements(guids, where))

    async def tenant_ports(
        self, switch: str, site_vrfs: Collection[str]
    ) -> Mapping[str, TenantPort] | Blocker:
        """Return every port of one Ethernet leaf that is, or will be, in another VRF."""
        return await self._leaves_only.tenant_ports(switch, site_vrfs)

    async def filter_state(self, switch: str) -> FilterState | Blocker:
        """Return the filter between hosts on one Ethernet leaf."""
        return await self._leaves_only.filter_state(switch)

    async def keep_apart(
        self, switch: str, interfaces: Sequence[str], doors: Sequence[Door]
    ) -> LeafOutcome:
        """Put the filter between hosts onto ports of one Ethernet leaf."""
        return await self._leaves_only.keep_apart(switch, interfaces, doors)

    async def read_labels(self, switch: str) -> Mapping[str, PortLabel] | Blocker:
        """Return what our descriptions at one Ethernet leaf's ports say."""
        return await self._leaves_only.read_labels(switch)

    async def fence(self, ports: Sequence[Port], node: Node | None = None) -> MoveOutcome:
        """Bring ports of Ethernet leaves into the maintenance VRF."""
        return await self._leaves_only.fence(_parted(ports)[0], node)

    async def look(self, ports: Sequence[Port]) -> dict[str, LeafState] | Blocker:
        """Return the states of the Ethernet ports' leaves; UFM has no such gate."""
        return await self._leaves_only.look(_parted(ports)[0])

    async def partitions(self, ports: Sequence[Port], vrf: str) -> tuple[GateRow, ...]:
        """Return each port in the tenant's partition, and in no other one, as UFM lists it now."""
        if not ports:
            return ()
        members = {p: Member("", p.guid) for p in ports}
        where = await self._partitions.where(
            list(members.values()), await self._rows.tenants.list()
        )
        if isinstance(where, Blocker):
            why = where.detail[:300]
            return tuple(_row(GateCheck.PORT_VRF, p, RowVerdict.UNKNOWN, why) for p in ports)
        rows = []
        for port, member in members.items():
            foreign = sorted(where[member] - {vrf})
            inside = RowVerdict.PASS if vrf in where[member] else RowVerdict.FAIL
            alone = RowVerdict.FAIL if foreign else RowVerdict.PASS
            rows.append(_row(GateCheck.PORT_VRF, port, inside, f"the partition of {vrf}"))
            rows.append(_row(GateCheck.ONE_VRF, port, alone, " and ".join(foreign)[:300]))
        return tuple(rows)

    async def deny(self, ports: Sequence[Port], vrf: str) -> tuple[Blocker, ...]:
        """Let nothing through the Ethernet ports; a partition is left at once, and needs none."""
        return await self._leaves_only.deny(_parted(ports)[0], vrf)

    async def quiet(self, ports: Sequence[Port], limit_s: float) -> bool:
        """Wait until nothing goes out of the Ethernet ports."""
        return await self._leaves_only.quiet(_parted(ports)[0], limit_s)

    async def move_ports(
        self,
        ports: Sequence[Port],
        vrf: str,
        *,
        look_for_leaks: bool = True,
        objections: Objections | None = None,
        node: Node | None = None,
    ) -> MoveOutcome:
        """Bring exactly these ports into `vrf` and out of every other network, and prove it."""
        assert vrf
        plain, guids = _parted(ports)
        if not guids:
            return MoveOutcome(blockers=(_no_guid(),))
        homeward = vrf == MAINTENANCE_VRF
        moved = MoveOutcome(persisted=True)
        if plain:
            moved = await self._leaves_only.move_ports(
                plain, vrf, look_for_leaks=look_for_leaks, objections=objections, node=node
            )
        if moved.blockers and not homeward:
            return moved
        if not homeward and objections is not None and (objected := tuple(await objections())):
            return MoveOutcome((), moved.revisions, objected)
        tenants = await self._rows.tenants.list()
        blockers = [
            *moved.blockers,
            *await self._partitions.place(list(guids.values()), vrf, tenants),
        ]
        placements = await self.read(ports)
        if isinstance(placements, Blocker):
            return MoveOutcome((), moved.revisions, (*blockers, placements))
        blockers = blockers or list(find_misplaced_ports(ports, placements, vrf))
        return MoveOutcome(
            placements, moved.revisions, tuple(blockers), persisted=not blockers and moved.persisted
        )

    async def close(self) -> None:
        """Stop the leaves' writers. The caller that opened the partitions closes them."""
        await self._leaves_only.close()
        await super().close()


def _parted(ports: Sequence[Port]) -> tuple[list[Port], dict[Port, Member]]:
    plain = [p for p in ports if not p.guid]
    return plain, {p: Member("", p.guid) for p in ports if p.guid}


def _placements(
    guids: Mapping[Port, Member], where: Mapping[Member, frozenset[str]]
) -> list[PortPlacement]:
    return [
        PortPlacement(switch=port.switch, interface=port.interface, vrf=name)
        for port, member in guids.items()
        for name in sorted(where[member]) or [""]
    ]


def _row(check: GateCheck, port: Port, verdict: RowVerdict, seen: str) -> GateRow:
    return GateRow(check=check, subject=port.guid, verdict=verdict, seen=seen)


def _no_guid() -> Blocker:
    return Blocker(
        reason=Reason.ISOLATION,
        subject="ports",
        detail="isolation is by InfiniBand partitions, and no port of this node has a GUID",
        unblock="Give `guid` to its ports in the expected-hardware list.",
    )
