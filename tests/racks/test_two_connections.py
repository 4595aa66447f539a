"""How many connections and sessions an update beside the watch of water has at one BMC (A5).

Real HTTPS between the daemon's own transport and simulated BMCs that count; their time is virtual.
`test_serve_killed.py` counts the same of a whole `provisioner serve`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from duty_rig import FLASH, LOGINS, Clock, Daemon
from served_rack import ServedRack

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.integrations.racks.duty.approval import RackCampaignState
from provisioner.integrations.racks.duty.rack_duty import USER, RackDuty
from provisioner.integrations.racks.duty.rack_water import RackWater
from provisioner.integrations.sim.racks.logins import Account

TURNS = 100


class Beside(Clock):
    """The rack's time, which passes by the update's waits alone."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


async def update_beside_the_watch(site: Daemon, rack: ServedRack) -> RackCampaignState:
    """Carry the approved campaign out while the watch of water looks again and again."""
    async with AsyncExitStack() as stack:
        transport = RedfishTransport(ca_file=rack.authority)
        switches = SwitchHttps(ca_file=rack.authority)
        for one in (transport, switches):
            stack.push_async_callback(one.close)
        site.parts.transport = transport
        environ = {**LOGINS, USER: "admin"}
        duty, beside = (
            RackDuty(parts, switches, environ, 60.0)  # type: ignore[arg-type]
            for parts in (site.parts, replace(site.parts, clock=Beside(site.rig)))
        )
        watch = asyncio.create_task(RackWater(beside).run())
        stack.callback(watch.cancel)
        site.duty = lambda: duty  # type: ignore[method-assign]
        for _ in range(TURNS):  # the watch may have what it would begin with, as any time
            if (state := await site.turn()).state is not RackCampaignState.WAITS:
                break
            await asyncio.sleep(0.05)
        return state.state


def test_an_update_beside_the_watch_of_water_has_two_connections_and_one_session_at_a_bmc(
    tmp_path: Path,
) -> None:
    site = Daemon(tmp_path, FLASH)
    rack = ServedRack(site.rig, tmp_path, speed=0.0)

    async def story() -> RackCampaignState:
        runners = [await rack._offer(url) for url in site.rig.rack.hosts]
        try:
            for unit in site.rig.units:
                rack.accounts[unit["bmc"]] = Account("admin", "p", must_change=False)
                unit |= {name: rack.urls[unit[name]] for name in ("bmc", "nvos") if name in unit}
            (tmp_path / "racks.yaml").write_text(site.rig.plan().model_dump_json())
            await asyncio.to_thread(site.approve)
            return await update_beside_the_watch(site, rack)
        finally:
            for runner in runners:
                await runner.cleanup()

    assert asyncio.run(story()) is RackCampaignState.DONE
    assert site.rig.violations() == []
    assert len(site.rig.rack.find("push")) == 2
    bmcs = [url for url, (_, what) in site.rig.rack.hosts.items() if what == "bmc"]
    assert len(bmcs) == 4
    assert max(rack.most[url] for url in bmcs) == 2, rack.most  # and no more
    assert max(rack.asked_most[url] for url in bmcs) <= 2, rack.asked_most
    assert [account.most for account in rack.accounts.values()] == [1] * 4
