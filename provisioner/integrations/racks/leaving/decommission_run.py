"""Takes units of racks out of service for good: proved twice, journaled, resumed by looking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from provisioner.integrations.racks.identity import Kind, Place
from provisioner.integrations.racks.leaving.decommission import (
    DECOMMISSION,
    LEFT,
    NVOS_RESET,
    OFF,
    Disks,
    Seen,
    find_missing,
    list_acts,
    list_trays,
)
from provisioner.integrations.racks.membership import find_misplaced
from provisioner.integrations.racks.nvue import NvosClient
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.integrations.racks.partitions.owed_acts import OwedActs
from provisioner.integrations.racks.partitions.tray_plan import Tray, plan_tray
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit
from provisioner.integrations.racks.reading import read_switch_location, read_unit
from provisioner.integrations.racks.update_log import (
    BEGAN,
    NOTED,
    TOLD,
    VOID,
    ActLog,
    Line,
    UpdateLog,
)
from provisioner.integrations.racks.update_steps import Nvos
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.racks.water_file import wait_for_water
from provisioner.ports import PortError, Unreachable
from provisioner.ports.switch import SwitchRefused

POLLS_MAX = 60  # of NVOS behind its reset: half an hour; how long it takes is not published
SETTLE_S = 600.0  # a reset that shows no effect for so long had none: assumed
RESETS_MAX = 3


@dataclass
class Decommission:
    """One run over one journal. `journals` tells whose writes to a unit's domain are not proved."""

    update: Update
    log: UpdateLog
    manager: NmxClient
    disks: Mapping[str, Disks]
    journals: Callable[[PlannedUnit], Sequence[str]]
    owed: OwedActs  # what the manager may have and does not list

    def has_left(self, name: str) -> bool:
        return self._act(name).noted(LEFT)

    def _act(self, name: str) -> ActLog:
        return self.log.of(f"{name}/{DECOMMISSION}")

    def _is_reset(self, name: str) -> bool:
        return self._act(name).told(NVOS_RESET) == "factory"

    async def find_missing(self, rack: PlannedRack, unit: PlannedUnit) -> list[str]:
        """Look once, and return what is not proved of a unit."""
        seen = await self._look(rack, unit)
        return list(find_missing(unit, seen, self.disks.get(unit.name, Disks())))

    async def take(self, rack: PlannedRack, unit: PlannedUnit) -> str:
        """Take one unit out of service; return why not, "" for done."""
        if self.has_left(unit.name):
            return ""
        send = {NVOS_RESET: self._reset, OFF: self._cut}
        for act in list_acts(unit):
            for _ in range(2):  # what cannot be undone is not sent upon one look
                if missing := await self.find_missing(rack, unit):
                    return "; ".join(missing)
            if why := await send[act](rack, unit):
                return why
        if not list_acts(unit) and (missing := await self.find_missing(rack, unit)):
            return "; ".join(missing)
        await self._write(unit, NOTED, LEFT)
        return ""

    async def _look(self, rack: PlannedRack, unit: PlannedUnit) -> Seen:
        trays = list_trays(self.update.plan, rack, unit)
        alone = unit.kind is Kind.COMPUTE_TRAY
        powers = {} if alone else {one.name: await self._read_power(one.name) for one in trays}
        nvos = None
        if unit.kind is Kind.NVLINK_SWITCH:
            client = self.update.nvos_client(unit.name)
            if self._act(unit.name).count(NVOS_RESET):
                nvos = Nvos.FACTORY  # it restarts, or is off by now: that is proved elsewhere
            elif client is not None:
                nvos = (await client.read("")).nvos
        staying: list[str] = []
        if unit.kind is Kind.POWER_SHELF:
            others = [u.name for u in rack.units if u.kind is not Kind.POWER_SHELF]
            staying = [name for name in others if not self.has_left(name)]
        return Seen(
            tenants=await self.update.read_tenants([one.name for one in trays]) if trays else {},
            powers=powers,
            partitions=await self._read_partitions(trays),
            journals=self.journals(unit),
            nvos=nvos,
            staying=staying,
            moved=await self._find_moved(rack, unit, nvos),
        )

    async def _find_moved(
        self, rack: PlannedRack, unit: PlannedUnit, nvos: Nvos | None
    ) -> Sequence[str]:
        """Return why what answers at a unit's addresses is not proved to be the planned one. What
        would be reset says itself where it sits.
        """
        if not list_acts(unit):
            return ()
        if unit.name not in self.update.addresses:
            return (f"{unit.name} has no address or login of its BMC",)
        reading = await read_unit(self.update.bmcs, self.update.addresses[unit.name])
        if nvos is Nvos.OK:
            where = self.update.nvos[unit.name]
            told = await read_switch_location(self.update.switches, where)
            if not isinstance(told, Place):
                return (f"the NVOS of {unit.name} does not say where it sits: {told.detail}",)
            reading = replace(reading, places=(*reading.places, told))
        found = find_misplaced(self.update.plan, rack.name, {unit.name: reading}, unit)
        return [f"{one.subject}: {one.detail}" for one in found]

    async def _read_power(self, name: str) -> str:
        if name not in self.update.addresses:
            return ""
        try:
            return (await (await self.update.client(name)).power()).value
        except PortError:
            return ""

    async def _read_partitions(self, trays: Sequence[PlannedUnit]) -> list[str]:
        """Return what is left of trays in NVLink partitions, or why that cannot be told."""
        if not trays:
            return []
        try:
            gpus, partitions = await self.manager.look()
        except PortError as error:
            return [f"the NVLink partitions cannot be read: {error}"]
        told: list[str] = []
        for tray in trays:
            found = Tray(self.update.plan, *self.update.find(tray.name), for_good=True)
            told += await self._find_late(found)
            planned = plan_tray(found, gpus, partitions)
            told += [f"{one.subject}: {one.detail}" for one in planned.blockers]
            told += [f"{tray.name} is in partition {act.name}" for act in planned.acts]
            told += [f"{tray.name}: {each}" for each in planned.wrong]
        return told

    async def _find_late(self, tray: Tray) -> list[str]:
        try:
            late = await self.owed.settle(tray.concerns, tray.unit.name)
        except PortError as error:
            return [f"the NVLink partitions cannot be read: {error}"]
        return [] if late is None else [f"{late.subject}: {late.detail}. {late.unblock}"]

    async def _reset(self, rack: PlannedRack, unit: PlannedUnit) -> str:
        """Have NVOS forget its configuration; done is that it opens with its factory password."""
        if self._is_reset(unit.name):
            return ""
        client = self.update.nvos_client(unit.name)
        assert client is not None  # its NVOS was just read
        said = ""
        for number in range(POLLS_MAX):
            if number:
                await self.update.pause(self.update.poll_s)
            act = self._act(unit.name)
            view = await client.read("")
            said = f"{view.nvos}"
            if view.nvos is Nvos.FACTORY:
                await self._write(unit, TOLD, NVOS_RESET, "factory")
                return ""
            waits = act.count(NVOS_RESET) and act.since(NVOS_RESET, self.update.now()) < SETTLE_S
            if view.nvos is not Nvos.OK or waits:
                continue
            if act.count(NVOS_RESET) >= RESETS_MAX:
                return f"its NVOS was reset {RESETS_MAX} times, and still opens with our password"
            if missing := await self.find_missing(rack, unit):
                return "; ".join(missing)
            if refused := await self._send_reset(client, unit):
                return refused
        return (
            f"its NVOS is {said} behind its reset, and was not seen with its factory password: "
            "look at its console, its address may be another one now"
        )

    async def _send_reset(self, client: NvosClient, unit: PlannedUnit) -> str:
        await self._write(unit, BEGAN, NVOS_RESET)
        try:
            await client.reset_defaults()
        except (PortError, SwitchRefused) as error:
            if not (isinstance(error, Unreachable) and error.maybe_executed):
                await self._write(unit, TOLD, NVOS_RESET, VOID)
                return f"its NVOS refused the reset: {error}"
        return ""

    async def _cut(self, rack: PlannedRack, unit: PlannedUnit) -> str:
        """Force a host off, which may be repeated, and see it off."""
        async with wait_for_water(self.update.water, self.update.pause) as store:
            failed = await self.update.open_rack(rack, store).act(unit, "ForceOff")
        if failed is not None:
            return f"{failed.detail}. {failed.unblock}"
        return ""

    async def _write(self, unit: PlannedUnit, kind: str, what: str, detail: str = "") -> None:
        key = f"{unit.name}/{DECOMMISSION}"
        self.log.write(Line(key, kind, what, self.update.now(), detail))
        await self.log.sync()
