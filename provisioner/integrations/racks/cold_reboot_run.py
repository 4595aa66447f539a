"""Carries a cold reboot of a rack out: reads it whole each round, and sends one write at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.parsing import link, text
from provisioner.adapters.redfish.service import action_of, target_of
from provisioner.integrations.racks.campaign import Act, ActKind
from provisioner.integrations.racks.cold_reboot import RackView, decide_reboot
from provisioner.integrations.racks.flash_reading import find_flash
from provisioner.integrations.racks.identity import Kind, Place
from provisioner.integrations.racks.membership import (
    UnitReading,
    find_misplaced,
    find_unplaced,
)
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit
from provisioner.integrations.racks.reading import read_switch_location, read_unit
from provisioner.integrations.racks.update_guard import judge_drain
from provisioner.integrations.racks.update_log import BEGAN, NOTED, TOLD, VOID, Line, UpdateLog
from provisioner.integrations.racks.update_steps import Do, Next, fail, wait
from provisioner.integrations.racks.update_trays import Answer, TrayWrites
from provisioner.integrations.racks.update_world import Update, wait_all
from provisioner.integrations.racks.water import UnitWater, WaterState
from provisioner.integrations.racks.water_commands import Racked
from provisioner.integrations.racks.water_file import BUILDING, wait_for_water
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError, Unreachable

ROUNDS_MAX = 2_000  # each takes half a minute; a cold reboot takes less than an hour
OVER = "over"  # noted at its end
COLD_REBOOT = "cold-reboot"


@dataclass
class ColdReboot:
    """One cold reboot of one rack, by its journal."""

    update: Update
    rack: PlannedRack
    log: UpdateLog
    _racked: Racked | None = None
    _told: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.rack.name}/{COLD_REBOOT}"

    async def carry_out(self) -> Next:
        """Do it, or go on with it; return how it ended. A tenant in its domain refuses it."""
        if (refused := self._find_refusal() or await self._find_tenant()) is not None:
            return refused
        step = wait("nothing was read yet")
        for _ in range(min(ROUNDS_MAX, self.update.rounds_max)):
            step = await self._round()
            if step.do is Do.DONE:
                self.log.write(Line(self.key, NOTED, OVER, self.update.now(), step.why))
            await self.log.sync()
            if step.do in (Do.DONE, Do.FAIL):
                return step
            await self.update.pause(self.update.poll_s)
        return fail(Reason.TIME_LIMIT, f"it waited too long: {step.why}")

    def _find_refusal(self) -> Next | None:
        """Return why nothing is begun: all that no look at the rack could lift."""
        if self.log.of(self.key).noted(OVER):
            why = "the cold reboot of this journal is over: name another file for another one"
            return fail(Reason.PRECONDITION, why)
        shelves = [unit.name for unit in self._units(Kind.POWER_SHELF)]
        unknown = [name for name in shelves if name not in self.update.addresses]
        if unknown or not shelves:
            why = f"{unknown[0]} has no `bmc` in the plan" if unknown else "the plan has no shelf"
            return fail(Reason.PRECONDITION, f"its power cannot be cut: {why}")
        return None

    async def _find_tenant(self, left_s: float = 0.0) -> Next | None:
        """Return who uses a tray of its domain, or that nobody looked; None: nobody does."""
        told = judge_drain(await self.update.read_tenants(), left_s)
        return None if told.do is Do.DONE else told

    def _units(self, *kinds: Kind) -> list[PlannedUnit]:
        return [u for u in self.rack.units if u.kind in kinds]

    async def _round(self) -> Next:
        async with wait_for_water(self.update.water, self.update.pause) as store:
            self._racked = self.update.open_rack(self.rack, store)
            log = self.log.of(self.key)
            step = decide_reboot(await self._read(), log, self.update.now())
            if step.what.startswith(("host-off", "shelf-Off")):
                step = await self._find_tenant(1.0) or step
            if step.why and self._told.get(step.what or "wait") != step.why:
                self._told[step.what or "wait"] = step.why
                self.update.say(f"{self.key}: {step.what} {step.why}".replace("  ", " "))
            if step.do is Do.NOTE:
                detail = step.why
                self.log.write(Line(self.key, NOTED, step.what, self.update.now(), detail))
            return await self._send(step) if step.do is Do.SEND else step

    # --- reading

    async def _read(self) -> RackView:
        assert self._racked is not None
        dark = self.log.of(self.key).noted("dark")
        known = await self._racked.look()
        readings = self._racked.readings
        placed = self._units(Kind.COMPUTE_TRAY, Kind.NVLINK_SWITCH)
        with_bmc = {u.name for u in placed if u.name in self.update.addresses}
        answering = {name for name in with_bmc if name in readings and not readings[name].unread}
        refused: dict[str, str] = {}
        if dark:
            for unit in self._units(Kind.COMPUTE_TRAY):
                for one in self._racked.judge_refusals(unit, "On", known):
                    refused.setdefault(unit.name, one.detail)
        power = {name: readings[name].power for name in answering}
        shelves = self._units(Kind.POWER_SHELF)
        told = dict(await wait_all(self._read_shelf(unit) for unit in shelves))
        power |= {name: one.power for name, one in told.items() if one.power in ("On", "Off")}
        down = self.log.of(self.key)
        begun = any(down.count(f"shelf-Off:{u.name}") for u in shelves)
        return RackView(
            trays=tuple(u.name for u in self._units(Kind.COMPUTE_TRAY)),
            shelves=tuple(u.name for u in shelves),
            power=power,
            policy=await self._read_policies(answering),
            answering=frozenset(answering),
            with_bmc=frozenset(with_bmc),
            refused=refused,
            running={} if begun else await self._find_running(placed),
            powered=self._find_powered(known, power, begun=begun),
            strange=await self._find_strange({**readings, **told}, begun=begun),
            building=self._ask_building(known),
        )

    def _find_powered(
        self, known: Mapping[str, UnitWater], power: Mapping[str, str], *, begun: bool
    ) -> Mapping[str, str]:
        """Return the switches that a shelf would power and that have to stay off, with the reason.

        Nobody publishes how a switch is kept off while its shelf is on. Once the shelves are off,
        what was held as wet, or the building calls wet, is all that can still be known.
        """
        assert self._racked is not None
        judged = self._racked.judge(known)
        found: dict[str, str] = {}
        for unit in self._units(Kind.NVLINK_SWITCH):
            state, because = judged[unit.name]
            if known.get(unit.name, UnitWater()).latched or (not begun and state != "dry"):
                found[unit.name] = f"{state}: {because}"
            elif not begun and power.get(unit.name) != "On":
                found[unit.name] = f"its power is {power.get(unit.name, 'unread')}"
        return found

    async def _find_strange(
        self, readings: Mapping[str, UnitReading], *, begun: bool
    ) -> Mapping[str, str]:
        """Return the units that answered and are not what the plan has there, with the reason.

        Before the first shelf is cut also the switches of which nothing tells where they sit.
        """
        found: dict[str, str] = {}
        answered = {name: one for name, one in readings.items() if not one.unread}
        for unit in () if begun else self._units(Kind.NVLINK_SWITCH):
            nvos = self.update.nvos.get(unit.name)
            if nvos is not None and unit.name in answered:
                told = await read_switch_location(self.update.switches, nvos)
                if isinstance(told, Place):
                    one = answered[unit.name]
                    answered[unit.name] = replace(one, places=(*one.places, told))
        plan = self.update.plan
        name = self.rack.name
        for unit in (u for u in self.rack.units if u.name in answered):
            held = find_misplaced(plan, name, answered, unit)
            for no in held or (() if begun else find_unplaced(plan, name, answered, unit)):
                found.setdefault(unit.name, no.detail)
        return found

    def _ask_building(self, known: Mapping[str, UnitWater]) -> str:
        assert self._racked is not None
        name = f"{BUILDING}{self.rack.name}"
        state, why = self._racked.judge(known).get(name, (WaterState.DRY, ""))
        return "" if state is WaterState.DRY else f"{name} is {state}: {why}"

    async def _read_shelf(self, unit: PlannedUnit) -> tuple[str, UnitReading]:
        if unit.name not in self.update.addresses:
            return unit.name, UnitReading(None, unread="no address is planned")
        return unit.name, await read_unit(self.update.bmcs, self.update.addresses[unit.name])

    async def _read_policies(self, answering: set[str]) -> Mapping[str, str]:
        policies: dict[str, str] = {}
        for unit in self._units(Kind.COMPUTE_TRAY):
            if unit.name not in answering:
                continue
            try:
                system = await (await self._client(unit.name)).service.read_system()
            except PortError:
                continue
            policy = text(system.data.get("PowerRestorePolicy")) if system is not None else None
            if policy is not None:
                policies[unit.name] = policy
        return policies

    async def _find_running(self, placed: list[PlannedUnit]) -> Mapping[str, str]:
        """Return what a cut would break: flashes, copies, and units of which nobody knows."""
        found: dict[str, str] = {}
        for unit in placed:
            if unit.name not in self.update.addresses:
                found[unit.name] = "no address is planned"
            elif (no := await find_flash(await self._client(unit.name), unit.name)) is not None:
                found[unit.name] = no.detail
        return found

    async def _client(self, name: str) -> Redfish:
        async def admit() -> Blocker | None:
            return None  # `find_refusals` asks before the one act that gives power

        return await self.update.client(name, admit)

    # --- writing

    async def _send(self, step: Next) -> Next:
        now = self.update.now
        self.log.write(Line(self.key, BEGAN, step.what, now(), step.why))
        await self.log.sync()
        try:
            answer = await self._transmit(step.what)
        except Unreachable as error:
            if not error.maybe_executed:
                self.log.write(Line(self.key, TOLD, step.what, now(), VOID))
            return wait(str(error))
        except PortError as error:
            return wait(str(error))
        if not isinstance(answer, Blocker):
            self.log.write(Line(self.key, TOLD, step.what, now(), answer))
            return wait("it was sent")
        if answer.reason in (Reason.LEAK, Reason.BUSY):
            self.log.write(Line(self.key, TOLD, step.what, now(), VOID))
            return wait(f"{step.what}: {answer.detail}")
        return fail(answer.reason, f"{step.what}: {answer.detail}")

    async def _transmit(self, what: str) -> Answer:
        verb, _, name = what.partition(":")
        client = await self._client(name)
        if verb in ("shelf-Off", "shelf-On"):
            return await _switch_shelf(client, "ForceOff" if verb == "shelf-Off" else "On")
        _, unit = self.update.find(name)

        async def admit(reset: str) -> Blocker | None:
            assert self._racked is not None
            return next(iter(await self._racked.find_refusals(unit, reset)), None)

        act = Act(self.key, ActKind.ACTIVATE, name, (self.rack.name,), (), 0.0)
        writes = TrayWrites(client, None, admit)
        if verb == "policy-back":
            before = self.log.of(self.key).detail(f"policy-off:{name}")
            return await writes.set_policy(before or "LastState")
        if verb == "policy-off":
            return await writes.set_policy("AlwaysOff")
        return await writes.send(act, "off" if verb == "host-off" else "on", self.log.of(self.key))


async def _switch_shelf(client: Redfish, kind: str) -> Answer:
    """Switch a shelf by `Chassis.Reset`, or by the action of the kind's own name (LiteOn)."""
    service = client.service
    walk = service.walk()
    for chassis in await walk.read_linked(await walk.read_root(), "Chassis"):
        if link(chassis.data, "PowerSubsystem") is None:
            continue
        reset = target_of(action_of(chassis.data, "Chassis.Reset"))
        own = target_of(action_of(chassis.data, f"Chassis.{kind}"))
        if reset is None and own is None:
            continue
        body = {"ResetType": kind} if reset is not None else {}
        reply = await service.post(reset or own or "", body, "shelf")
        return reply if isinstance(reply, Blocker) else ""
    return service.not_offered("shelf", f"reset to {kind}")
