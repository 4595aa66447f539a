"""BMCs whose answers are lost, by rule and not by chance: what was asked for happened, or did not.

Of each address and path, the first POST is carried out and its answer lost; of the third nobody can
tell whether it arrived, and it did not. So every physical act has to be looked for on the device.
"""

from __future__ import annotations

from collections import Counter

from provisioner.ports import BmcAddress, Call, Reply, Unreachable
from provisioner.sim.redfish_service import RedfishService
from provisioner.twin.wires import MemoryBmcs, Wire


class LosingBmcs(MemoryBmcs):
    """Loses nothing until `losing` is set."""

    def __init__(self, services: dict[str, RedfishService], wire: Wire) -> None:
        super().__init__(services, wire)
        self.losing = False
        self._posts: Counter[tuple[str, str]] = Counter()

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        number = 0
        if self.losing and call.method == "POST":
            self._posts[bmc.url, call.path] += 1
            number = self._posts[bmc.url, call.path]
        if number == 3:
            raise Unreachable("no answer, and it never arrived", maybe_executed=True)
        reply = await super().request(bmc, call)
        if number == 1:
            raise Unreachable("the answer was lost", maybe_executed=True)
        return reply
