"""Setting the time of one BMC as physical work: intent, request, reading. It may be repeated."""

from __future__ import annotations

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.upkeep.bmc_time import read_clock, set_clock
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.model.inventory import BmcClock
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.time_requests import WANT, is_set

READS = 4
SHOWN_LATER_S = 5.0  # between two readings: services start their time client anew
CLOCK = "clock"  # field of the snapshot


def name_act(bmc: str) -> str:
    """Return the ledger's name of the act at one BMC, "node/bmc"."""
    return f"{WANT} {bmc}"


def build_time_work(site: Site, name: str, client: Redfish) -> Work:
    """Return the work at the BMC `name`; one that has the right time gets no request."""
    servers = site.settings.bmc_ntp_servers

    async def read() -> BmcClock | None:
        return await read_clock(client.service, site.clock.now)

    async def look() -> Snapshot:
        clock = await read()
        return {CLOCK: None if clock is None else clock.model_dump(mode="json")}

    async def send() -> Sent | Blocker:
        return await set_clock(client.service, servers, site.clock.now) or Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        clock = await read()
        for _ in range(READS - 1):
            if is_set(clock, servers):
                return None
            await site.clock.sleep(SHOWN_LATER_S)
            clock = await read()
        if is_set(clock, servers):
            return None
        shown = "no clock" if clock is None else f"NTP {clock.ntp}, servers {clock.ntp_servers}"
        skew = "" if clock is None or clock.skew_s is None else f", {clock.skew_s:+.0f} s from ours"
        return Blocker(
            reason=Reason.NOT_ACTIVATED,
            subject=name,
            detail=f"the BMC accepted its time, and shows {shown}{skew}",
            unblock="Look at the BMC's time settings; some want a restart of the BMC for them.",
        )

    return Work(
        act=Act(
            name=name_act(name),
            before={"time": list(servers)},
            look=look,
            send=send,
            happened=lambda _before, now: is_set(_read(now), servers),
        ),
        finish=finish,
    )


def _read(seen: Snapshot) -> BmcClock | None:
    clock = seen.get(CLOCK)
    return None if clock is None else BmcClock.model_validate(clock)
