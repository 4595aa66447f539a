"""The daemon's loop that reads the water of all planned racks, and switches off what is wet.

Each turn reads every detector of each rack, stores what is wet, and then forces it off. A unit of
which the daemon has no login is unknown, which gets no power, and is told by a notice. An event of
a BMC is no more than a reason to look sooner, and is not heard here yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.integrations.racks.duty.rack_duty import USER, RackDuty, touch_no_node
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import PlannedRack, RackPlan, read_plan
from provisioner.integrations.racks.update_world import Update, keep_dry, wait_all
from provisioner.integrations.racks.water_file import wait_for_water
from provisioner.model.input_error import InputError
from provisioner.runtime import permit

log = logging.getLogger(__name__)
POLL_S = 60.0  # as NVIDIA's infra-controller polls (docs/operations, leak handling)
SUBJECT = "rack water"  # of the daemon's notices
NOTICES_MAX = 16  # racks that are named
NAMED_MAX = 4  # units of each
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
            with permit.name_act(touch_no_node):
                await self._look(update, plan.racks)
            told = [_describe(rack, missing) for rack, missing in _find_missing(plan, update)]
        except (InputError, OSError) as error:
            told = [f"the water of no rack was read: {error}"]
        notices = permit.get_scope().notices
        said = tuple(told[:NOTICES_MAX])
        if said and notices.get(SUBJECT) != said:
            log.error("racks: %s", "; ".join(said))
        notices[SUBJECT] = said

    async def _look(self, update: Update, racks: Sequence[PlannedRack]) -> None:
        slots = asyncio.Semaphore(RACKS_AT_ONCE)
        async with wait_for_water(update.water, update.pause) as store:

            async def one(rack: PlannedRack) -> None:
                async with slots:
                    await keep_dry(update, update.open_rack(rack, store))

            await wait_all(one(rack) for rack in racks)


def _find_missing(plan: RackPlan, update: Update) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each rack with its trays and switches of which the daemon has no login."""
    for rack in plan.racks:
        placed = (unit.name for unit in rack.units if unit.kind is not Kind.POWER_SHELF)
        if missing := [name for name in placed if name not in update.addresses]:
            yield rack.name, missing


def _describe(rack: str, missing: Sequence[str]) -> str:
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    named = ", ".join(missing[:NAMED_MAX]) + more
    return f"{rack}: the water of {named} is unknown for want of a login (set {USER})"
