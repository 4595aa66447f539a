"""Random acts over a simulated rack, held at its own wires: what gets power is dry and known.

Persons ask for power, cold reboots and looks come and die at any write; detectors leak, dry and
vanish. The books are the simulator's: whatever energises a host, by whichever request or restore
policy, is seen where the power comes on.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from rack_rig import Rig, ask_for_power, reboot

from provisioner.integrations.racks.update_steps import Do
from provisioner.integrations.racks.water import UnitWater, clear_latch
from provisioner.integrations.racks.water_commands import Racked, switch_wet_off
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.rack import Event
from provisioner.ports import Call

TRAYS = ("t0", "t1", "t2")
DEATH = 0.05  # of each write, before it or after it


class Died(BaseException):
    """The process is gone."""


class WiresWalk:
    """One walk; `run` may be called again. Raises AssertionError at the first breach."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.rig = Rig(folder, trays=len(TRAYS), switches=1, shelves=1)
        self.rig.rack.watch = self._see
        self.rig.wires.before = self.rig.wires.after = self._die
        self._latched: set[str] = set()  # as somebody stored it, until a person cleared it
        self.counts: Counter[str] = Counter()

    def run(self, acts: int) -> None:
        for _ in range(acts):
            self.rig.rack.advance(300)
            chosen = self._rng.random()
            name = self._rng.choice(TRAYS)
            try:
                self._act(chosen, name)
            except Died:
                self.counts["deaths"] += 1
        self.counts["requests"] = self.rig.wires.calls

    def _act(self, chosen: float, name: str) -> None:
        tray = self.rig.tray(name)
        if chosen < 0.25:
            state = self._rng.choices(("OK", "Critical", "Unavailable"), (6, 1, 1))[0]
            tray.detectors[self._rng.choice(list(tray.detectors))] = state
            self.counts[state] += 1
        elif chosen < 0.35:
            tray.power = "Off"
        elif chosen < 0.60:
            asyncio.run(self._look())
        elif chosen < 0.70:
            self._clear(name)
        elif chosen < 0.97:
            asyncio.run(ask_for_power(self.rig, name))
            self.counts["asked"] += 1
        else:
            if self._rng.random() < 0.5:  # else the last one goes on
                (self.rig.folder / "cold").unlink(missing_ok=True)
            ended = reboot(self.rig)
            self.counts[f"cold reboot {ended.do}"] += 1
            if ended.do is not Do.DONE:
                self._come_back()

    def _come_back(self) -> None:
        """A person ends what a cold reboot left: shelves on, policies as they were."""
        self.rig.rack.feed()
        shelf = self.rig.shelf("p0")
        shelf.power = dict.fromkeys(shelf.power, "On")

    async def _look(self) -> None:
        update = self.rig.update()
        rack = update.plan.racks[0]
        with open_water(update.water) as store:
            racked = Racked(rack, update.bmcs, update.addresses, store, pause=self.rig.pause)
            known = await racked.look()
            self._latched |= {name for name, one in known.items() if one.latched}
            await switch_wet_off(racked, known)
        self.counts["looks"] += 1

    def _clear(self, name: str) -> None:
        with open_water(self.rig.folder / "water.json") as store:
            told = clear_latch(name, store.units.get(name, UnitWater()), "amy", "dry")
            if isinstance(told, UnitWater):
                store.units[name] = told
                store.save()
                self._latched.discard(name)
                self.counts["cleared"] += 1

    def _see(self, event: Event) -> None:
        """Judge what the simulator energised."""
        assert event.what != "violation", event
        if event.what == "powered":
            tray = self.rig.tray(event.unit)
            assert set(tray.detectors.values()) == {"OK"}, (event, tray.detectors)
            assert event.unit not in self._latched, event
            above = TRAYS[TRAYS.index(event.unit) + 1 :]
            assert not self._latched & set(above), event
            self.counts[f"powered by {event.detail}"] += 1

    def _die(self, _url: str, call: Call) -> None:
        if call.method != "GET" and self._rng.random() < DEATH:
            raise Died
