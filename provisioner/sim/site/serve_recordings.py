"""Serves recorded BMCs: each is an HTTPS endpoint of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.sim.hardware.clock import FastClock, Schedule
from provisioner.sim.redfish.replay import Replay
from provisioner.sim.site.serve import Addresses, Server


async def serve_recordings(
    trees: Mapping[str, Mapping[str, Mapping[str, Any]]], listen: str = "127.0.0.1", port: int = 0
) -> tuple[Server, dict[str, str]]:
    """Start listening for each tree; return the server and the URLs by the trees' names.

    Raises `OSError` if an address is taken.
    """
    server = Server(FastClock(1.0), Schedule(), Addresses(listen, port))
    urls = {name: await server.add(name, Replay(tree).handle) for name, tree in trees.items()}
    return server, urls
