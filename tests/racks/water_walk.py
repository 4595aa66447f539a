"""Random looks, words, restarts and asks for power over one rack, held against books of its own.

The books know what each detector showed, what was wet since a person cleared it, and what stands
above what. Power is given exactly where they admit it: nothing else may refuse or admit.
"""

from __future__ import annotations

import random
from collections import Counter

from provisioner.integrations.racks.plan import PlannedRack
from provisioner.integrations.racks.water import (
    UnitWater,
    WaterState,
    clear_latch,
    find_power_refusals,
    fold_look,
)
from provisioner.model.inventory import LeakDetector, Moisture

GIVES = ("On", "ForceOn", "PowerCycle", "AuxCycle", "GracefulRestart", "PushPowerButton", "Nmi")
TAKES = ("ForceOff", "GracefulShutdown")
TRAYS = ("t0", "t1", "s0", "t2")  # from the floor
RACK = PlannedRack.model_validate(
    {
        "name": "r01",
        "chassis_serial": "C1",
        "units": [
            {"name": "p0", "kind": "power-shelf", "u": 1},
            {"name": "t0", "kind": "compute-tray", "u": 11, "slot": 11, "tray_index": 0},
            {"name": "t1", "kind": "compute-tray", "u": 12, "slot": 12, "tray_index": 1},
            {"name": "s0", "kind": "nvlink-switch", "u": 20, "slot": 20, "tray_index": 0},
            {"name": "t2", "kind": "compute-tray", "u": 30, "slot": 30, "tray_index": 2},
        ],
    }
)
UNITS = {unit.name: unit for unit in RACK.units}


class Walk:
    """One walk; `run` may be called again. Raises AssertionError at the first breach."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._known = {name: UnitWater() for name in TRAYS}
        self._shown: dict[str, set[str]] = {name: set() for name in TRAYS}
        self._dry: dict[str, bool] = dict.fromkeys(TRAYS, False)
        self._wet: dict[str, int] = {}  # unit held as wet: whole dry looks since
        self._building: WaterState | None = None
        self.counts: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        rng = self._rng
        for _ in range(steps):
            chosen = rng.random()
            if chosen < 0.45:
                self._look(rng.choice(TRAYS))
            elif chosen < 0.55:
                self._clear(rng.choice(TRAYS))
            elif chosen < 0.57:
                self._restart()
            elif chosen < 0.60:
                states = (None, WaterState.DRY, WaterState.DRY, *WaterState)
                self._building = rng.choice(states)
            else:
                self._ask(rng.choice((*TRAYS, "p0")))

    def _look(self, name: str) -> None:
        rng = self._rng
        if rng.random() < 0.05:
            self._known[name] = fold_look(self._known[name], None, 0.0)
            self._dry[name] = False
            if name in self._wet:
                self._wet[name] = 0
            return
        count = rng.choices((0, 1, 2), (1, 1, 30))[0]
        states = rng.choices(
            (Moisture.DRY, Moisture.WET, Moisture.UNREADABLE), (120, 1, 1), k=count
        )
        look = tuple(
            LeakDetector(slot=f"d{n}", moisture=state, detail="x", source="s")
            for n, state in enumerate(states)
        )
        self._known[name] = fold_look(self._known[name], look, 0.0)
        slots = {one.slot for one in look}
        self._shown[name] |= slots
        whole = bool(slots) and slots == self._shown[name] and set(states) == {Moisture.DRY}
        self._dry[name] = whole
        if Moisture.WET in states:
            self._wet[name] = 0
            self.counts["leaks"] += 1
        elif name in self._wet:
            self._wet[name] = self._wet[name] + 1 if whole else 0

    def _clear(self, name: str) -> None:
        told = clear_latch(name, self._known[name], "amy", "dry")
        admitted = self._wet.get(name, 0) >= 2
        assert isinstance(told, UnitWater) is admitted, (name, told)
        if isinstance(told, UnitWater):
            self._known[name] = told
            del self._wet[name]
            self.counts["cleared"] += 1

    def _restart(self) -> None:
        """Read back what was stored: a restart neither clears nor invents."""
        for name, known in self._known.items():
            self._known[name] = UnitWater.model_validate_json(known.model_dump_json())
        self.counts["restarts"] += 1

    def _ask(self, name: str) -> None:
        act = self._rng.choice(GIVES if self._rng.random() < 0.9 else TAKES)
        told = find_power_refusals(RACK, UNITS[name], act, self._known, self._building)
        above = [n for n in self._wet if UNITS[n].u > UNITS[name].u]
        asked = TRAYS if name == "p0" else (name,)
        dry = all(self._dry[n] and n not in self._wet for n in asked) and not above
        admitted = act in TAKES or (dry and self._building in (None, WaterState.DRY))
        assert (not told) is admitted, (name, act, told, self._wet, self._dry)
        if admitted and act in GIVES:
            self.counts[f"given to {name}"] += 1
        self.counts["asked"] += 1
