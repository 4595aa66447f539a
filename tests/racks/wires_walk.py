"""Random acts over a simulated rack, held at its own wires: what gets power is dry and known.

Persons ask for power, updates, cold reboots and looks come and die at any request; detectors leak,
dry and vanish between acts and in the midst of them. The books are the simulator's: each request
that gives power is judged where it arrives, and whatever energises a host where the power comes on.

A step is a request that the simulator was sent, or a change of a detector.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from rack_rig import NEW, OLD, TARGETS, Rig, ask_for_power, reboot

from provisioner.integrations.racks.update_steps import Do
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.racks.water import UnitWater, clear_latch
from provisioner.integrations.racks.water_commands import Racked, switch_wet_off
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.rack import Event
from provisioner.integrations.sim.racks.switch import Switch
from provisioner.integrations.sim.racks.tray import Tray
from provisioner.ports import Call

TRAYS = ("t0", "t1", "t2")
PLACED = (*TRAYS, "s0")  # the higher one later
DEATH = 0.05  # of each write, before it or after it
DEATH_READING = 0.0003
CHANGE = 0.001  # of a detector, with each request: in the midst of whatever runs
ROUNDS = 200  # then a person stops an update or a cold reboot; another act may go on with it
STATES = ("OK", "Critical", "Unavailable", "gone")
WEIGHTS = (12, 1, 1, 1)


class Died(BaseException):
    """The process is gone."""


class _Hasty(Rig):
    def update(self) -> Update:
        update = super().update()
        update.rounds_max = ROUNDS
        return update


class WiresWalk:
    """One walk; `run` may be called again. Raises AssertionError at the first breach."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.rig = _Hasty(folder, targets=TARGETS, trays=len(TRAYS), switches=1, shelves=1)
        next(one for one in self.rig.units if one["name"] == "s0")["serial"] = "MTs0"
        self.rig.rack.watch = self._see
        self._named = {name: tuple(self._unit(name).detectors) for name in PLACED}
        self._ill_since: dict[str, float] = {}  # units of which not every detector says OK
        self._held: set[str] = set()  # seen wet by a whole look, and no person cleared it
        self._latched: set[str] = set()  # as the file has it
        self.breaches: list[str] = []  # told after the act: what is asked may catch an exception
        self.counts: Counter[str] = Counter()
        asyncio.run(self._look())  # what was never shown is missed by nobody
        self.rig.wires.before = self._before
        self.rig.wires.after = self._die

    @property
    def steps(self) -> int:
        return self.rig.wires.calls + sum(self.counts[state] for state in STATES)

    def run(self, acts: int) -> None:
        for _ in range(acts):
            self.act()

    def act(self) -> None:
        """Let one thing happen."""
        self.rig.rack.advance(300)
        chosen = self._rng.random()
        name = self._rng.choice(TRAYS)
        try:
            self._act(chosen, name)
        except Died:
            self.counts["deaths"] += 1
        self._latched = self._read_latched()
        self.counts["acts"] += 1
        assert not self.breaches, self.breaches

    def _act(self, chosen: float, name: str) -> None:
        if chosen < 0.15:
            self._change()
        elif chosen < 0.30:
            self.rig.tray(name).power = "Off"
        elif chosen < 0.55:
            asyncio.run(self._look())
        elif chosen < 0.70:
            self._clear(self._rng.choice(PLACED))
        elif chosen < 0.90:
            asyncio.run(ask_for_power(self.rig, self._rng.choice(PLACED)))
            self.counts["asked"] += 1
        elif chosen < 0.95:
            self._mend()
        elif chosen < 0.98:
            self._update()
        else:
            self._reboot()

    def _reboot(self) -> None:
        self._begin_anew("cold")
        ended = reboot(self.rig)
        self.counts[f"cold reboot {ended.do}"] += 1
        if ended.do is not Do.DONE:
            self._come_back()

    def _unit(self, name: str) -> Tray | Switch:
        return self.rig.switch(name) if name.startswith("s") else self.rig.tray(name)

    def _begin_anew(self, journal: str) -> None:
        if self._rng.random() < 0.5:  # else the last one goes on
            (self.rig.folder / journal).unlink(missing_ok=True)

    def _change(self) -> None:
        """Let one detector say something else from now on."""
        name = self._rng.choice(PLACED)
        state = self._rng.choices(STATES, WEIGHTS)[0]
        self._set(name, self._rng.choice(self._named[name]), state)

    def _set(self, name: str, detector: str, state: str) -> None:
        unit = self._unit(name)
        unit.detectors.pop(detector, None)
        if state != "gone":
            unit.detectors[detector] = state
        unit.shown.change()
        self.counts[state] += 1
        well = dict.fromkeys(self._named[name], "OK") == unit.detectors
        if well:
            self._ill_since.pop(name, None)
        else:
            self._ill_since.setdefault(name, self.rig.rack.now)

    def _mend(self) -> None:
        """Persons dry all of it, feed it, say so, and ask for power for each unit."""
        for name in PLACED:
            for detector in self._named[name]:
                self._set(name, detector, "OK")
        self._come_back()
        self.rig.rack.advance(600)
        for what in (self._look, self._look):
            self._insist(what)
            self.rig.rack.advance(600)
        for name in PLACED:
            self._clear(name)
        self._latched = self._read_latched()
        for name in PLACED:
            if self._unit(name).power != "On":
                self._insist(partial(ask_for_power, self.rig, name))
        self.counts["mended"] += 1
        self.rig.rack.advance(900)
        self._rng.choice((self._update, self._reboot, lambda: None))()

    def _insist(self, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do it again after a death."""
        for _ in range(4):
            try:
                asyncio.run(act())
                return
            except Died:
                self.counts["deaths"] += 1

    def _come_back(self) -> None:
        """A person ends what a cold reboot left: shelves on, policies as they were."""
        self.rig.rack.feed()
        shelf = self.rig.shelf("p0")
        shelf.power = dict.fromkeys(shelf.power, "On")

    def _update(self) -> None:
        self._begin_anew("journal")
        if not (self.rig.folder / "journal").exists():
            for tray in map(self.rig.tray, TRAYS):
                for bundle in ("host", "hgx"):
                    tray.active.update(self._rng.choice((OLD, NEW))[bundle])
        self._insist(self._live)

    async def _live(self) -> None:
        ended = await self.rig.live()
        done = not isinstance(ended, list) and ended[0].finished
        self.counts["updates done" if done else "updates held or stopped"] += 1

    async def _look(self) -> None:
        update = self.rig.update()
        rack = update.plan.racks[0]
        wet = self._find_wet()
        with open_water(update.water) as store:
            racked = Racked(rack, update.bmcs, update.addresses, store, pause=self.rig.pause)
            known = await racked.look()
            self._held |= wet & self._find_wet()
            if lost := self._held - self._read_latched():
                self.breaches.append(f"{lost} was seen wet, and is not stored as wet")
            await switch_wet_off(racked, known)
        self.counts["looks"] += 1

    def _find_wet(self) -> set[str]:
        """Return the units of which a detector says so and whose BMC answers now."""
        units = {name: self._unit(name) for name in PLACED}
        up = {name: one for name, one in units.items() if one.bmc_up <= self.rig.rack.now}
        return {name for name, one in up.items() if "Critical" in one.detectors.values()}

    def _clear(self, name: str) -> None:
        with open_water(self.rig.folder / "water.json") as store:
            told = clear_latch(name, store.units.get(name, UnitWater()), "amy", "dry")
            if isinstance(told, UnitWater):
                store.units[name] = told
                store.save()
                self._held.discard(name)
                self.counts["cleared"] += 1

    def _read_latched(self) -> set[str]:
        file = self.rig.folder / "water.json"
        known = json.loads(file.read_text())["units"] if file.exists() else {}
        return {name for name, one in known.items() if one["latched"]}

    def _judge(self, what: str, name: str, since: float) -> None:
        """Note if a unit that gets power was ill before `since`, or is held as wet, or below."""
        own = self._ill_since.get(name)
        if own is not None and own < since:
            self.breaches.append(f"{what}: {name} is ill since {own}: {self._unit(name).detectors}")
        if held := (self._held | self._latched) & set(PLACED[PLACED.index(name) :]):
            self.breaches.append(f"{what}: {name}, and {held} is held as wet")
        self.counts[what] += 1

    def _before(self, url: str, call: Call) -> None:
        """Judge a request that gives power; what changes at its very second nobody can know."""
        if self._rng.random() < CHANGE:
            self._change()
        name = self.rig.rack.hosts[url.rstrip("/")][0]
        now = self.rig.rack.now
        body = call.body if isinstance(call.body, dict) else {}
        if call.method == "POST" and call.path.endswith("ComputerSystem.Reset"):
            if body.get("ResetType") not in ("ForceOff", "GracefulShutdown"):
                self._judge("sent on", name, now)
        elif call.method == "POST" and "AuxPowerReset" in call.path:
            self._judge("sent aux", name, now)
        elif call.method == "POST" and "Chassis." in call.path and "Off" not in str(body):
            if "s0" in self._latched:
                self.breaches.append("a shelf powers a wet switch")
            self.counts["sent shelf on"] += 1
        self._die(url, call)

    def _see(self, event: Event) -> None:
        """Judge what the simulator energised, and what it calls a breach of its own rules."""
        if event.what == "violation":
            raced = event.detail == "power to a wet tray by on"  # its request was judged
            wet_off = event.detail == "ForceOff during a flash"  # coolant first, once it is stored
            if not raced and not (wet_off and event.unit in self._read_latched()):
                self.breaches.append(f"{event}")
        if event.what == "powered":
            since = event.at - self.rig.rack.times.power if event.detail == "on" else event.at
            self._judge(f"powered by {event.detail}", event.unit, since)

    def _die(self, _url: str, call: Call) -> None:
        if self._rng.random() < (DEATH_READING if call.method == "GET" else DEATH):
            raise Died
