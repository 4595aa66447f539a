"""What a round over racks does where one of its reads or acts fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rack_rig import TARGETS, make

from provisioner.integrations.racks.update_world import keep_dry
from provisioner.integrations.racks.water_file import wait_for_water
from provisioner.ports import Call, Unreachable

TRAY = {"compute-tray": TARGETS["compute-tray"]}


def test_a_leak_counts_and_is_forced_off_where_the_power_state_cannot_be_read(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    tray = rig.tray("t0")
    tray.detectors[next(iter(tray.detectors))] = "Critical"
    silent = True

    def answer(call: Call) -> None:
        if silent and call.method == "GET" and "/Systems" in call.path:
            raise Unreachable("no answer", maybe_executed=True)

    rig.wires.before = lambda _, call: answer(call)
    update = rig.update()

    async def scenario() -> None:
        nonlocal silent
        rack, unit = update.find("t0")
        reading = await update.read_water(unit)
        assert (reading.power, reading.unread) == ("Unknown", "")
        async with wait_for_water(update.water, update.pause) as store:
            racked = update.open_rack(rack, store)
            known = await racked.look(update.read_water)
            assert known["t0"].latched
            silent = False
            await keep_dry(update, racked)
        assert tray.power == "Off"

    asyncio.run(scenario())
