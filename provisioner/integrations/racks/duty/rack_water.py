"""The daemon's loop that reads the water of all planned racks, and switches off what is wet.

Each turn reads every detector of each rack, stores what is wet, and then forces it off. A unit of
which the daemon has no login is unknown, which gets no power, and is told by a notice. An event of
a BMC is no more than a reason to look at its unit at once; what it shows wet is stored and forced
off while the turn goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.adapters.redfish.eventing.events import Pushed
from provisioner.integrations.racks.duty.approval import (
    RackCampaignState,
    list_campaigns,
    read_approval,
    read_state,
)
from provisioner.integrations.racks.duty.rack_duty import USER, RackDuty, touch_no_node
from provisioner.integrations.racks.duty.rack_events import RackEvents
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import PlannedRack, RackPlan, read_plan
from provisioner.integrations.racks.update_world import (
    Update,
    is_wet,
    keep_dry,
    switch_off,
    wait_all,
)
from provisioner.model.input_error import InputError
from provisioner.model.node import State
from provisioner.runtime import permit
from provisioner.runtime.event_loop import end_tasks

log = logging.getLogger(__name__)
POLL_S = 60.0  # as NVIDIA's infra-controller polls (docs/operations, leak handling)
SUBJECT = "rack water"  # of the daemon's notices
NOTICES_MAX = 16  # racks that are named
NAMED_MAX = 4  # units of each
LOOK_S = 30.0  # at one unit, because of an event; else the poll sees it
OFF_S = 5.0  # that a turn waits for its Offs; each is followed for two minutes
LOOKS_AT_ONCE = 64  # of a whole site, beside the poll
RACKS_AT_ONCE = 8  # of 27 BMCs each: no more requests than a watch of as many hosts


@dataclass
class RackWater:
    """One per daemon; it shares logins with the duty of campaigns."""

    duty: RackDuty
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        parts = self.duty.parts
        streams = None if parts.watch is None else parts.watch.streams
        self.events = RackEvents(parts.transport, streams, parts.clock, self.look_at)
        self._update: Update | None = None  # of the last turn
        self._units: Mapping[tuple[str, str], str] = {}  # by the node's name and its BMC's
        self._offs: set[asyncio.Task[None]] = set()  # under way, and looked after
        self._slots = asyncio.Semaphore(LOOKS_AT_ONCE)  # for a reading alone, and not for an Off

    async def run(self) -> None:
        """Look for ever."""
        parts = self.duty.parts
        if parts.watch is not None:
            parts.watch.heard.append(self._hear)
        self.duty.on_busy = self.events.rest
        try:
            while True:
                begun = parts.clock.now()
                await self.tick()
                spent = parts.clock.now() - begun
                await parts.clock.sleep(max(1.0, self.poll_s - spent))
        finally:
            if parts.watch is not None:
                parts.watch.heard.remove(self._hear)
            await self.events.close()
            await end_tasks(*self._offs)

    async def tick(self) -> None:
        """Look at every rack once."""
        folder = Path(self.duty.parts.settings.racks_folder)
        try:
            plan = await asyncio.to_thread(read_plan, folder / "racks.yaml")
            update = await self.duty.open_world(folder, plan)
            if self._update is not None:
                update.know(self._update)
            self._update = update
            self._follow(update, await asyncio.to_thread(_find_racks_out, folder))
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
        begun: list[asyncio.Task[None]] = []

        async def one(rack: PlannedRack) -> None:
            async with slots, update.held.hold(update.water, update.pause) as store:
                await keep_dry(update, update.open_rack(rack, store), begun)

        try:
            await wait_all(one(rack) for rack in racks)
        finally:
            self._offs.update(begun)
        if self._offs:  # one that does not go off keeps the next turn from nobody
            ended, self._offs = await asyncio.wait(self._offs, timeout=OFF_S)
            for task in ended:
                task.result()

    async def look_at(self, name: str) -> None:
        """Look at one unit now. What is wet is stored and forced off; dryness is the poll's."""
        update = self._update
        racks = () if update is None else update.plan.racks
        rack = next((r for r in racks if any(u.name == name for u in r.units)), None)
        if update is None or rack is None or name not in update.addresses:
            return
        with permit.name_act(touch_no_node):
            unit = next(one for one in rack.units if one.name == name)
            async with self._slots, asyncio.timeout(LOOK_S):
                reading = await update.read_water(unit)
            if not is_wet(reading):
                return
            async with update.held.hold(update.water, update.pause, at_once=True) as store:
                racked = update.open_rack(rack, store)
                known = await racked.store_wet(name, reading)
            if reading.power != "Off":  # it may refuse that, and goes on to send events
                await switch_off(update, racked, known)

    def _hear(self, node: str, bmc: str, document: Pushed) -> None:
        if (name := self._units.get((node, bmc))) is not None:
            self.events.hear(name, document)

    def _follow(self, update: Update, out: Collection[str]) -> None:
        """Follow the BMCs of all trays and switches, but those whose events come otherwise.

        The watch of this daemon follows those of released hosts, and tells `_hear`; among several
        daemons it is another one's. A BMC has two connections of ours at most: while a campaign has
        its domain out, one is for a push, which takes minutes, and one for its detectors, which
        each round reads. A stream would be a third, or hide a leak for as long as a push.
        """
        placed = self.duty.placed
        self._units = {(node.id, ref.name): name for name, (node, ref) in placed.items()}
        watched = {name for name, (node, _) in placed.items() if node.state is State.RELEASED}
        if self.duty.parts.shared is not None:
            watched = set()
        shelves = {
            unit.name
            for rack in update.plan.racks
            for unit in rack.units
            if unit.kind is Kind.POWER_SHELF or rack.name in out
        }
        others = watched | shelves | set(self.duty.busy)
        self.events.follow({n: a for n, a in update.addresses.items() if n not in others})


def _find_racks_out(folder: Path) -> Collection[str]:
    """Return the racks of campaigns that may begin at any time, and are read for that."""
    out: set[str] = set()
    with contextlib.suppress(InputError, OSError):  # `RackDuty` tells of it; water is read anyway
        for campaign in list_campaigns(folder):
            with contextlib.suppress(InputError, OSError):
                state = read_state(campaign)
                if state is None or state.state is RackCampaignState.WAITS:
                    out |= set(read_approval(campaign).racks)
    return out


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
