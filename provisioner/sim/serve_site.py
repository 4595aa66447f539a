"""Serves a whole simulated site: every BMC and every switch an HTTPS endpoint of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from provisioner.sim.bmc import make_service
from provisioner.sim.redfish_answers import Answer
from provisioner.sim.serve import Addresses, Handle, Server
from provisioner.sim.site import Site


def _behind(site: Site, name: str, handle: Handle) -> Handle:
    """The device's `handle` behind the site's fault rules."""

    def asked(
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        serve = partial(handle, method, path, query, headers, body)
        return site.faults.around(name, method, path, serve)

    return asked


async def serve_site(site: Site, listen: str = "127.0.0.1", port: int = 0) -> Server:
    """Start listening for everything in the site; fills `site.urls` and `site.redfish`.

    Raises `OSError` if an address is taken.
    """
    server = Server(site.clock, site.schedule, Addresses(listen, port))
    for node, machine in site.machines.items():
        for bmc, hardware in machine.bmcs.items():
            name = f"{node}/{bmc}"
            service = make_service(machine, bmc, site.clock, server.fetch, server.deliver)
            site.redfish[name] = service
            handle = _behind(site, name, service.handle)
            site.urls[name] = await server.add(name, handle, hardware)
    for name, nvue in site.nvue.items():
        site.urls[name] = await server.add(name, _behind(site, name, nvue.handle))
    site.on_fetch(server.fetch)
    return server
