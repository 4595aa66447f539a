"""`provisioner demo --rack`: the firmware of a simulated rack, with a leak and a lost password.

What drives the units is `provisioner rack update`, as for real ones, over a simulated rack in
virtual time. It proves order, gates and the journal; it proves no duration and no real machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provisioner.integrations.demo.rack_site import RackSite
from provisioner.integrations.racks.campaign_run import Outcome
from provisioner.integrations.racks.rack_rounds import carry_out
from provisioner.integrations.racks.rack_update import Hands
from provisioner.integrations.racks.update_log import open_log
from provisioner.integrations.racks.update_start import prepare
from provisioner.integrations.racks.water import UnitWater, clear_latch
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.rack import Event

LEAKS = "t2"
FORGETS = "s1"
DRY_AFTER_S = 1_800.0  # after its first drop, the tray is dry; a person says so 600 s later
CLEARED_AFTER_S = 2_400.0


class RackDemo(RackSite):
    """Four trays, two NVLink switches, two power shelves; one tray leaks under its first flash."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        super().__init__(folder, trays=4)
        self._say = say
        self._leaked_at: float | None = None
        self._cleared = False
        self.rack.watch = self._plant
        self.switch(FORGETS).faults.default_after_reboot = True
        self.tray(LEAKS).faults.policy_cuts = True

    def _plant(self, event: Event) -> None:
        if (event.unit, event.what) == (LEAKS, "push") and self._leaked_at is None:
            self._leaked_at = event.at
            detector = next(iter(self.tray(LEAKS).detectors))
            self.tray(LEAKS).detectors[detector] = "Critical"

    async def pause(self, seconds: float) -> None:
        await super().pause(seconds)
        if self._leaked_at is None or self._cleared:
            return
        since = self.rack.now - self._leaked_at
        if since > DRY_AFTER_S:
            self.tray(LEAKS).detectors = dict.fromkeys(self.tray(LEAKS).detectors, "OK")
        if since > CLEARED_AFTER_S:
            self._clear()

    def _clear(self) -> None:
        """A person looked, and says so, as `provisioner rack dry` does."""
        with open_water(self.folder / "water.json") as store:
            told = clear_latch(LEAKS, store.units[LEAKS], "demo", "the hose was changed")
            if isinstance(told, UnitWater):
                store.units[LEAKS] = told
                store.save()
                self._cleared = True
                self._say(f"{LEAKS}: a person says that it is dry")

    async def live(self) -> tuple[Outcome, Hands]:
        update = self.update()
        update.say = self._say
        with open_log(self.folder / "journal") as log:
            return await carry_out(update, log, await prepare(update, log))


def run_rack(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Play it; return how it ended: `ok` where every unit is proved and no rule was broken."""
    demo = RackDemo(folder, say)
    outcome, hands = asyncio.run(demo.live())
    tray = demo.tray(LEAKS)
    cut = next((e.at for e in demo.rack.find("policy cut") if e.unit == LEAKS), None)
    powered = [e.at for e in demo.rack.find("powered") if e.unit == LEAKS]
    broken = [f"{e.unit}: {e.detail}" for e in demo.rack.find("violation")]
    ours = [e.detail for e in demo.rack.find("password") if e.unit == FORGETS] == ["ours"]
    return {
        "units": len(demo.rack.units),
        "acts": outcome.done,
        "virtual_h": round(demo.rack.now / 3600, 2),
        "leaked": LEAKS,
        "power_while_wet": sum(cut is not None and at < cut + CLEARED_AFTER_S for at in powered),
        "flashes_of_it": len(tray.flashed),
        "password_set_anew": ours,
        "violations": broken,
        "held": dict(outcome.held),
        "why": {key: hands.why.get(key, "") for key in outcome.held.values()},
        "ok": outcome.finished and ours and not broken,
    }
