"""The one entry to everything that a simulated site serves: BMCs and switches by name.

Network servers and transports in memory both call `Front.handle`; faults are applied here, so that
they act alike on both.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.sim.redfish.bmc import make_service, no_server
from provisioner.sim.redfish.redfish_answers import GONE, Answer
from provisioner.sim.redfish.redfish_events import Deliver
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_updates import Fetch
from provisioner.sim.site.site import Site
from provisioner.sim.switches import ufm
from provisioner.sim.switches.nvue import NvueService


class Front:
    """All services of a site. BMCs and switches download images with `fetch`."""

    def __init__(
        self, site: Site, fetch: Fetch = no_server, deliver: Deliver | None = None
    ) -> None:
        self.site = site
        self.redfish: dict[str, RedfishService] = {}
        for node, machine in site.machines.items():
            for bmc in machine.bmcs:
                more = {} if deliver is None else {"deliver": deliver}
                self.redfish[f"{node}/{bmc}"] = make_service(
                    machine, bmc, site.clock, fetch, **more
                )
        site.redfish = dict(self.redfish)
        site.on_fetch(fetch)

    def list_names(self) -> list[str]:
        """Every name with its own address: "su0-n00/DPU_1", "leaf-su0-r3"."""
        return [*self.redfish, *self.site.nvue, *([ufm.NAME] if self.site.ufm else [])]

    def is_reachable(self, name: str) -> bool:
        """Whether this address accepts connections now."""
        site = self.site
        now = site.advance()
        if name == ufm.NAME:
            return site.ufm is not None
        if name in site.switches:
            return site.switches[name].is_up(now)
        service = self.redfish.get(name)
        return service is not None and service.bmc.get_phase(now) != "gone"

    def handle(
        self,
        name: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        peer: str = "",
    ) -> Answer:
        """One request to one address; `GONE`: no answer. Header names are lowercase."""
        if not self.is_reachable(name):
            return GONE

        def serve() -> Answer:
            if name == ufm.NAME and self.site.ufm is not None:
                return self.site.ufm.handle(method, path, query, headers, body)
            service: RedfishService | NvueService | None = self.redfish.get(name)
            if isinstance(service, RedfishService):
                return service.handle(method, path, query, headers, body, peer)
            return self.site.nvue[name].handle(method, path, query, headers, body)

        return self.site.faults.apply_rules(name, method, path, serve, headers)
