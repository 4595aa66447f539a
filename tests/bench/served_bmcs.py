"""Nodes that serve, for benchmarks: simulated BMCs over HTTPS in a process of their own.

Run by itself it is that process; the argument is the number of nodes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.data import Data
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.redfish.redfish_tree import Answer
from provisioner.integrations.sim.site.serve import Addresses, Front, Server
from provisioner.integrations.sim.site.site import Site
from provisioner.model.certificate import Certificate
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.event_loop import new_event_loop
from provisioner.store.rows import evidence_rows, node_rows


async def offer(server: Server, front: Front, handle: Callable[..., Answer]) -> None:
    """Serve BMCs of nodes that serve, by `handle(name, ...)`, and tell all addresses."""
    told: dict[str, Any] = {}
    for name, service in front.redfish.items():
        assert service.events is not None
        service.events.streamed = False
        for account in service.accounts.accounts.values():
            account.change_required = False  # a node that serves has none of its factory passwords
        url = await server.add(name, partial(handle, name))
        told[name] = [url, service.bmc.username, service.bmc.password]
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def serve(nodes: int) -> None:
    """The server process: tells all addresses, then forgets all sessions at each line it hears."""
    site = Site(nodes, 7, clock=FastClock(1.0))
    server = Server(site.clock, site.schedule, Addresses("127.0.0.1", 0))
    front = Front(site)
    await offer(server, front, front.handle)
    while await asyncio.to_thread(sys.stdin.readline):
        for service in front.redfish.values():
            service.sessions.sessions.clear()
        sys.stdout.write(f"{sum(s.requests for s in front.redfish.values())}\n")
        sys.stdout.flush()
    await server.close()


class Served:
    """The simulated site in a process of its own."""

    SCRIPT: str = __file__
    ORDERS: tuple[str, ...] = ()

    def __init__(self, nodes: int) -> None:
        command = [sys.executable, self.SCRIPT, *self.ORDERS, str(nodes)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.bmcs: dict[str, tuple[str, str, str]] = json.loads(self._process.stdout.readline())

    def forget_sessions(self) -> int:
        """End all sessions; how many requests there were so far."""
        return int(self.tell("forget"))

    def tell(self, line: str) -> str:
        """Its answer to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def certificate(node: str, now: float) -> Certificate:
    """One that is valid for a month."""
    return Certificate(
        id=f"c-{node}", node=node, release="r", profile="p", serials=(), versions=(), boot_id="",
        location="", ports=(), report_digest="", matrix_digest="", issued_at=now,
        expires_at=now + 30 * 86400.0,
    )  # fmt: skip


async def taken_in(data: Data, served: Served, transport: RedfishTransport) -> list[Node]:
    """Released nodes with their BMCs, pins, credentials and certificates."""
    nodes: dict[str, list[BmcRef]] = {}
    for name, (url, username, password) in served.bmcs.items():
        node, _, bmc = name.partition("/")
        pin = await transport.fingerprint(BmcAddress(url))
        nodes.setdefault(node, []).append(BmcRef(name=bmc, url=url, pin=pin, rotated=True))
        await data.vault.put(name, username, Secret(password))
    rows = [released(name, tuple(bmcs)) for name, bmcs in nodes.items()]

    def fill(connection: Connection) -> None:
        for row in rows:
            node_rows.add_node(connection, row)
            evidence_rows.put_certificate(connection, certificate(row.id, time.time()))

    await data.store.write(fill)
    return rows


def released(name: str, bmcs: tuple[BmcRef, ...]) -> Node:
    """A node in its tenant's network."""
    return Node(
        id=name, kind=NodeKind.HOST, state=State.RELEASED, placement=Placement.CUSTOMER,
        certificate=f"c-{name}", tenant="t", bmcs=bmcs,
    )  # fmt: skip


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
