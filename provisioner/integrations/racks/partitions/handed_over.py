"""A tray's NVLink partition as a part of its handover and its reclaim: a `Membership`.

A node whose BMC is a planned tray's comes into the partition TENANT.DOMAIN after its ports are in
its tenant's network, and its GPUs leave every partition before it counts as back. Nothing is
remembered but what the manager owes (`owed_acts`): before each request all operations of the
manager have ended, and two looks ask for the same act; two looks that ask for none are the proof,
and a killed daemon's successor does the same.
The manager's API has no fence: what a predecessor sent last may come late. So the second look of a
proof lies LATE_S after anybody else could have sent anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.integrations.racks.duty.node_holds import find_tenant, place_nodes
from provisioner.integrations.racks.fabric.fabric_proof import find_lack
from provisioner.integrations.racks.fabric.link_gate import FAULTS_MAX, judge_domain, judge_nodes
from provisioner.integrations.racks.fabric.switch_looks import (
    NVOS_USER,
    OURS,
    Login,
    build_login,
    look_at_switches,
)
from provisioner.integrations.racks.identity import Kind, find_tray_model
from provisioner.integrations.racks.membership import find_other_serial
from provisioner.integrations.racks.partitions.drift import find_drift
from provisioner.integrations.racks.partitions.nmx_client import (
    LOOKS_MAX,
    POLL_S,
    VARIABLE,
    NmxClient,
)
from provisioner.integrations.racks.partitions.owed_acts import OwedActs
from provisioner.integrations.racks.partitions.tenant_partitions import (
    PartitionPlan,
    build_blocker,
)
from provisioner.integrations.racks.partitions.tray_plan import Tray, is_settled, plan_tray
from provisioner.integrations.racks.partitions.unset_partitions import UnsetPartitions
from provisioner.integrations.racks.plan import RackPlan, Stamp, read_plan, read_stamp
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.ports import PortError, Secret, SwitchAddress, SwitchTransport
from provisioner.ports.isolation import Drift, Membership
from provisioner.runtime import permit
from provisioner.settings import Settings

NAME = "nvlink/partitions"
TURN_S = 600.0  # after which no further round begins: other trays wait for this one
LATE_S = 30.0  # UNACKED_S of a request on its way, and as much for a manager to list what it took
ROUNDS_MAX = 16  # a tray is in few partitions, and each act takes two looks; others may write, too


class TrayPartitions:
    """The partitions of all planned trays, through one manager."""

    name = NAME
    check = GateCheck.NVLINK_PARTITION

    def __init__(
        self,
        file: Path,
        client: NmxClient,
        pause: Callable[[float], Awaitable[None]],
        switches: SwitchTransport,
        login: Login,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`file`: the plan of racks, in the folder that keeps what is owed. `switches`: to NVOS of
        its switches, with their `login`.
        """
        self._file = file
        self._client = client
        self._owed = OwedActs(file.parent, client, wall)
        self._pause = pause
        self._switches = switches
        self._login = login
        self._plan: tuple[Stamp, RackPlan] | None = None

    async def concerns(self, node: Node, seen: Inventory | None) -> bool:
        """Return whether a node is a tray, by the plan or by what it is, or that cannot be told."""
        if node.kind is not NodeKind.HOST:
            return False
        try:
            plan = await self._read_plan()
        except (InputError, OSError):
            return True
        return bool(place_nodes(plan, [node]) or _find_unplanned(plan, node, seen))

    async def admit(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        """Bring a tray into its tenant's partition, and out of every other one."""
        tray = await self._find_tray(node, nodes, seen, node.tenant)
        if isinstance(tray, Tray):
            if (lack := await self._find_lack(tray, seen)) is not None:
                return (lack,)
            if sick := await self._find_sick(tray):
                return sick
        return await self._bring(tray)

    async def expel(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        """Take a tray that may have served out of every partition."""
        if not find_tenant(node) and self.check not in node.beside:
            return ()  # no tenant was given its GPUs; a handover brings them where they belong
        return await self._bring(await self._find_tray(node, nodes, seen, ""), node.id)

    async def judge(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[GateRow, ...]:
        """Return whether its tenant's partition has it, by the manager's two lists."""
        tray = await self._find_tray(node, nodes, seen, node.tenant)
        if tray is None:
            return ()
        if isinstance(tray, Blocker):
            return (_row(node.id, RowVerdict.UNKNOWN, tray.detail),)
        if (lack := await self._find_lack(tray, seen)) is not None:
            return (_row(tray.partition, RowVerdict.UNKNOWN, lack.detail),)
        try:
            sick = await self._find_sick(tray)
            planned = await self._look(tray)
        except PortError as error:
            return (_row(tray.partition, RowVerdict.UNKNOWN, str(error)),)
        if blockers := (*sick, *planned.blockers):
            return (_row(tray.partition, RowVerdict.UNKNOWN, str(blockers[0])),)
        wrong = [*map(str, planned.acts), *planned.wrong]
        said = wrong[0] if wrong else f"all GPUs of {tray.unit.name}, and no other tenant's"
        return (_row(tray.partition, RowVerdict.FAIL if wrong else RowVerdict.PASS, said),)

    async def _bring(self, tray: Tray | Blocker | None, leaves: str = "") -> tuple[Blocker, ...]:
        if not isinstance(tray, Tray):
            return () if tray is None else (tray,)
        seen: PartitionPlan | None = None
        wrong: Sequence[str] = ()
        looks = 0
        begun = self._client.now()
        until = begun + TURN_S
        # a daemon that shares its turns may have it from one that died a moment ago
        shared = begun if permit.get_scope().turns else 0.0
        for _ in range(ROUNDS_MAX):
            if self._client.now() >= until:
                detail = f"the manager is too slow: no end within {TURN_S / 60:.0f} minutes"
                return (build_blocker(tray.unit.name, detail),)
            if (busy := await self._client.wait_idle()) is not None:
                return (busy,)
            if (late := await self._owed.settle(tray.concerns, leaves)) is not None:
                return (late,)
            looked_at = self._client.now()
            sure_at = LATE_S + max(shared, self._client.unsure_at)
            planned = await self._look(tray)
            if planned.blockers:
                return planned.blockers
            wrong = planned.wrong
            looks = looks + 1 if wrong else 0
            again = seen == planned  # nothing is sent, and nothing counts as so, by one look
            if not planned.acts and (looks >= LOOKS_MAX if wrong else again):
                if wrong or looked_at >= sure_at:
                    break
                await self._pause(sure_at - looked_at)
                continue
            if planned.acts and again:
                if (failed := await self._owed.make(planned.acts[0])) is not None:
                    return (failed,)
                seen = None
                continue
            seen = planned
            await self._pause(POLL_S)
        else:
            detail = "its partitions change while they are made"
            return (build_blocker(tray.unit.name, detail),)
        return tuple(build_blocker(tray.unit.name, each) for each in wrong)

    async def _find_lack(self, tray: Tray, seen: Inventory | None) -> Blocker | None:
        """Return why the fabric of a tray's domain is not proved to carry a load."""
        domain = tray.domain
        folder = self._file.parent
        lack = await asyncio.to_thread(
            find_lack, folder, tray.plan, domain, time.time(), tray.unit.name, seen
        )
        if not lack:
            return None
        return Blocker(
            reason=Reason.FABRIC,
            subject=domain or tray.unit.name,
            detail=lack,
            unblock=f"Prove it over all trays of the domain: `provisioner rack fabric RACKS.yaml "
            f"{tray.rack.name} FOLDER --imex --nccl --keep RACKS_FOLDER` (docs/racks.md).",
        )

    async def _find_sick(self, tray: Tray) -> tuple[Blocker, ...]:
        """Return what speaks against the switches of its domain by one look. Raises PortError."""
        views = await look_at_switches(tray.plan, tray.domain, self._switches, self._login)
        nodes = await self._client.look_at_switches()
        faults = judge_domain(tray.plan, tray.domain, views)
        faults += judge_nodes(tray.plan, tray.domain, nodes)
        more = build_blocker(tray.domain, f"and {len(faults) - FAULTS_MAX} more (`rack fabric`)")
        return faults if len(faults) <= FAULTS_MAX else (*faults[:FAULTS_MAX], more)

    async def _look(self, tray: Tray) -> PartitionPlan:
        return plan_tray(tray, *await self._client.look())

    async def _find_tray(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None, tenant: str
    ) -> Tray | Blocker | None:
        """Return the planned tray that a node is, None where it is none."""
        if node.kind is not NodeKind.HOST:
            return None
        try:
            plan = await self._read_plan()
        except (InputError, OSError) as error:
            return Blocker(
                reason=Reason.PRECONDITION,
                subject=node.id,
                detail=f"whether it is a rack's tray cannot be told: {error}"[:300],
                unblock="Mend the plan of racks (`provisioner rack check`), or unset "
                "`racks_nvlink_manager`.",
            )
        rows = {one.id: one for one in nodes} | {node.id: node}
        placed = place_nodes(plan, list(rows.values()))
        found = [
            (rack, unit)
            for rack in plan.racks
            for unit in rack.units
            if unit.kind is Kind.COMPUTE_TRAY
            and unit.name in placed
            and placed[unit.name][0].id == node.id
        ]
        if len(found) > 1:
            return build_blocker(node.id, "its BMCs are those of several planned trays")
        if not found:
            return _find_unplanned(plan, node, seen, placed)
        if why := find_other_serial(found[0][1], (seen.system_serial or "") if seen else ""):
            return Blocker(
                reason=Reason.NOT_EXPECTED,
                subject=node.id,
                detail=f"{found[0][1].name}: {why}: another machine may stand at its address"[:300],
                unblock="Look which tray answers there; correct its address or serial in the plan.",
            )
        holders = {unit: find_tenant(other) for unit, (other, _) in placed.items()}
        settled = frozenset(
            unit
            for unit, (other, _) in placed.items()
            if is_settled(other) and self.check in other.beside
        )
        return Tray(plan, *found[0], tenant, holders, settled=settled)

    async def find_drift(
        self, nodes: Sequence[Node], admitted: Callable[[Node], Awaitable[bool]]
    ) -> Mapping[str, Drift]:
        """Return by node where one look at the manager's lists shows otherwise than its row."""
        plan = await self._read_plan()
        # beside the event loop: a large site has some 100,000 addresses
        found = await asyncio.to_thread(place_nodes, plan, nodes)
        placed = {unit: node for unit, (node, _) in found.items()}
        owed = {
            node.id
            for node in placed.values()
            if is_settled(node) and (self.check in node.beside or await admitted(node))
        }
        lists = await self._client.look()
        return await asyncio.to_thread(find_drift, plan, placed, owed, *lists)

    async def _read_plan(self) -> RackPlan:
        stamp = await asyncio.to_thread(read_stamp, self._file)
        if self._plan is None or self._plan[0] != stamp:
            self._plan = (stamp, await asyncio.to_thread(read_plan, self._file))
        return self._plan[1]


def _find_unplanned(
    plan: RackPlan, node: Node, seen: Inventory | None, placed: Container[str] = ()
) -> Blocker | None:
    """Return why a host whose BMC no planned tray has is not left alone: it may be one of them."""
    model = find_tray_model(seen)
    if not model or node.id in plan.outside:
        return None
    where = next((ref.url for ref in node.bmcs if ref.kind == "host"), "no address")
    units = (unit for rack in plan.racks for unit in rack.units)
    free = [u.name for u in units if u.kind is Kind.COMPUTE_TRAY and u.name not in placed]
    left = f"; without a node: {', '.join(free[:4])}" if free else ""
    return Blocker(
        reason=Reason.CANNOT_TELL,
        subject=node.id,
        detail=f"it is a tray of an NVLink rack ({model}), and no planned tray has its BMC's "
        f"address {where}{left}"[:300],
        unblock="Write its tray's `bmc` in the plan of racks as the node has it; a host that "
        "stands in no rack goes under `outside` there.",
    )


def _row(subject: str, verdict: RowVerdict, seen: str) -> GateRow:
    check = GateCheck.NVLINK_PARTITION
    return GateRow(check=check, subject=subject, verdict=verdict, seen=seen[:300])


@asynccontextmanager
async def open_memberships(
    settings: Settings, environ: Mapping[str, str], ca_file: Path | None
) -> AsyncIterator[Sequence[Membership]]:
    """Yield the trays' partitions; where no manager is set, what holds those that may be in one.

    Raises InputError.
    """
    if not settings.racks_nvlink_manager:
        yield (UnsetPartitions(Path(settings.racks_folder)),)
        return
    secret = environ.get(VARIABLE, "")
    if not secret:
        remedy = f"Set {VARIABLE} in the daemon's environment."
        raise InputError("settings", "racks_nvlink_manager", "no password is given", remedy)
    user = settings.racks_nvlink_user
    address = SwitchAddress(settings.racks_nvlink_manager, user, Secret(secret))
    transport = SwitchHttps(ca_file=ca_file)
    switches = SwitchHttps()  # NVOS' certificates are the system's authorities'
    try:
        client = NmxClient(transport, address, asyncio.sleep)
        plan = Path(settings.racks_folder) / "racks.yaml"
        login = build_login(environ.get(NVOS_USER, "admin"), environ.get(OURS, ""))
        yield (TrayPartitions(plan, client, asyncio.sleep, switches, login),)
    finally:
        await transport.close()
        await switches.close()
