"""Devices whose answers are lost, by rule and not by chance: what was asked for happened, or not.

Of each address and path, the first request that changes something is carried out and its answer
lost; of the third nobody can tell whether it arrived, and it did not. So every act has to be looked
for on the device. Others give no answer at all for a time, as where the daemon's machine has lost
its way to them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable

from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.ports import BmcAddress, Call, Reply, SwitchAddress, Unreachable

NO_ANSWER_S = 3.0  # until a request to a device that cannot be reached is given up
_NUMBERED = re.compile(r"(?<=rev=|ion/)[0-9]+")  # each NVUE revision has a path of its own


class Loss:
    """Counts; loses nothing until `on`."""

    def __init__(self) -> None:
        self.on = False
        self.silent: frozenset[str] = frozenset()  # URLs of BMCs and names of switches
        self.unanswered = 0
        self._asked: Counter[tuple[str, str]] = Counter()

    async def reach(self, device: str) -> None:
        """Raise `Unreachable` where there is no way to this device."""
        if device in self.silent:
            self.unanswered += 1
            await asyncio.sleep(NO_ANSWER_S)
            raise Unreachable("no route from this machine", maybe_executed=False)

    async def around(self, url: str, call: Call, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """The answer of one request, if it is not lost."""
        number = 0
        if self.on and call.method in ("POST", "PATCH", "DELETE"):
            kind = _NUMBERED.sub("", call.path)
            self._asked[url, kind] += 1
            number = self._asked[url, kind]
        if number == 3:
            raise Unreachable("no answer, and it never arrived", maybe_executed=True)
        reply = await ask()
        if number == 1:
            raise Unreachable("the answer was lost", maybe_executed=True)
        return reply


class LosingBmcs(MemoryBmcs):
    """BMCs behind such a loss."""

    def __init__(self, services: dict[str, RedfishService], wire: Wire, loss: Loss) -> None:
        super().__init__(services, wire)
        self.loss = loss

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        ask = super().request
        await self.loss.reach(bmc.url)
        return await self.loss.around(bmc.url, call, lambda: ask(bmc, call))

    async def fingerprint(self, bmc: BmcAddress) -> str:
        await self.loss.reach(bmc.url)
        return await super().fingerprint(bmc)


class LosingSwitches(MemorySwitches):
    """Switches behind such a loss."""

    def __init__(self, site: Site, wire: Wire, loss: Loss) -> None:
        super().__init__(site, wire)
        self.loss = loss

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        ask = super().request
        await self.loss.reach(self._find_name(switch.url))
        return await self.loss.around(switch.url, call, lambda: ask(switch, call))
