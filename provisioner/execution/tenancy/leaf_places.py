"""Readings of one leaf's ports that callers share.

Many hosts ask for their ports on the same leaf at once. The first one is answered at once. Those
that come while its ports are read are answered together afterwards, because an answer has to be of
after the question. So a host never waits for others to come, and a leaf has one reading at a time.
A port that the leaf cannot describe spoils a whole reading: then each caller reads its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.execution.actions.switch_source import SwitchSource
from provisioner.execution.tenancy.shared_reading import SharedReading
from provisioner.model.outcome import Blocker
from provisioner.model.switch import Place
from provisioner.ports import PortError

Places = Mapping[str, frozenset[Place]]


class LeafPlaces:
    """Places of one leaf's ports. `read` may be called by any number of nodes at once."""

    def __init__(self, source: SwitchSource) -> None:
        self._source = source
        self._wanted: set[str] = set()
        self._callers = 0  # of the reading that comes next
        self._readings = SharedReading(self._read_wanted, f"ports of {source.name}")

    async def read(self, interfaces: Sequence[str]) -> Places | Blocker:
        """Return the places of these ports, read after this was called."""
        self._wanted |= set(interfaces)
        self._callers += 1
        places, callers = await self._readings.ask()
        if isinstance(places, Blocker) and callers > 1:
            return await self._read(interfaces)
        if isinstance(places, Blocker):
            return places
        return {interface: places[interface] for interface in interfaces}

    async def close(self) -> None:
        """Stop reading."""
        await self._readings.close()

    async def _read_wanted(self) -> tuple[Places | Blocker, int]:
        interfaces = sorted(self._wanted)
        callers = self._callers
        self._wanted = set()
        self._callers = 0
        return await self._read(interfaces), callers

    async def _read(self, interfaces: Sequence[str]) -> Places | Blocker:
        try:
            return await (await self._source.open()).read_places(interfaces)
        except PortError as problem:
            return self._source.describe(problem)
