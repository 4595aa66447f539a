"""Serves a simulated site: every BMC and every switch is an HTTPS endpoint of its own."""

from __future__ import annotations

from functools import partial

from provisioner.sim.site.front import Front
from provisioner.sim.site.serve import Addresses, Server
from provisioner.sim.site.serve_consoles import close_consoles, serve_consoles
from provisioner.sim.site.shared_listener import SharedListener
from provisioner.sim.site.site import Site


async def serve_site(
    site: Site,
    listen: str = "127.0.0.1",
    port: int = 0,
    *,
    consoles: bool = False,
    one_listener: bool = False,
) -> Server:
    """Start listening for everything in the site; fills `site.urls` and `site.redfish`.

    `consoles`: the hosts' serial consoles over SSH, too. `one_listener`: each endpoint has an
    address in 127/8, and all of them one socket. Raises `OSError` if an address is taken.
    """
    shared = SharedListener(port) if one_listener else None
    addresses = Addresses(listen, shared.port if shared else port)
    server = Server(site.clock, site.schedule, addresses, shared)
    server.wired = lambda: bool(site.faults.rules)
    front = Front(site, server.fetch_file, server.deliver_event)
    for name in front.list_names():
        service = front.redfish.get(name)
        bmc = service.bmc if service else None
        site.urls[name] = await server.add(name, partial(front.handle, name), bmc)
    if consoles:
        hosts = [front.redfish[f"{node}/host"] for node in site.machines]
        servers = await serve_consoles(hosts, site.clock, listen)
        server.on_close.append(partial(close_consoles, servers))
    return server
