"""Collects the serial consoles of hosts, one stream for each host, and keeps their lines.

A login that is refused is not repeated for an hour: BMCs lock accounts after a few. Everything else
is tried again after a wait that grows.
"""

from __future__ import annotations

import asyncio
import logging

from provisioner.adapters.redfish.upkeep.leaks import find_console
from provisioner.control.context import Context
from provisioner.execution.actions.reach import HOST, Reach
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.pinned_sets import find_pinned_setting
from provisioner.planning.watch.log_text import LineMeter, LineReader, scrub_text
from provisioner.ports import PortError
from provisioner.ports.agents import ConsoleBook, Consoles
from provisioner.runtime.event_loop import end_tasks

_LOG = logging.getLogger(__name__)
ROUND_S = 30.0  # a new host's console is opened within this
AGAIN_S = 10.0
AGAIN_MAX_S = 600.0
REFUSED_S = 3600.0  # after a refused login or a door that is not offered
PRUNE_S = 3600.0
DAY_S = 86400.0


class ConsoleWatch:
    """`run` collects for ever. At most `consoles_max` streams are open."""

    def __init__(
        self, context: Context, reach: Reach, matrix: Matrix, consoles: Consoles, book: ConsoleBook
    ) -> None:
        self._matrix = matrix
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._reach = reach
        self._consoles = consoles
        self._book = book
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(context.settings.consoles_max)

    async def run(self) -> None:
        """Collect until cancelled."""
        prune_at = 0.0
        try:
            while True:
                await self.run_round()
                if self._clock.now() >= prune_at:
                    prune_at = self._clock.now() + PRUNE_S
                    days = self._settings.console_days
                    await self._book.prune(self._clock.now() - days * DAY_S)
                await self._clock.sleep(ROUND_S)
        finally:
            await self.close()

    async def run_round(self) -> None:
        """Open the consoles of hosts that have none open, and close those of hosts that left."""
        nodes = {
            node.id: node
            for node in await self._store.nodes.list()
            if node.kind is NodeKind.HOST and node.state is not State.RETIRED and _is_ours(node)
        }
        for name in [n for n in self._streams if n not in nodes]:
            self._streams.pop(name).cancel()
        for name, node in nodes.items():
            if name not in self._streams or self._streams[name].done():
                task = asyncio.create_task(self._follow(node), name=f"console {name}")
                self._streams[name] = task

    async def close(self) -> None:
        tasks = list(self._streams.values())
        self._streams.clear()
        await end_tasks(*tasks)

    async def _follow(self, node: Node) -> None:
        wait_s = AGAIN_S
        meter = LineMeter(self._settings.console_lines_per_minute)
        while True:
            began = self._clock.now()
            try:
                async with self._slots:
                    refused = await self._collect(node, meter)
            except PortError as error:
                refused = error.reason is Reason.LOGIN_REFUSED
                _LOG.info("the console of %s: %s", node.id, error)
            if refused:
                await self._clock.sleep(REFUSED_S)
                continue
            lived = self._clock.now() - began > AGAIN_MAX_S
            wait_s = AGAIN_S if lived else min(2 * wait_s, AGAIN_MAX_S)
            await self._clock.sleep(wait_s)

    async def _collect(self, node: Node, meter: LineMeter) -> bool:
        """Collect until the stream ends; return whether the BMC refuses it for good."""
        client = await self._reach.redfish(node, HOST)
        if isinstance(client, Blocker):
            return True
        ipmi = self._settings.consoles == "ssh_or_ipmi"
        left_on = find_pinned_setting(self._matrix, node, "ipmi") != "off"
        door = await find_console(client.service, ipmi=ipmi and left_on)
        if isinstance(door, Blocker):
            _LOG.info("the console of %s: %s", node.id, door)
            return True
        secret = client.address.secret
        secrets = (secret.reveal(),) if secret is not None else ()
        reader = LineReader()
        async with self._consoles.open(node.id, client.address, door) as pieces:
            async for piece in pieces:
                now = self._clock.now()
                lines = meter.admit_lines(reader.feed(piece), now)
                clean = [scrub_text(line, secrets)[0] for line in lines]
                await self._book.append(node.id, clean, now)
        return False


def _is_ours(node: Node) -> bool:
    """Return whether the BMC's credential is the daemon's own: no factory login is tried."""
    return any(bmc.name == HOST and bmc.rotated for bmc in node.bmcs)
