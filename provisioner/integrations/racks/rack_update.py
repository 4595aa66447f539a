"""Carries a campaign over racks out on real units: the plan's executor with real hands.

A round looks at the water of its racks first, then at each unit with an act under way, and sends
at most one write to each. Every write is in the journal before it is sent. After a death the
journal and the units tell what happened; nothing is taken from memory. Before an act's first write
its unit is proved again to be at its place, and before each cut of power nobody uses its domain.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from provisioner.integrations.racks.campaign import (
    DOMAIN_ACTS,
    SHELF_ACTS,
    Act,
    ActKind,
    DomainJob,
)
from provisioner.integrations.racks.campaign_run import Seen
from provisioner.integrations.racks.flash_reading import find_flash
from provisioner.integrations.racks.identity import Kind, Supply
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.membership import UnitReading
from provisioner.integrations.racks.nvue import read_controller
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, Stamp, read_stamp
from provisioner.integrations.racks.reading import read_unit
from provisioner.integrations.racks.shelf_steps import ShelfView
from provisioner.integrations.racks.update_guard import CUTS, find_moved, judge_drain
from provisioner.integrations.racks.update_log import (
    BEGAN,
    NOTED,
    TOLD,
    VOID,
    ActLog,
    Line,
    UpdateLog,
)
from provisioner.integrations.racks.update_packages import find_missed, find_surplus
from provisioner.integrations.racks.update_shelves import ShelfWrites, decide_shelf, read_shelf
from provisioner.integrations.racks.update_start import UnreadFile, check_file
from provisioner.integrations.racks.update_steps import (
    CONFIGURE_MAX_S,
    POWER_MAX_S,
    PUSHING,
    Controller,
    Do,
    Next,
    Nvos,
    decide_cluster,
    done,
    fail,
    is_spent,
    wait,
)
from provisioner.integrations.racks.update_switches import (
    SwitchWrites,
    decide_switch,
    read_switch,
)
from provisioner.integrations.racks.update_trays import (
    Answer,
    TrayWrites,
    decide_tray,
    find_detail,
    read_tray,
)
from provisioner.integrations.racks.update_world import (
    Admit,
    Update,
    follow_offs,
    keep_dry,
    wait_all,
)
from provisioner.integrations.racks.water import WaterState
from provisioner.integrations.racks.water_commands import Racked
from provisioner.integrations.racks.water_file import BUILDING
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError, Unreachable
from provisioner.ports.switch import SwitchRefused

SILENT_MAX_S = 900.0  # of a BMC to which nothing was sent
_BEFORE = "before"
_Units = list[tuple[PlannedRack, PlannedUnit]]


@dataclass
class Hands:
    """Real hands of the executor; what a round saw is what `look` returns."""

    update: Update
    log: UpdateLog
    jobs: Mapping[str, DomainJob]  # by the key of each of their acts
    acts: Mapping[str, Act]
    why: dict[str, str] = field(default_factory=dict)  # act: what it waits for, or why it failed
    _moved: set[str] = field(default_factory=set)  # acts of which a write was taken
    _seen: dict[str, Seen] = field(default_factory=dict)
    _racked: dict[str, Racked] = field(default_factory=dict)
    _water: dict[str, WaterState] = field(default_factory=dict)
    _silent: dict[str, float] = field(default_factory=dict)
    _tenants: dict[str, str | None] = field(default_factory=dict)
    _hashed: dict[tuple[str, Path], tuple[Stamp, Next]] = field(default_factory=dict)

    def send(self, act: Act) -> None:
        """Begin an act: its first write is sent in the next round."""

    def look(self, act: Act) -> Seen:
        return self._seen.pop(act.key, Seen.RUNNING)

    async def prepare(self, keys: Sequence[str]) -> None:
        """Read what rounds that begin now need: who uses their trays, and the files of their acts.

        Files may have some GB: nobody waits meanwhile for the water's file.
        """
        if hosts := {name for key in keys for name in self.jobs[key].hosts}:
            self._tenants |= await self.update.read_tenants(hosts, hold=True)
        await self._hash_files([self.acts[key] for key in keys])

    async def round(self, keys: Sequence[str]) -> bool:
        """Look at the water and at each act's unit, and send at most one write for each act; return
        whether one was taken, or an act ended.
        """
        update = self.update
        self._moved.difference_update(keys)
        under_way = {name for key in keys for name in self.jobs[key].racks}
        async with follow_offs() as offs, update.held.hold(update.water, update.pause) as store:
            for rack in (rack for rack in update.plan.racks if rack.name in under_way):
                racked = update.open_rack(rack, store)
                known = await keep_dry(update, racked, offs)
                judged = racked.judge(known).items()
                self._water |= {name: state for name, (state, _) in judged}
                self._racked[rack.name] = racked
            results = await wait_all(self._advance(self.acts[key]) for key in keys)
        self._seen |= zip(keys, results, strict=True)
        return Seen.DONE in results or not self._moved.isdisjoint(keys)

    def _units(self, act: Act, kind: Kind | None = None) -> _Units:
        """Return what stands in the racks of an act: those of its job, if it is the domain's."""
        racks = [rack for rack in self.update.plan.racks if rack.name in act.racks]
        return [(r, u) for r in racks for u in r.units if kind in (None, u.kind)]

    async def _advance(self, act: Act) -> Seen:
        log = self.log.of(act.key)
        try:
            step = await self._decide(act, log)
        except PortError as error:
            step = wait(str(error))
        if step.do is Do.SEND:
            step = await self._find_objection(act, step, self.log.of(act.key)) or step
        if step.do is Do.SEND:
            step = await self._send(act, step, self.log.of(act.key))
            await self.log.sync()
        if step.do is Do.NOTE:
            self._note(act.key, step.what, step.why)
            step = wait(step.why)
        if self.why.get(act.key) != step.why and step.why:
            self.why[act.key] = step.why
            self.update.say(f"{act.key}: {step.why}")
        if step.do is Do.FAIL:
            return Seen.FAILED
        return Seen.DONE if step.do is Do.DONE else Seen.RUNNING

    async def _decide(self, act: Act, log: ActLog) -> Next:
        if act.kind is ActKind.DRAIN:
            if not log.noted("begun"):
                self._note(act.key, "begun", str(self.update.now()))
            begun = float(self.log.of(act.key).note("begun"))
            tenants = self._tenants_of(act)
            return judge_drain(tenants, begun + self.update.grace_s - self.update.now())
        if (held := self._rest(act, log)) is not None:
            return held
        if act.kind is ActKind.CLUSTER:
            return await self._decide_cluster(act, log)
        if act.kind is ActKind.PROVE:
            return await self._prove(act, log)
        _, unit = self.update.find(act.on)
        if unit.kind is Kind.COMPUTE_TRAY:
            return await self._decide_tray(act, unit, log)
        if unit.kind is Kind.NVLINK_SWITCH:
            return await self._decide_switch(act, unit, log)
        return await self._decide_shelf(act, unit, log)

    def _rest(self, act: Act, log: ActLog) -> Next | None:
        """Return why nothing is sent while coolant is seen; None: all is dry, or nobody can tell.

        A BMC that restarts shows no detector: that is no reason to stop, and no write reaches it.
        """
        whole = act.kind in DOMAIN_ACTS | SHELF_ACTS
        on = [u.name for _, u in self._units(act)] if whole else [act.on]
        wet = [name for name in on if self._water.get(name) is WaterState.WET]
        racks = [f"{BUILDING}{name}" for name in self.jobs[act.key].racks]
        wet += [name for name in racks if self._water.get(name, "dry") != "dry"]
        if wet:
            if log.last_note(_RESTS) != "wet":
                self._note(act.key, "wet", wet[0])
            return wait(f"{wet[0]} is wet: nothing is sent until a person says that it is dry")
        if log.last_note(_RESTS) == "wet":
            self._note(act.key, "cleared")
        return None

    def _tenants_of(self, act: Act) -> Mapping[str, str | None]:
        """Return who uses the trays of the act's whole job."""
        hosts = self.jobs[act.key].hosts
        return {name: self._tenants.get(name) for name in hosts}

    async def _find_objection(self, act: Act, step: Next, log: ActLog) -> Next | None:
        """Return why a write is not sent now: who uses the domain, or a unit that was moved."""
        if step.what.startswith("push") and (changed := await self._find_changed(act)):
            return changed
        first = not log.has_begun()
        if not first and step.what not in CUTS:
            return None
        tenants = judge_drain(self._tenants_of(act), 1.0)
        if tenants.do is not Do.DONE:
            return tenants
        if act.kind in DOMAIN_ACTS or not first:
            return None
        rack, unit = self.update.find(act.on)
        moved = await find_moved(self.update, rack, unit)
        if moved is None or moved.do is Do.FAIL:
            return moved
        return self._bound(act, "unplaced", moved)

    def _bound(self, act: Act, note: str, held: Next) -> Next:
        """Let an act wait for some time, also over restarts; then what it waits for ends it."""
        if not self.log.of(act.key).noted(note):
            self._note(act.key, note, str(self.update.now()))
        since = float(self.log.of(act.key).note(note))
        late = self.update.now() - since > SILENT_MAX_S
        return fail(held.reason, held.why) if late else held

    def _list_files(self, act: Act) -> Sequence[tuple[Path, str]]:
        """Return the files that an act may push, each with its pinned digest."""
        if not act.component:
            return ()
        _, unit = self.update.find(act.on)
        files = [f for one in self.update.packages(unit.kind, act.component) for f in one.files]
        return [(self.update.folder / one.file, one.sha256) for one in files if one.file]

    async def _hash_files(self, acts: Sequence[Act]) -> None:
        """Hash the files of acts, each once for an act unless it was changed or not read."""
        for act in acts:
            for file, wanted in self._list_files(act):
                stamp = await asyncio.to_thread(_read_stamp, file)
                known = self._hashed.get((act.key, file))
                if known is None or known[0] != stamp or known[1].do is Do.WAIT:
                    told = await asyncio.to_thread(_judge_file, act.key, file, wanted)
                    self._hashed[act.key, file] = (stamp, told)

    async def _find_changed(self, act: Act) -> Next | None:
        """Return which file of an act is not the pinned one (any more), or cannot be told."""
        for file, _ in self._list_files(act):
            stamp, told = self._hashed[act.key, file]
            now = await asyncio.to_thread(_read_stamp, file)
            if stamp != now or (now is None and told.do is Do.DONE):
                told = wait(f"{file}: it is being changed; it is read again first")
            if told.do is Do.WAIT:
                return self._bound(act, "unread-file", replace(told, reason=Reason.CANNOT_TELL))
            if told.do is Do.FAIL:
                return told
        return None

    # --- trays, switches, shelves

    def _admit(self, name: str) -> Admit:
        """Return what a push asks: the unit was dry in this round."""

        async def admit() -> Blocker | None:
            state = self._water.get(name, WaterState.UNKNOWN)
            if state is WaterState.DRY:
                return None
            remedy = "See docs/racks.md#water."
            return Blocker(reason=Reason.LEAK, subject=name, detail=f"{state}", unblock=remedy)

        return admit

    def _watch_silence(self, act: Act, log: ActLog, writes: Sequence[str], *, heard: bool) -> None:
        """Note that a unit was cut by what was sent, or is silent without any reason."""
        if heard:
            self._silent.pop(act.key, None)
            return
        since = self._silent.setdefault(act.key, self.update.now())
        for what in writes:
            if log.count(what) and not log.noted("silent", what):
                self._note(act.key, "silent")
        if self.update.now() - since > SILENT_MAX_S and not log.noted("silent-long"):
            self._note(act.key, "silent-long")

    async def _decide_tray(self, act: Act, unit: PlannedUnit, log: ActLog) -> Next:
        client = await self.update.client(unit.name, self._admit(unit.name))
        view = await read_tray(client, unit.name, log, self.update.now())
        self._watch_silence(act, log, ("ac",), heard=view.reachable)
        if view.pushing:
            return wait(PUSHING)
        if view.reachable and view.copying and not log.noted("copy"):
            self._note(act.key, "copy", str(self.update.now()))
        if view.reachable and view.hmc and not self.log.of(_unit(unit.name)).noted(_BEFORE):
            self._note(_unit(unit.name), _BEFORE, json.dumps(dict(view.versions)))
        packages = self.update.packages(Kind.COMPUTE_TRAY, act.component)
        log = self.log.of(act.key)
        step = decide_tray(act, packages, view, log, self.update.now())
        detail = find_detail(step.what, view)
        return replace(step, why=detail) if step.do is Do.SEND else step

    async def _decide_switch(self, act: Act, unit: PlannedUnit, log: ActLog) -> Next:
        packages = self.update.packages(Kind.NVLINK_SWITCH, act.component)
        client = await self.update.client(unit.name, self._admit(unit.name))
        nvos = self.update.nvos_client(unit.name)
        view = await read_switch(nvos, client, act, packages, log)
        silent = view.nvos is Nvos.SILENT
        self._watch_silence(act, log, ("reboot",), heard=not silent)
        known_dead = log.last_note(("dead", "alive")) == "dead"
        if silent and not known_dead:
            self._note(act.key, "dead", str(self.update.now()))
        elif view.nvos is Nvos.OK and known_dead:
            self._note(act.key, "alive")
        log = self.log.of(act.key)
        step = decide_switch(act, packages, view, log, self.update.now())
        pushes = step.what.startswith("push") and view.tasks is not None
        return replace(step, why=str(view.tasks)) if pushes else step

    async def _decide_shelf(self, act: Act, unit: PlannedUnit, log: ActLog) -> Next:
        client = await self.update.client(unit.name, self._admit(unit.name))
        view = await read_shelf(client, unit.name, log, self.update.now())
        self._watch_silence(act, log, (), heard=view.reachable)
        if view.pushing:
            return wait(PUSHING)
        if act.kind is ActKind.PSU:
            view = await self._look_around(act, view)
        packages = self.update.packages(Kind.POWER_SHELF, act.component)
        log = self.log.of(act.key)
        step = decide_shelf(act, packages[0], view, log, self.update.now())
        return replace(step, why=str(view.tasks)) if step.what == "push" else step

    async def _look_around(self, act: Act, view: ShelfView) -> ShelfView:
        """Add what else the shelf's rack shows: every other supply, and every host."""
        units = self._units(act)
        shelves = [unit for _, unit in units if unit.kind is Kind.POWER_SHELF]
        readings = await wait_all(self._read_shelf(unit) for unit in shelves)
        bad: list[str] = []
        unread: list[str] = []
        for unit, reading in zip(shelves, readings, strict=True):
            if reading is None:
                bad.append(f"{unit.name}: no address is planned")
                continue
            off = [s for s in reading.supplies if s is not Supply.ON]
            expected = unit.supplies or 0
            if reading.unread or off or len(reading.supplies) < expected:
                bad.append(f"{unit.name}: {reading.unread or 'not every supply is on'}")
            unread += [f"{unit.name}: {reading.unread}"] if reading.unread else []
            bad += [f"{unit.name}: supply {one} is not well" for one in reading.supplies_ill]
        trays = [unit.name for _, unit in units if unit.kind is Kind.COMPUTE_TRAY]
        power = {name: self._power(name) for name in trays}
        on = tuple(name for name, state in power.items() if state == "On")
        read = set(power.values()) <= {"On", "Off"}
        hosts_on = on if read else None
        return replace(view, supplies_bad=tuple(bad), unread=tuple(unread), hosts_on=hosts_on)

    async def _read_shelf(self, unit: PlannedUnit) -> UnitReading | None:
        address = self.update.addresses.get(unit.name)
        return None if address is None else await read_unit(self.update.bmcs, address)

    # --- the domain

    async def _decide_cluster(self, act: Act, log: ActLog) -> Next:
        if not log.noted("begun"):
            self._note(act.key, "begun", str(self.update.now()))
        begun = float(self.log.of(act.key).note("begun"))
        if self.update.now() - begun > CONFIGURE_MAX_S and not log.noted("cluster-late"):
            self._note(act.key, "cluster-late")
        listed = self._units(act, Kind.NVLINK_SWITCH)
        switches = [unit for rack, unit in listed if domain_of(rack, unit) == act.on]
        seen = await wait_all(self._read_controller(unit) for unit in switches)
        return decide_cluster(seen, self.log.of(act.key), self.update.now())

    async def _read_controller(self, unit: PlannedUnit) -> Controller:
        nvos = self.update.nvos_client(unit.name)
        index = unit.tray_index or 0
        try:
            body = await nvos.read_apps() if nvos is not None else None
        except PortError as error:
            return Controller(unit.name, index, None, said=str(error))
        return read_controller(unit.name, index, body)

    async def _prove(self, act: Act, log: ActLog) -> Next:
        """Read every version of every unit again; one that does not answer proves nothing."""
        units = self._units(act)
        told = await wait_all(self._find_missed(unit) for _, unit in units)
        missed = [each for one in told for each in one]
        also = await wait_all(self._find_surplus(unit) for _, unit in units)
        for (_, unit), surplus in zip(units, also, strict=True):
            if surplus and not log.noted("surplus"):
                self._note(act.key, "surplus", "; ".join(surplus)[:2000])
                self.update.say(f"surplus: {unit.name}: {'; '.join(surplus[:4])}")
        if not missed:
            return self._bring_back(act, log)
        silent = [each for each in missed if each.endswith(_UNREAD)]
        self._watch_silence(act, log, (), heard=not silent)
        if silent and not self.log.of(act.key).noted("silent-long"):
            return wait(silent[0])
        return fail(Reason.NOT_ACTIVATED, "; ".join(missed[:6]))

    def _bring_back(self, act: Act, log: ActLog) -> Next:
        """Return what is left once all is proved: power for the hosts that a supply's act cut."""
        off = [name for name in self._cut_hosts(act) if self._power(name) != "On"]
        if not off:
            return done("every version of every unit was read and is the wanted one")
        if log.count("hosts-on") and log.since("hosts-on", self.update.now()) < POWER_MAX_S:
            return wait(f"for {off[0]} to be on")
        if not is_spent(log, "hosts-on"):  # a death in its middle leaves the others off
            return Next(Do.SEND, "hosts-on")
        return fail(Reason.POWER, f"{off[0]} says {self._power(off[0])} after it was switched on")

    def _cut_hosts(self, act: Act) -> list[str]:
        """Return the act's trays whose hosts were switched off for a supply, by the journal."""
        cut = [one.racks for one in self.acts.values() if self.log.of(one.key).count("hosts-off")]
        racks = {name for each in cut for name in each}
        return [u.name for r, u in self._units(act, Kind.COMPUTE_TRAY) if r.name in racks]

    def _power(self, name: str) -> str:
        rack, _ = self.update.find(name)
        shown = self._racked[rack.name].readings.get(name)
        return "Unknown" if shown is None else shown.power

    async def _switch_hosts(self, act: Act, reset: str) -> Answer:
        """Switch every host of the act's racks, but those that are so already; one no ends it.

        None is switched off while a flash or a copy runs on any of them, nor on while any may not.
        """
        wanted = "On" if reset == "On" else "Off"
        hosts = [
            (rack, unit)
            for rack, unit in self._units(act, Kind.COMPUTE_TRAY)
            if self._power(unit.name) != wanted
        ]

        async def judge(rack: PlannedRack, unit: PlannedUnit) -> Blocker | None:
            if reset == "On":
                return next(
                    iter(await self._racked[rack.name].find_refusals_now(unit, reset)), None
                )
            client = await self.update.client(unit.name, self._admit(unit.name))
            running = await find_flash(client, unit.name)  # it is asked again
            return running and running.model_copy(update={"reason": Reason.BUSY})

        async def switch(unit: PlannedUnit) -> Blocker | None:
            client = await self.update.client(unit.name, self._admit(unit.name))
            return await client.reset_system(reset)

        told = await wait_all(judge(rack, unit) for rack, unit in hosts)
        told = told if any(told) else await wait_all(switch(unit) for _, unit in hosts)
        return next((no for no in told if no is not None), "")

    async def _find_missed(self, unit: PlannedUnit) -> list[str]:
        packages = self.update.packages(unit.kind)
        if not packages:
            return []
        running = await self.update.read_running(unit)
        if running is None:
            return [f"{unit.name}{_UNREAD}"]
        found = [each for package in packages for each in find_missed(package, running)]
        return [f"{unit.name}: {each}" for each in found]

    async def _find_surplus(self, unit: PlannedUnit) -> list[str]:
        before = self.log.of(_unit(unit.name)).note(_BEFORE)
        running = await self.update.read_running(unit) if before else None
        if running is None:
            return []
        own = self.update.asked.packages.get(unit.kind, {})
        return list(find_surplus(json.loads(before), running, own))

    # --- writes

    async def _send(self, act: Act, step: Next, log: ActLog) -> Next:
        """Write the intent, send, write the answer. A lost answer leaves the intent open."""
        now = self.update.now
        self.log.write(Line(act.key, BEGAN, step.what, now(), step.why))
        await self.log.sync()
        try:
            answer = await self._transmit(act, step, self.log.of(act.key))
        except Unreachable as error:
            if not error.maybe_executed:
                self.log.write(Line(act.key, TOLD, step.what, now(), VOID))
            return wait(f"{step.what}: {error}")
        except SwitchRefused as error:  # an answer is no lost one: it is not asked again
            self.log.write(Line(act.key, TOLD, step.what, now(), f"refused: {error}"[:300]))
            return fail(error.reason, f"{step.what}: {error}")
        except PortError as error:
            return wait(f"{step.what}: {error}")
        if not isinstance(answer, Blocker):
            self.log.write(Line(act.key, TOLD, step.what, now(), answer))
            self._moved.add(act.key)
            return wait(f"{step.what} was sent")
        if answer.reason in (Reason.BUSY, Reason.LEAK):
            self.log.write(Line(act.key, TOLD, step.what, now(), VOID))
            return wait(f"{step.what}: {answer.detail}")
        self.log.write(Line(act.key, TOLD, step.what, now(), f"refused: {answer.detail}"[:300]))
        if step.what == "ac":  # the host may have come on in between: that is looked at
            return wait(f"ac: {answer.detail}")
        return fail(answer.reason, f"{step.what}: {answer.detail}")

    async def _transmit(self, act: Act, step: Next, log: ActLog) -> Answer:
        if act.kind is ActKind.CLUSTER:
            nvos = self.update.nvos_client(step.why)
            return await nvos.start_controller() if nvos is not None else ""
        if step.what in ("hosts-off", "hosts-on"):
            return await self._switch_hosts(act, "ForceOff" if step.what == "hosts-off" else "On")
        rack, unit = self.update.find(act.on)
        client = await self.update.client(unit.name, self._admit(unit.name))
        packages = self.update.packages(unit.kind, act.component)
        if unit.kind is Kind.POWER_SHELF:
            return await ShelfWrites(client, self.update.folder).send(act, packages[0], step.what)
        if unit.kind is Kind.NVLINK_SWITCH:
            nvos = self.update.nvos_client(unit.name)
            writes = SwitchWrites(nvos, client, self.update.folder, self.update.pause)
            return await writes.send(packages, step.what)
        racked = self._racked[rack.name]

        async def admit(reset: str) -> Blocker | None:
            return next(iter(await racked.find_refusals_now(unit, reset)), None)

        file = self.update.folder / packages[0].files[0].file if packages else None
        return await TrayWrites(client, file, admit).send(act, step.what, log)

    def _note(self, key: str, note: str, detail: str = "") -> None:
        self.log.write(Line(key, NOTED, note, self.update.now(), detail))


_RESTS = ("wet", "cleared")
_UNREAD = ": its versions were not read"


def _unit(name: str) -> str:
    return f"unit:{name}"


def _read_stamp(file: Path) -> Stamp:
    try:
        return read_stamp(file)
    except OSError:
        return None


def _judge_file(key: str, file: Path, wanted: str) -> Next:
    """Return done for a file that is the pinned one, and wait for one that nobody can read."""
    try:
        check_file(key, file, wanted)
    except InputError as error:
        why = f"{file}: {error.problem}. {error.remedy}"
        return wait(why) if isinstance(error, UnreadFile) else fail(Reason.NOT_EXPECTED, why)
    return done()
