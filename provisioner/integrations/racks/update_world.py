"""What an update of racks needs of the world: how each unit is reached, and who uses it now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, cast

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.walk import Walk
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.campaign_run import Outcome
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.membership import UnitReading
from provisioner.integrations.racks.nvue import NvosClient
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.integrations.racks.update_packages import Package
from provisioner.integrations.racks.update_steps import Nvos
from provisioner.integrations.racks.update_trays import list_versions
from provisioner.integrations.racks.water import UnitWater
from provisioner.integrations.racks.water_commands import Racked, switch_wet_off
from provisioner.integrations.racks.water_file import SharedWater, WaterStore
from provisioner.model.inventory import Moisture, Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, BmcTransport, PortError, SwitchAddress, SwitchTransport
from provisioner.quirks import Quirk

POLL_S = 30.0  # shorter than any outage that has to be seen: a BMC is away for 100 s at least
ROUNDS_MAX = 20_000  # of a domain: some days; it takes hours

Ended = TypeVar("Ended")
Told = Callable[[Outcome, Collection[str], Mapping[str, str]], Awaitable[None]]
Admit = Callable[[], Awaitable[Blocker | None]]  # what a push and a reset ask before they are sent


class Asked(Protocol):
    """Tells who uses trays."""

    async def __call__(self, names: Collection[str], *, hold: bool) -> Mapping[str, str | None]: ...


async def _admit_nothing() -> Blocker | None:
    return Blocker(
        reason=Reason.OUR_BUG,
        subject="rack",
        detail="a client that only reads was asked to write",
        unblock="Report it.",
    )


@dataclass
class Update:
    """What an update needs of the world."""

    plan: RackPlan
    asked: CampaignFile
    folder: Path  # where the packages' files are
    bmcs: BmcTransport
    switches: SwitchTransport
    addresses: Mapping[str, BmcAddress]
    nvos: Mapping[str, SwitchAddress]
    factory: Mapping[str, SwitchAddress]  # the same, with the password that NVOS is delivered with
    water: Path
    now: Callable[[], float]
    building: Path | None = None
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    say: Callable[[str], None] = lambda _: None
    software: dict[str, Quirk] = field(default_factory=dict)  # of each BMC that answered
    readers: dict[str, Redfish] = field(default_factory=dict)  # they know where detectors are
    rounds_max: int = ROUNDS_MAX
    poll_s: float = POLL_S
    who_uses: Asked | None = None  # None: as the campaign says
    grace_s: float = 0.0  # from the begin of a drain until it ends as held, for its tenants

    halted: Callable[[], bool] = lambda: False  # a person wants nothing new to be begun
    held: SharedWater = field(default_factory=SharedWater)  # with other loops of this process
    _placed: tuple[RackPlan, dict[str, tuple[PlannedRack, PlannedUnit]]] | None = None
    tell: Told | None = None  # each round: how it stands, the domains that are out, reasons

    async def read_tenants(
        self, names: Collection[str] = (), *, hold: bool = False
    ) -> Mapping[str, str | None]:
        """Return who uses trays now, "" for nobody; None: nobody can tell. No name: all.

        `hold`: keep everybody else from those that nobody uses, from now on.
        """
        units = (unit for rack in self.plan.racks for unit in rack.units)
        wanted = list(names) or [u.name for u in units if u.kind is Kind.COMPUTE_TRAY]
        if self.who_uses is not None:
            told = await self.who_uses(wanted, hold=hold)
        else:
            told = {name: state.tenant for name, state in self.asked.units.items()}
        return {name: told.get(name) for name in wanted}

    def find(self, name: str) -> tuple[PlannedRack, PlannedUnit]:
        """Return a unit of the plan with its rack."""
        if self._placed is None or self._placed[0] is not self.plan:
            places = {u.name: (r, u) for r in self.plan.racks for u in r.units}
            self._placed = (self.plan, places)
        return self._placed[1][name]

    async def client(self, name: str, admit: Admit = _admit_nothing) -> Redfish:
        """Return a client of a unit's BMC, which knows its software once that has answered."""
        address = self.addresses[name]
        if name not in self.software:
            try:
                root = await Walk(self.bmcs, address, quirks.UNKNOWN).read_root()
            except PortError:
                root = {}
            if not root:
                return Redfish(self.bmcs, address, quirks.UNKNOWN, pause=self.pause, admit=admit)
            self.software[name] = quirks.identify(root)
        return Redfish(self.bmcs, address, self.software[name], pause=self.pause, admit=admit)

    def nvos_client(self, name: str) -> NvosClient | None:
        ours = self.nvos.get(name)
        return None if ours is None else NvosClient(self.switches, ours, self.factory.get(name))

    def packages(self, kind: Kind, component: str = "") -> list[Package]:
        """Return the package of a component, or those of all components that have a target."""
        own = self.asked.packages.get(kind, {})
        wanted = [component] if component else list(self.asked.targets.get(kind, {}))
        return [own[each] for each in wanted if each in own]

    def open_rack(self, rack: PlannedRack, store: WaterStore) -> Racked:
        """Return a rack with its water, to be looked at and switched."""
        return Racked(
            rack,
            self.bmcs,
            self.addresses,
            store,
            self.building,
            pause=self.pause,
            plan=self.plan,
            clients=self.readers,
        )

    async def read_water(self, unit: PlannedUnit) -> UnitReading:
        """Read a unit's detectors and its power, and nothing else: this is asked each round.

        Where they are is looked for again behind each silence: another firmware may answer then.
        """
        client = self.readers.get(unit.name) or await self.client(unit.name)
        try:
            leaks = await client.read_leak_detectors()
        except PortError as error:
            self.readers.pop(unit.name, None)
            return UnitReading(None, unread=f"{error.reason}: {error}")
        if unit.name in self.software:
            self.readers[unit.name] = client
        try:
            power = (await client.power()).value
        except PortError:
            power = Power.UNKNOWN.value  # what is wet counts, and is forced off
        return UnitReading(unit.kind, power=power, leaks=leaks)

    def know(self, before: Update) -> None:
        """Take over what an earlier one knows of the BMCs that have the same address and login."""
        same = {n for n, one in self.addresses.items() if before.addresses.get(n) == one}
        self.software |= {n: one for n, one in before.software.items() if n in same}
        self.readers |= {n: one for n, one in before.readers.items() if n in same}

    async def read_running(self, unit: PlannedUnit) -> dict[str, str] | None:
        """Return version by id as a unit shows it now; None: it was not read."""
        try:
            if unit.kind is Kind.NVLINK_SWITCH:
                nvos = self.nvos_client(unit.name)
                view = await nvos.read("") if nvos is not None else None
                return dict(view.versions) if view and view.nvos is Nvos.OK else None
            if unit.name not in self.addresses:
                return None
            client = await self.client(unit.name)
            return list_versions(await client.read_firmware(unit.name, unit.name)) or None
        except PortError:
            return None


async def wait_all(asked: Iterable[Awaitable[Ended]]) -> list[Ended]:
    """Wait until each has ended, and only then raise the first failure: none goes on alone."""
    ended = await asyncio.gather(*asked, return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException):
            raise one
    return cast(list[Ended], ended)


def is_wet(reading: UnitReading) -> bool:
    """Return whether a detector of a unit shows coolant."""
    return any(one.moisture is Moisture.WET for one in reading.leaks)


@contextlib.asynccontextmanager
async def follow_offs() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Wait at the end for each Off that was begun: whoever held the file let go of it by then."""
    offs: list[asyncio.Task[None]] = []
    try:
        yield offs
    except asyncio.CancelledError:
        for task in offs:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*offs, return_exceptions=True)
    await wait_all(offs)


async def keep_dry(
    update: Update, racked: Racked, offs: list[asyncio.Task[None]] | None = None
) -> Mapping[str, UnitWater]:
    """Look at the water of a rack, store it, and force off what is wet and on.

    What is seen wet waits for no other unit of the rack: one that is mute takes minutes. `offs`
    gets the Offs that were begun, of what is stored as wet by then; None: they are waited for.
    """
    begun: dict[str, asyncio.Task[None]] = {}

    async def read(unit: PlannedUnit) -> UnitReading:
        reading = await update.read_water(unit)
        if is_wet(reading):
            begun[unit.name] = asyncio.create_task(put_off(update, racked, unit.name, reading))
        return reading

    try:
        known = await racked.look(read)
    except BaseException:
        for task in begun.values():
            task.cancel()
        raise
    held = {name: one for name, one in known.items() if one.latched and name not in begun}
    left = {name: racked.readings[name] for name in held if name in racked.readings}
    begun |= {
        name: asyncio.create_task(switch_off(update, racked, {name: known[name]}))
        for name, reading in left.items()
        if reading.power != "Off"
    }
    if offs is None:
        await wait_all(begun.values())
    else:
        offs += begun.values()
    return known


async def put_off(update: Update, racked: Racked, name: str, reading: UnitReading) -> None:
    """Store that a unit is wet, and then force it off unless it is."""
    known = await racked.store_wet(name, reading)
    if reading.power != "Off":
        await switch_off(update, racked, known)


async def switch_off(update: Update, racked: Racked, wet: Mapping[str, UnitWater]) -> None:
    """Force off what is stored as wet, whatever runs on it: coolant first."""
    update.say(f"coolant in {', '.join(wet)}: forced off")
    for failed in await switch_wet_off(racked, wet):
        update.say(f"not off: {failed.subject}: {failed.detail}")
