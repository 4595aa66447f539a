"""The demonstration's rack with what tests do to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from provisioner.integrations.demo.rack_site import AFTER_NVOS, CHASSIS, NEW, OLD, TARGETS, RackSite
from provisioner.integrations.racks.campaign_run import Outcome
from provisioner.integrations.racks.cold_reboot_run import ColdReboot
from provisioner.integrations.racks.rack_rounds import carry_out
from provisioner.integrations.racks.rack_update import Hands
from provisioner.integrations.racks.update_log import open_log
from provisioner.integrations.racks.update_start import check_packages, find_reasons, prepare
from provisioner.integrations.racks.update_steps import Next
from provisioner.integrations.racks.water_commands import Racked
from provisioner.integrations.racks.water_file import open_water
from provisioner.model.outcome import Blocker


class Rig(RackSite):
    """A site whose update begins, or goes on, with each call of `run`."""

    async def live(self) -> tuple[Outcome, Hands] | list[str]:
        """Begin an update, or go on with it; why it is held where it is."""
        update = self.update()
        check_packages(update.asked, update.plan, self.folder)
        with open_log(self.folder / "journal") as log:
            campaign = await prepare(update, log)
            if not campaign.jobs:
                return list(find_reasons(campaign))
            return await carry_out(update, log, campaign)

    def run(self) -> tuple[Outcome, Hands] | list[str]:
        return asyncio.run(self.live())

    def violations(self) -> list[str]:
        return [f"{e.unit}: {e.detail}" for e in self.rack.find("violation")]


def find_overlaps(rig: Rig) -> list[str]:
    """Return what overlapped on the simulated rack and may not: by its log and its own times.

    A shelf's write beside anything in the rack, two shelves, and a restart of a switch while the
    control plane is made. What one unit may not do twice is the simulator's "violation".
    """
    times = rig.rack.times
    takes = {"push": times.push, "aux": times.bmc_back, "switch reboot": times.nvos_boot}
    takes |= {"push by bmc": times.push, "controller started": times.configure}
    takes |= {"job fetch": times.job, "job install": times.job}
    shelves = {unit["name"] for unit in rig.units if unit["kind"] == "power-shelf"}
    spans = [
        (e.at, e.at + (times.shelf_push if e.unit in shelves else takes[e.what]), e)
        for e in rig.rack.log
        if e.what in takes
    ]
    found = []
    for begin, end, one in spans:
        for other_begin, _, other in spans:
            if other is one or not begin <= other_begin < end:
                continue
            shelf = one.unit in shelves or other.unit in shelves
            same = one.unit == other.unit
            cluster = one.what == "controller started" and other.what == "switch reboot"
            if (shelf and not same) or cluster:
                found.append(f"{other.what} of {other.unit} during {one.what} of {one.unit}")
    return found


def make(tmp_path: Path, targets: dict[str, dict[str, str]], **counts: int) -> Rig:
    shape = {"trays": 1, "switches": 1, "shelves": 1} | counts
    return Rig(tmp_path, targets=targets, **shape)


def run(rig: Rig) -> tuple[Outcome, Hands]:
    ended = rig.run()
    assert not isinstance(ended, list), ended
    return ended


def finish(rig: Rig) -> None:
    outcome, hands = run(rig)
    assert outcome.finished, (outcome, hands.why)
    assert rig.violations() == []
    assert find_overlaps(rig) == []


def held(rig: Rig) -> tuple[str, str]:
    """Run it; return the act that it is held at, and why."""
    outcome, hands = run(rig)
    assert not outcome.finished
    assert rig.violations() == []
    ((_, key),) = outcome.held.items()
    return key, hands.why[key]


def reboot(rig: Rig) -> Next:
    async def run() -> Next:
        update = rig.update()
        with open_log(rig.folder / "cold") as log:
            return await ColdReboot(update, update.plan.racks[0], log).carry_out()

    return asyncio.run(run())


async def ask_for_power(rig: Rig, name: str, building: Path | None = None) -> tuple[Blocker, ...]:
    """Ask as `rack power` does, in a process of its own: the file is the latch."""
    update = rig.update()
    rack, unit = update.find(name)
    with open_water(update.water) as store:
        racked = Racked(
            rack,
            update.bmcs,
            update.addresses,
            store,
            building,
            pause=rig.pause,
            plan=update.plan,
        )
        if refused := await racked.find_refusals(unit, "On"):
            return refused
        failed = await racked.act(unit, "On")
        return () if failed is None else (failed,)


__all__ = ["AFTER_NVOS", "CHASSIS", "NEW", "OLD", "TARGETS", "Rig"]
