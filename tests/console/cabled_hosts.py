"""Hosts that were just cabled, for the jobs that take nodes in: BMCs of the simulator over HTTPS,
each with its factory login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any

from console_site import Site

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.serve import Addresses, Front, Server
from provisioner.integrations.sim.site.site import CREDENTIAL_NAMES
from provisioner.integrations.sim.site.site import Site as Rack


@contextmanager
def cabled(site: Site, number: int) -> Iterator[tuple[Sequence[str], Mapping[str, Any]]]:
    """(URLs of the hosts' BMCs, their factory logins by vendor); the site reaches BMCs meanwhile.

    Its other jobs are of a process that reaches none.
    """
    held = AsyncExitStack()

    async def plug() -> tuple[list[str], Mapping[str, Any]]:
        clock = FastClock(1.0)
        rack = Rack(number, 7, clock=clock)
        server, front = Server(clock, rack.schedule, Addresses()), Front(rack)
        held.push_async_callback(server.close)
        urls = [
            await server.add(f"{node}/host", partial(front.handle, f"{node}/host"), m.bmcs["host"])
            for node, m in rack.machines.items()
        ]
        vendors = {m.bmcs["host"].vendor for m in rack.machines.values()}
        logins = rack.build_expected()["factory_credentials"]
        return urls, {name: logins[name] for name in (CREDENTIAL_NAMES.get(v, v) for v in vendors)}

    transport = RedfishTransport()
    try:
        told = site.do(plug())
        with site.reaching(transport):
            yield told
    finally:
        site.do(transport.close())
        site.do(held.aclose())
