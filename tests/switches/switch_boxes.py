"""One simulated switch of each operating system, as the contract of the `Switch` port needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import bench_os
import pytest
from frr_leaf_box import FrrBox
from small_site import SmallSite
from sonic_standin import NEW, SonicSwitch
from switch_box import FIRST, SECOND, Box
from virtual_time import VirtualClock

from provisioner.execution.actions.reach import SwitchSource
from provisioner.execution.tenancy.leaf import Leaf
from provisioner.integrations.cumulus.system import SYSTEM as CUMULUS
from provisioner.integrations.sonic.system import SYSTEM as SONIC
from provisioner.model.outcome import Blocker
from provisioner.ports import Reply, Secret, Switch, SwitchAddress
from provisioner.runtime.switch_systems import SwitchSystem, SwitchSystems, Wires
from provisioner.settings import Settings

SETTINGS = Settings(
    lookup_networks=("10.64.0.0/16",),
    lookup_reached=("10.64.0.2/32",),
    switch_apply_limit_s=30.0,
)


class CumulusBox(Box):
    """Cumulus Linux: the simulator's switch behind its NVUE API."""

    ports = ("swp1", "swp2")

    def __init__(self) -> None:
        self.site = SmallSite()
        self.clock = self.site.clock
        self.wires = Wires(self.site.transport)
        self.address = SwitchAddress("https://leaf-0", "cumulus", Secret("cumulus"))

    def true_vrf(self, port: str) -> str:
        return self.site.vrf(port)

    def saved_vrf(self, port: str) -> str:
        vrf = self.site.switch.startup["interface"][port].get("ip", {}).get("vrf", "default")
        return str(vrf)

    def plant(self, port: str, vrf: str, *, saved_only: bool = False) -> None:
        self.site.put(port, vrf, *(("startup",) if saved_only else ()))

    def fail(self, fault: str) -> None:
        if fault == "lags":
            self.site.switch.faults.add("moves_ignored")
        elif fault == "garbled":
            self.site.transport.answer = lambda _asked: Reply(200, {}, b"[7]")
        else:
            self.site.transport.answer = lambda asked: (
                None if asked.method == "GET" else Reply(400, {}, b"not permitted")
            )

    def add_image(self) -> str:
        self.site.switch.partitions[2] = "5.12.1.100"
        return "5.12.1.100"

    def count_boots(self) -> int:
        self.site.schedule.advance(self.clock.now())
        return self.site.switch.boots

    def count_writes(self) -> int:
        return len(self.site.lines("POST", "PATCH", "DELETE"))


class SonicBox(Box):
    """SONiC: the stand-in of its commands."""

    ports = ("Ethernet0", "Ethernet4")

    def __init__(self) -> None:
        self.switch = SonicSwitch([("Ethernet0", FIRST), ("Ethernet4", SECOND)])
        self.clock = VirtualClock()
        self.wires = Wires(None, self.switch)  # type: ignore[arg-type]  # it has no HTTPS
        self.address = SwitchAddress("ssh://leaf-0")

    def true_vrf(self, port: str) -> str:
        return self.switch.vrf_of(port).removeprefix("Vrf")

    def saved_vrf(self, port: str) -> str:
        row = self.switch.startup["INTERFACE"][port]
        return str(row.get("vrf_name", "default")).removeprefix("Vrf")

    def plant(self, port: str, vrf: str, *, saved_only: bool = False) -> None:
        row = {} if vrf == "default" else {"vrf_name": f"Vrf{vrf}"}
        self.switch.startup["INTERFACE"][port] = dict(row)
        if not saved_only:
            self.switch.config["INTERFACE"][port] = dict(row)

    def fail(self, fault: str) -> None:
        self.switch.faults.add({"lags": "kernel_lags"}.get(fault, fault))

    def add_image(self) -> str:
        self.switch.images.append(NEW)
        return NEW

    def count_boots(self) -> int:
        return self.switch.boots

    def count_writes(self) -> int:
        heads = ("config save", "f=$(mktemp)", "TSA", "TSB", "sonic-installer set", "systemd-run")
        return sum(line.startswith(heads) for line in self.switch.calls if line != "TSC no-stats")


@dataclass(frozen=True)
class Case:
    """An operating system, and its simulated switch."""

    system: SwitchSystem
    box: Callable[[], Box]


# The third one is the operating system for tests. This is its line.
CASES = (
    Case(CUMULUS, CumulusBox),
    Case(SONIC, SonicBox),
    Case(bench_os.SYSTEM, bench_os.BenchBox),
)
BOXES: dict[str, Callable[[], Box]] = {case.system.facts.name: case.box for case in CASES}
RIGS: dict[str, type[Box]] = {"frr": FrrBox}  # real systems that stand for a switch of a case


def skip_without(system: str, part: str = "") -> None:
    """Skip a scenario on a rig that this machine cannot have, or that lacks a part of the port."""
    rig = RIGS.get(system)
    if rig is not None and rig.absent:
        pytest.skip(rig.absent)
    if rig is not None and part in rig.cannot:
        pytest.skip(rig.cannot[part])


def play(system: str, story: Callable[[Box, Switch, Leaf], Awaitable[Any]]) -> Any:
    """Run a story on a fresh switch: the box, the opened switch, and a leaf over it."""
    skip_without(system)
    box = {**BOXES, **RIGS}[system]()
    settings = SETTINGS.model_copy(update=dict(box.limits))

    async def live() -> Any:
        opened = SwitchSystems(box.wires, [case.system for case in CASES])

        async def lookup() -> SwitchAddress | Blocker:
            return box.address

        source = SwitchSource("leaf-0", lookup, opened, box.clock, settings)
        leaf = Leaf(source, box.clock, settings)
        try:
            return await story(box, await source.open(), leaf)
        finally:
            await leaf.close()

    return box.run(live)
