"""The daemon's loop that reads the water of all planned racks, and switches off what is wet.

Each turn reads every detector of each rack, stores what is wet, and then forces it off. A rack of
which a unit has no login is left out: a look that reads half of it would only make dry ones
unknown. An event of a BMC is no more than a reason to look sooner, and is not heard here yet.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from provisioner.integrations.racks.duty.rack_duty import RackDuty, touch_no_node
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import PlannedRack, read_plan
from provisioner.integrations.racks.update_world import Update, keep_dry, wait_all
from provisioner.integrations.racks.water_file import wait_for_water
from provisioner.model.input_error import InputError
from provisioner.runtime import permit

log = logging.getLogger(__name__)
POLL_S = 60.0  # as NVIDIA's infra-controller polls (docs/operations, leak handling)
RACKS_AT_ONCE = 8  # of 27 BMCs each: no more requests than a watch of as many hosts


@dataclass
class RackWater:
    """One per daemon; it shares logins with the duty of campaigns."""

    duty: RackDuty
    poll_s: float = POLL_S

    async def run(self) -> None:
        """Look for ever."""
        while True:
            begun = self.duty.parts.clock.now()
            await self.tick()
            spent = self.duty.parts.clock.now() - begun
            await self.duty.parts.clock.sleep(max(1.0, self.poll_s - spent))

    async def tick(self) -> None:
        """Look at every rack once."""
        folder = Path(self.duty.parts.settings.racks_folder)
        try:
            plan = await asyncio.to_thread(read_plan, folder / "racks.yaml")
            update = await self.duty.open_world(folder, plan)
            racks = [rack for rack in plan.racks if not self._find_missing(rack, update)]
            with permit.name_act(touch_no_node):
                await self._look(update, racks)
        except (InputError, OSError) as error:
            log.error("racks: their water was not read: %s", error)

    async def _look(self, update: Update, racks: list[PlannedRack]) -> None:
        slots = asyncio.Semaphore(RACKS_AT_ONCE)
        async with wait_for_water(update.water, update.pause) as store:

            async def one(rack: PlannedRack) -> None:
                async with slots:
                    await keep_dry(update, update.open_rack(rack, store))

            await wait_all(one(rack) for rack in racks)

    def _find_missing(self, rack: PlannedRack, update: Update) -> list[str]:
        placed = (unit for unit in rack.units if unit.kind is not Kind.POWER_SHELF)
        return [unit.name for unit in placed if unit.name not in update.addresses]
