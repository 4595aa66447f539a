"""One leaf of real FRRouting for the contract of the `Switch` port, behind the rig's REST API.

VRFs, addresses, filters, counters and BGP are the kernel's and FRRouting's own. `CANNOT`
names the parts of the port for which it cannot stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from frr_boxes import Box as Namespace
from frr_boxes import cable, why_not
from frr_nvue import PASSWORD, USER, Nvue
from frr_switch import FrrSwitch
from switch_box import FIRST, SECOND, Box

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.ports import Secret, SwitchAddress
from provisioner.runtime.switch_systems import Wires
from provisioner.runtime.wall_clock import WallClock

ON = {"enable": "on"}
CANNOT = {
    "images": "the rig has no images of a switch: its API only names partitions",
    "rule numbers": "the kernel's packet filter keeps the order of rules, and not their numbers",
    "garbled": "the rig's answers are those of its daemons, and are never damaged",
}
UNDER_WAY = frozenset({"verifying", "reloading"})
# real time: a change takes a tenth of a second here
QUICK = {"switch_poll_s": 0.05, "switch_apply_limit_s": 10.0, "switch_gather_s": 0.01}
SETTLED_S = 30.0  # a loaded machine; an idle one needs a fraction of a second


class FrrBox(Box):
    """A leaf in a network namespace, with a host at each of its two ports."""

    ports = ("swp1", "swp2")
    absent = why_not()
    cannot = CANNOT
    limits = QUICK

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="frr-")))
        self._leaf = FrrSwitch("leaf-0", folder / "leaf-0")
        self._open.callback(self._leaf.stop)
        for port in self.ports:
            host = Namespace(f"host-{port}", folder / port)
            self._open.callback(host.stop)
            cable(self._leaf, port, host, "eth0")
        self._api = Nvue(self._leaf, _startup(self.ports))
        self._open.callback(self._api.stop)
        self._api.start()
        self.clock = WallClock()

    def run(self, live: Callable[[], Awaitable[Any]]) -> Any:
        """Run in an event loop of real time, and end everything afterwards."""

        async def connected() -> Any:
            wire = SwitchHttps()
            self.wires = Wires(wire)
            url = self._api.url.replace("127.0.0.1", "localhost")
            self.address = SwitchAddress(url, USER, Secret(PASSWORD), self._api.pin, "cumulus")
            try:
                return await live()
            finally:
                await wire.close()

        with self._open:
            return asyncio.run(connected())

    def true_vrf(self, port: str) -> str:
        return self._leaf.interfaces()[port][0]

    def saved_vrf(self, port: str) -> str:
        return str(self._api.startup["interface"][port]["ip"].get("vrf", "default"))

    def plant(self, port: str, vrf: str, *, saved_only: bool = False) -> None:
        self._api.startup["interface"][port]["ip"]["vrf"] = vrf
        if not saved_only:
            self._api.applied["interface"][port]["ip"]["vrf"] = vrf
            self._leaf.carry_out(self._api.applied)

    def fail(self, fault: str) -> None:
        if fault == "lags":
            self._leaf.carry_out = lambda _tree: None  # type: ignore[method-assign]
        elif fault == "refuses":
            self._api.before_apply = _refuse
        else:
            raise AssertionError(CANNOT[fault])

    def count_writes(self) -> int:
        return sum(method != "GET" for method, _path in self._api.requests)

    async def pass_time(self, _seconds: float) -> None:
        """Wait until every revision has ended and zebra has the routes of the ports' addresses."""
        until = self.clock.now() + SETTLED_S
        while self._is_under_way() or not await asyncio.to_thread(self._has_routes):
            assert self.clock.now() < until, "the leaf does not settle"
            await self.clock.sleep(0.05)

    def _is_under_way(self) -> bool:
        return any(r.state in UNDER_WAY for r in self._api.revisions.values())

    def _has_routes(self) -> bool:
        ports = self._leaf.interfaces()
        return all(
            str(ipaddress.ip_interface(address).network)
            in json.loads(self._leaf.show("zebra", f"show ip route vrf {ports[port][0]} json"))
            for port in self.ports
            for address in ports[port][1].addresses
            if "." in address
        )


def _refuse() -> None:
    raise AssertionError("not permitted")


def _startup(ports: tuple[str, str]) -> dict[str, Any]:
    addresses = dict(zip(ports, (FIRST, SECOND), strict=True))
    interfaces = {
        port: {"type": "swp", "ip": {"address": {address: {}}}}
        for port, address in addresses.items()
    }
    loopback = {"lo": {"ip": {"address": {"10.240.0.0/32": {}}}}}
    return {
        "evpn": ON,
        "nve": {"vxlan": {**ON, "source": {"address": "10.240.0.0"}}},
        "router": {"bgp": {**ON, "autonomous-system": 65001, "router-id": "10.240.0.0"}},
        "interface": {**loopback, **interfaces},
        "vrf": {"default": {}, "mgmt": {}, "MAINT": {}, "RED": {}},
    }
