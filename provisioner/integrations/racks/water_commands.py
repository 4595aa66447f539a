"""`provisioner rack water`, `rack dry` and `rack power`: looks, the latch, and acts behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    UserOption,
    build_address,
)
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console, strip_controls
from provisioner.integrations.racks.flash_reading import find_flash
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import build_graph, derive_impact
from provisioner.integrations.racks.membership import (
    CERTAIN,
    UnitReading,
    find_misplaced,
    find_unplaced,
)
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan, read_plan
from provisioner.integrations.racks.reading import read_unit
from provisioner.integrations.racks.water import (
    DRY_LOOKS_MIN,
    TAKING,
    UnitWater,
    WaterState,
    clear_latch,
    find_power_refusals,
    find_wet,
    fold_look,
    forget_look,
    is_news,
    judge_water_in,
)
from provisioner.integrations.racks.water_file import (
    BUILDING,
    WaterStore,
    read_building,
    wait_for_water,
)
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, BmcTransport, PortError, Unreachable

log = logging.getLogger(__name__)
AT_ONCE = 64  # more than a rack has: none waits for one that is mute, or whose power follows
BETWEEN_S = 10.0  # of two looks; a BMC reads its detectors each second
FOLLOW_S = 120.0  # until a power state has followed; trays take up to a minute
ASK_EACH_S = 5.0
ISOLATE_MIN = 2  # leaking units of a rack (infra-controller, docs/operations, leak handling)

PlanFile = Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")]
UnitArgument = Annotated[str, typer.Argument(help="Name of a unit of the plan.")]
WaterOption = Annotated[
    Path, typer.Option("--water", help="File that keeps what was wet. Keep it: it is the latch.")
]


BuildingOption = Annotated[
    Path | None,
    typer.Option(help="What `building-water watch` writes: the rack's own sensors count too."),
]


Reader = Callable[[PlannedUnit], Awaitable[UnitReading]]


class PowerAct(StrEnum):
    """What is done to a unit's power."""

    ON = "on"
    OFF = "off"
    SHUTDOWN = "shutdown"


RESETS = {PowerAct.ON: "On", PowerAct.OFF: "ForceOff", PowerAct.SHUTDOWN: "GracefulShutdown"}


@dataclass
class Racked:
    """One rack, how its BMCs are reached, and the water in it."""

    rack: PlannedRack
    transport: BmcTransport
    addresses: Mapping[str, BmcAddress]
    store: WaterStore
    building: Path | None = None  # what `building-water watch` writes
    pause: Any = asyncio.sleep
    limit_s: float = 180.0
    plan: RackPlan | None = None  # all racks, for whose serial a unit states; None: this one alone
    readings: dict[str, UnitReading] = field(default_factory=dict)  # of the last look
    clients: Mapping[str, Redfish] = field(default_factory=dict)  # that know the way to an Off
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: int = 0  # whole looks
    _ended: int = 0  # the number of the last one that came to its end
    _known: dict[str, UnitWater] = field(default_factory=dict)  # what it showed

    async def look(self, read: Reader | None = None) -> dict[str, UnitWater]:
        """Read every tray and switch once, store what is known, and return it for this rack.

        `read`: what reads one unit in place of `read_unit`, which reads its place as well. One that
        cannot be read is unknown, whatever the reason, and the others count. A look during which
        another one of the unit was stored may raise and never clears.
        """
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(unit: PlannedUnit) -> None:
            async with slots:
                try:
                    if read is not None:
                        reading = await read(unit)
                    else:
                        address = self.addresses[unit.name]
                        reading = await read_unit(self.transport, address, self.limit_s)
                except (
                    Exception
                ) as error:  # our own bug: coolant in another unit counts all the same
                    log.exception("%s: its water was not read", unit.name)
                    reading = UnitReading(None, unread=f"{Reason.OUR_BUG}: {error!r}"[:400])
            self.readings[unit.name] = reading

        asked = [unit for unit in self.rack.units if unit.kind is not Kind.POWER_SHELF]
        begun = dict(self.store.units)
        news: dict[str, UnitWater] = {}
        now = time.time()
        await asyncio.gather(*(one(unit) for unit in asked if unit.name in self.addresses))
        for unit in asked:
            before = self.store.find(unit.name)
            if unit.name in self.addresses:
                reading = self.readings[unit.name]
                leaks = None if reading.unread else reading.leaks
                folded = fold_look(before, leaks, now)
                same = self.store.units.get(unit.name) is begun.get(unit.name)
                if not same and folded.dry_looks:
                    continue
            else:
                why = "it could not be read: no address or login of its BMC is given"
                folded = forget_look(before, why)
            news[unit.name] = folded
        if self.building is not None:
            name = f"{BUILDING}{self.rack.name}"
            before = self.store.find(name)
            now = time.time()  # BMCs may have taken longer than its file is new
            told = read_building(self.building, self.rack.name, now)
            news[name] = fold_look(before, told, now)
        news = {n: one for n, one in news.items() if is_news(self.store.find(n), one)}
        self.store.units |= news
        await self.store.keep(news=bool(news))  # what was seen wet is being kept already
        return {u.name: self.store.find(u.name) for u in self.rack.units}

    async def store_wet(self, name: str, reading: UnitReading) -> dict[str, UnitWater]:
        """Store that one unit is wet, without the others; return what is known of it."""
        before = self.store.find(name)
        self.store.units[name] = fold_look(before, reading.leaks, time.time())
        await self.store.keep()
        return {name: self.store.units[name]}

    def judge(self, known: Mapping[str, UnitWater]) -> Mapping[str, tuple[WaterState, str]]:
        """Return the state of each tray and switch and why, and last what the building says."""
        judged = judge_water_in(self.rack, known)
        units = [u.name for u in self.rack.units if u.kind is not Kind.POWER_SHELF]
        told = {name: judged[name] for name in units}
        if (state := self._ask_building()) is not None:
            name = f"{BUILDING}{self.rack.name}"
            asked = self.building is not None or state is WaterState.WET
            told[name] = (state, self.store.units[name].because if asked else "give --building")
        return told

    async def find_refusals(self, unit: PlannedUnit, reset: str) -> tuple[Blocker, ...]:
        """Return what speaks against a reset: at one of two looks, or because of a flash.

        What is held as wet goes off whatever runs on it.
        """
        if reset in TAKING and self.store.find(unit.name).latched:
            return ()
        refused: dict[tuple[str, str], Blocker] = {}
        for number in range(0 if reset in TAKING else DRY_LOOKS_MIN):
            if number:
                await self.pause(BETWEEN_S)
            for one in await self.find_refusals_now(unit, reset):
                refused[one.subject, one.detail] = one
        client = Redfish(self.transport, self.addresses[unit.name], quirks.UNKNOWN)
        running = await find_flash(client, unit.name)
        return (*refused.values(), *([] if running is None else [running]))

    async def find_stranger(self, unit: PlannedUnit) -> tuple[Blocker, ...]:
        """Return why what answers at a unit's address may be another machine, which stays on. What
        is held as wet goes off unless it surely is.
        """
        plan = self.plan or RackPlan(racks=(self.rack,))
        read = await read_unit(self.transport, self.addresses[unit.name], self.limit_s)
        found = find_misplaced(plan, self.rack.name, {unit.name: read}, unit)
        wet = self.store.find(unit.name).latched
        return tuple(one for one in found if not wet or one.reason in CERTAIN)

    async def find_refusals_now(self, unit: PlannedUnit, reset: str) -> tuple[Blocker, ...]:
        """Look once, and return what speaks against giving a unit power.

        Units that ask while a look is under way share the next one: it begins after they asked.
        """
        asked = self._begun
        async with self._turn:
            if self._ended <= asked:
                self._begun += 1
                number = self._begun
                self._known = await self.look()
                self._ended = number
        return self.judge_refusals(unit, reset, self._known)

    def judge_refusals(
        self, unit: PlannedUnit, reset: str, known: Mapping[str, UnitWater]
    ) -> tuple[Blocker, ...]:
        """Return what the last look, which was a whole one, speaks against giving a unit power."""
        plan = self.plan or RackPlan(racks=(self.rack,))
        return (
            *find_power_refusals(self.rack, unit, reset, known, self._ask_building()),
            *find_misplaced(plan, self.rack.name, self.readings, unit),
            *find_unplaced(plan, self.rack.name, self.readings, unit),
        )

    def _ask_building(self) -> WaterState | None:
        """Return what the building says; one that ever spoke of this rack has to be asked again."""
        kept = self.store.units.get(f"{BUILDING}{self.rack.name}")
        if kept is None or (self.building is None and not kept.slots and not kept.latched):
            return None
        unread = self.building is None and kept.state is WaterState.DRY
        return WaterState.UNKNOWN if unread else kept.state

    async def act(self, unit: PlannedUnit, reset: str) -> Blocker | None:
        """Send a reset, and return why it did not take effect. Water is asked again before it."""

        async def admit() -> Blocker | None:
            return next(iter(await self.find_refusals_now(unit, reset)), None)

        address = self.addresses[unit.name]
        client = Redfish(self.transport, address, quirks.UNKNOWN, admit=admit)
        if reset in TAKING:
            client = self.clients.get(unit.name, client)
        wanted = Power.ON if reset not in TAKING else Power.OFF
        try:
            if (refused := await client.reset_system(reset)) is not None:
                return refused
        except PortError as error:
            lost = isinstance(error, Unreachable) and error.maybe_executed
            if not lost:  # else the world tells, and nothing is sent again
                return _fail(unit, error.reason, f"{error}", "Make its BMC answer.")
        for _ in range(int(FOLLOW_S / ASK_EACH_S)):
            try:
                if await client.power() is wanted:
                    return None
            except PortError:
                pass  # an answer that is lost is no state
            await self.pause(ASK_EACH_S)
        detail = f"it does not say {wanted.value} after {FOLLOW_S:.0f} s"
        return _fail(unit, Reason.POWER, detail, "Look at the unit; nothing was sent again.")


def _fail(unit: PlannedUnit, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=unit.name, detail=detail, unblock=unblock)


def find_unit(plan: RackPlan, name: str) -> tuple[PlannedRack, PlannedUnit]:
    """Return a unit with its rack. Raises InputError for a name that stands nowhere, or twice."""
    found = [(rack, unit) for rack in plan.racks for unit in rack.units if unit.name == name]
    if len(found) != 1:
        problem = "the plan has no such unit" if not found else "two racks have such a unit"
        raise InputError("UNIT", name, problem, "Name one; see `rack show`.")
    return found[0]


def _addresses(
    rack: PlannedRack, user: str, ca: Path | None, *, insecure: bool
) -> dict[str, BmcAddress]:
    return {
        unit.name: build_address(unit.bmc, user, "", ca, insecure=insecure)
        for unit in rack.units
        if unit.bmc
    }


def water(
    plan: PlanFile,
    rack: Annotated[str, typer.Argument(help="Name of a rack of the plan.")],
    file: WaterOption,
    building: BuildingOption = None,
    user: UserOption = "",
    off: Annotated[
        bool, typer.Option("--off", help="Force wet units off, once they are stored as wet.")
    ] = False,
    as_json: JsonOption = False,
    insecure: InsecureOption = False,
    ca: CaOption = None,
) -> None:
    """Read every leak detector of a rack, and keep what is wet until a person clears it.

    A unit is dry only if each detector that it ever showed says so. Units below a wet one are
    warned of. Without --off nothing is sent.

    Exit code 1: something is not dry.

    Example: provisioner rack water racks.yaml r01 --water water.json --user admin
    """
    planned = read_plan(plan).find(rack)
    addresses = _addresses(planned, user, ca, insecure=insecure)

    async def run() -> tuple[Mapping[str, tuple[WaterState, str]], list[Blocker]]:
        transport = RedfishTransport(ca_file=ca)
        try:
            async with wait_for_water(file, asyncio.sleep, _tell) as store:
                racked = Racked(planned, transport, addresses, store, building)
                known = await racked.look()
                failed = await switch_wet_off(racked, known) if off else []
                return racked.judge(known), failed
        finally:
            await transport.close()

    judged, failed = asyncio.run(run())
    _show_water(planned, judged, failed, as_json=as_json)
    states = {state for state, _ in judged.values()}
    raise typer.Exit(0 if states <= {WaterState.DRY} and not failed else 1)


async def switch_wet_off(racked: Racked, known: Mapping[str, UnitWater]) -> list[Blocker]:
    """Force each wet unit off, all at once; they are stored as wet already.

    One that fails is told, and keeps no other one on.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(unit: PlannedUnit) -> Blocker | None:
        if unit.name not in racked.addresses:
            why = "no address or login of its BMC is given"
            return _fail(unit, Reason.POWER, why, "Switch it off by hand.")
        async with slots:
            try:
                return await racked.act(unit, "ForceOff")
            except Exception as error:  # our own bug, or a file that cannot be written
                log.exception("%s: it was not switched off", unit.name)
                return _fail(unit, Reason.OUR_BUG, f"{error!r}"[:300], "Switch it off by hand.")

    wet = find_wet(racked.rack, known)
    told = await asyncio.gather(*(one(unit) for unit in wet))
    return [each for each in told if each is not None]


def _show_water(
    rack: PlannedRack,
    judged: Mapping[str, tuple[WaterState, str]],
    failed: list[Blocker],
    *,
    as_json: bool,
) -> None:
    units = {unit.name for unit in rack.units}
    leaking = sum(state is WaterState.WET for name, (state, _) in judged.items() if name in units)
    if as_json:
        said = {name: {"state": state, "why": why} for name, (state, why) in judged.items()}
        not_off = [one.model_dump(mode="json") for one in failed]
        told = {"rack": rack.name, "leaking": leaking, "units": said, "not_off": not_off}
        typer.echo(json.dumps(told, indent=2))
        return
    table = Table("U", "unit", "water", "why", title=rack.name)
    heights = {unit.name: unit.u for unit in rack.units}
    for name, (state, why) in sorted(judged.items(), key=lambda each: -heights.get(each[0], 0)):
        table.add_row(str(heights.get(name, "-")), name, state.value, why)
    open_console().print(table)
    if leaking >= ISOLATE_MIN:
        ask = "Ask the building for electrical and liquid isolation: `rack isolate`."
        typer.echo(f"{leaking} units leak. {ask}")
    for one in failed:
        typer.echo(f"not off: {one.subject}: {strip_controls(one.detail)}. {one.unblock}")


def dry(
    plan: PlanFile,
    unit: UnitArgument,
    file: WaterOption,
    who: Annotated[str, typer.Option(help="Who looked at the unit.")],
    why: Annotated[str, typer.Option(help="What was found and done.")],
) -> None:
    """Say that a unit which was wet is dry: after two whole dry looks, a person's word ends it.

    Example: provisioner rack dry racks.yaml r01-t0 --water water.json --who amy --why "new hose"
    """
    planned = read_plan(plan)
    if unit.startswith(BUILDING):
        planned.find(unit.removeprefix(BUILDING))
    else:
        find_unit(planned, unit)

    async def clear() -> UnitWater | Blocker:
        async with wait_for_water(file, asyncio.sleep, _tell) as store:
            told = clear_latch(unit, store.find(unit), who, why)
            if isinstance(told, UnitWater):
                store.units[unit] = told
                await store.keep()
            return told

    told = asyncio.run(clear())
    if isinstance(told, Blocker):
        typer.echo(f"refused: {told.subject}: {told.detail}. {told.unblock}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{unit} may get power again once two more looks are dry.")


def power(
    plan: PlanFile,
    unit: UnitArgument,
    act: Annotated[PowerAct, typer.Argument(help="on, off (at once) or shutdown.")],
    file: WaterOption,
    building: BuildingOption = None,
    user: UserOption = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look, and say what would be sent and lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    insecure: InsecureOption = False,
    ca: CaOption = None,
) -> None:
    """Give a tray or switch power, or take it away. Power is given only where all is dry.

    Before "on" the whole rack is looked at twice, and once more before the request. What is wet,
    below a wet unit, unread, or not where the plan has it gets none. A unit on which a flash or
    its copy runs is not switched, nor off what is not proved to be the planned unit; what is wet
    goes off unless it is another one. The result is read back; nothing is sent twice.

    Exit code 1: it was refused, or the power did not follow.

    Example: provisioner rack power racks.yaml r01-t0 on --water water.json --user admin --dry-run
    """
    planned = read_plan(plan)
    rack, wanted = find_unit(planned, unit)
    if wanted.kind not in (Kind.COMPUTE_TRAY, Kind.NVLINK_SWITCH) or not wanted.bmc:
        problem = "only a tray or switch with a planned `bmc` is switched here"
        raise InputError("UNIT", unit, problem, "A shelf feeds a whole rack: use its own console.")
    addresses = _addresses(rack, user, ca, insecure=insecure)
    reset = RESETS[act]
    if act is PowerAct.ON and not file.is_file():  # another name, or lost: nobody knows the latch
        remedy = "Name the file that `rack water` keeps, or look with it first: it makes one."
        raise InputError("--water", str(file), "there is no such file, which is the latch", remedy)
    if act is not PowerAct.ON:
        lost = derive_impact(build_graph(planned), [unit])
        typer.echo(f"lost without {unit}: {', '.join(list(lost.lost)[1:40]) or 'nothing else'}")

    async def run() -> tuple[Blocker, ...]:
        transport = RedfishTransport(ca_file=ca)
        try:
            async with wait_for_water(file, asyncio.sleep, _tell) as store:
                racked = Racked(rack, transport, addresses, store, building, plan=planned)
                refused = await racked.find_refusals(wanted, reset)
                if reset in TAKING:
                    refused += await racked.find_stranger(wanted)
            if refused or dry_run:
                return refused
            ask_person(f"{reset} to {unit}", yes=yes)  # with nothing held: what leaks goes off
            async with wait_for_water(file, asyncio.sleep, _tell) as store:
                racked = Racked(rack, transport, addresses, store, building, plan=planned)
                if reset in TAKING:
                    refused = await racked.find_refusals(wanted, reset)
                    if refused := (*refused, *await racked.find_stranger(wanted)):
                        return refused
                failed = await racked.act(wanted, reset)  # looks at all once more to give power
            return () if failed is None else (failed,)
        finally:
            await transport.close()

    refused = asyncio.run(run())
    for one in refused:
        typer.echo(f"refused: {one.subject}: {strip_controls(one.detail)}. {one.unblock}", err=True)
    if refused:
        raise typer.Exit(1)
    typer.echo(f"would send {reset} to {unit}. Nothing was done." if dry_run else f"{unit}: {act}")


def _tell(why: str) -> None:
    typer.echo(strip_controls(why), err=True)


def ask_person(sentence: str, *, yes: bool) -> None:
    """Ask whether a sentence is meant, unless `yes`. Raises InputError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        problem = "it is not given, and there is no terminal to ask on"
        raise InputError("--yes", "", problem, "Look with --dry-run, then give --yes.")
    typer.confirm(f"{sentence}: is that meant?", abort=True)
