"""One `SwitchTransport` for a site with two operating systems: each switch by its address.

A switch whose address begins with ssh:// runs SONiC, which has no REST API that we use; every other
one speaks NVUE. The address says it, so that nobody has to be asked before the first request.
"""

from __future__ import annotations

from provisioner.adapters.switches.sonic.sonic import SCHEME
from provisioner.ports import Call, Reply, SwitchAddress, SwitchTransport


class RoutedSwitches:
    """Sends each request to the transport of the switch's operating system."""

    def __init__(self, nvue: SwitchTransport, sonic: SwitchTransport) -> None:
        self._nvue = nvue
        self._sonic = sonic

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        """One request. Raises PortError only."""
        ssh = switch.url.startswith(f"{SCHEME}://")
        return await (self._sonic if ssh else self._nvue).request(switch, call)

    async def close(self) -> None:
        """Close both."""
        await self._sonic.close()
        await self._nvue.close()
