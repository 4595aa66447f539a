"""The reader of leaves' port counters for the API: its switches can only be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from provisioner.adapters.read_only.switches import ReadOnlySwitches
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switches import make_switches
from provisioner.adapters.switches.https_wire import SwitchHttps
from provisioner.daemon.tenants import FabricAccess
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.switch_source import SwitchSource
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.switch import PortCounters
from provisioner.ports import Clock, Credentials, PortError, SwitchAddress


class LeafReader:
    """`ports.PortReader` over HTTPS. Leaves with a shell belong to the daemon's own parts."""

    def __init__(self, reach: Reach, clock: Clock, access: FabricAccess) -> None:
        self._reach = reach
        self._clock = clock
        self._settings = access.settings

    async def read_counters(
        self, leaf: Node, interfaces: Sequence[str]
    ) -> dict[str, PortCounters] | Blocker:
        """Return the counters of some ports of a leaf now, or why it gives none."""

        async def lookup() -> SwitchAddress | Blocker:
            return await self._reach.switch(leaf)

        source = SwitchSource(leaf.id, lookup, self._reach.switches, self._clock, self._settings)
        try:
            switch = await source.open()
            return {name: await switch.read_counters(name) for name in interfaces}
        except PortError as problem:
            return source.describe(problem)


@asynccontextmanager
async def open_port_reader(
    credentials: Credentials, clock: Clock, access: FabricAccess
) -> AsyncIterator[LeafReader]:
    """Yield a reader of ports, and close its connections at the end."""
    switches = SwitchHttps(ca_file=access.ca_file)
    reach = Reach(RedfishTransport(), ReadOnlySwitches(make_switches(switches)), credentials)
    try:
        yield LeafReader(reach, clock, access)
    finally:
        await reach.transport.close()
        await switches.close()
