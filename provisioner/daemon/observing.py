"""The composition of a daemon that observes: read-only ports, and loops that only read.

`narrow_*` put the read-only adapters in the place of the real ones before a part of the daemon gets
them. `ObservingDaemon` starts no scheduler, engine, campaign, repair or tenant keeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from provisioner.adapters.read_only.hosts import (
    NoAgents,
    NoPlays,
    ReadOnlyBmcs,
    ReadOnlyPartitions,
    ReadOnlyPdu,
    ReadOnlyShell,
    ReadOnlySpaces,
    ReadOnlySwitchWire,
)
from provisioner.adapters.read_only.sources import BmcSource, HostSource, OutletSource, SwitchSource
from provisioner.adapters.read_only.switches import ReadOnlySwitches
from provisioner.control.engine.engine import FirstFailure
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.control.node.observing import Eyes, SiteObserver
from provisioner.control.watch.watcher import ALONE
from provisioner.daemon.agents import ServedAgents
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.hosts import Hosts
from provisioner.execution.observe.collector import build_collector
from provisioner.execution.observe.watch import OutOfBand
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.ports import BmcTransport, HostShell, SwitchTransport
from provisioner.runtime.event_loop import end_tasks

SILENT = ServedAgents(NoAgents())


def narrow_bmcs(transport: BmcTransport) -> BmcTransport:
    return ReadOnlyBmcs(BmcSource(transport))


def narrow_switch_wire(transport: SwitchTransport) -> SwitchTransport:
    return ReadOnlySwitchWire(SwitchSource(transport))


def narrow_hosts(hosts: Hosts) -> Hosts:
    """Return an access to hosts that runs the closed list of commands, and no play."""
    return Hosts(NoPlays(), narrow_shell(hosts.shell))


def narrow_shell(shell: HostShell) -> HostShell:
    """Return a shell that runs the closed list of commands."""
    return ReadOnlyShell(HostSource(shell))


def narrow_fabrics(fabrics: Fabrics) -> Fabrics:
    """Return fabrics whose partitions and storage are read; leaves are so by their switches."""
    partitions = fabrics.partitions
    spaces = fabrics.spaces
    return replace(
        fabrics,
        partitions=None if partitions is None else ReadOnlyPartitions(partitions),
        spaces=None if spaces is None else ReadOnlySpaces(spaces),
        memberships=(),  # who observes moves nobody
    )


def narrow_parts(parts: Parts) -> Parts:
    """Return parts of a daemon that cannot act: what has no reading is left out."""
    return replace(
        parts,
        transport=narrow_bmcs(parts.transport),
        switches=ReadOnlySwitches(parts.switches),
        runner=NoPlays(),
        shell=narrow_shell(parts.shell),
        agents=NoAgents(),
        os_images=None,
        login=None,
        passwords=None,
        campaigns=None,
        cases=None,
        tickets=None,
        consoles=None,
        pdus={n: ReadOnlyPdu(n, OutletSource(pdu)) for n, pdu in parts.pdus.items()},
        fabrics=None if parts.fabrics is None else narrow_fabrics(parts.fabrics),
        watch=None if parts.watch is None else replace(parts.watch, listener=""),
    )


class ObservingDaemon:
    """Reads a site and shows the acts that it would carry out. `start` returns at once."""

    def __init__(self, parts: Parts) -> None:
        """`parts` are narrowed here, whatever they are."""
        parts = narrow_parts(parts)
        self.parts = parts
        self.composed = Daemon(parts)  # its loops that act are never started
        composed = self.composed
        self.context = composed.context
        bmcs = OutOfBand(composed.site.reach, parts.clock, parts.settings.watch_requests_per_s)
        eyes = Eyes(
            build_collector(composed.site, parts.matrix),
            composed.tenancy,
            Rechecks(composed.site, parts.store, parts.matrix, parts.thresholds),
            bmcs if composed.watcher is None else composed.watcher.eyes,
        )
        self.observer = SiteObserver(self.context, eyes, parts.matrix)
        self._loops: list[asyncio.Task[None]] = []
        self._failure = FirstFailure()

    async def start(self) -> None:
        """Begin to read, until stopped."""
        watcher = self.composed.watcher
        self._begin(self.observer.run, "observer")
        if watcher is not None and self.parts.watch is not None:
            if self.parts.watch.attach:
                self.parts.watch.attach(watcher, ALONE)
            self._begin(watcher.run, "watcher")
        for name, loop in self.composed.senders.items():
            self._begin(loop, name)

    def _begin(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        task = asyncio.create_task(run(), name=name)
        self._loops.append(task)
        self._failure.watch(task)

    async def wait(self) -> None:
        """Wait until a loop or the store fails; they never end by themselves."""
        await asyncio.gather(*self._loops, self._failure.wait())

    async def stop(self) -> None:
        """Stop reading. The parts that were handed in are closed by their owner."""
        await end_tasks(*self._loops)
        await self.composed.stop()
