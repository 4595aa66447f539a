"""The simulated switch of this operating system, for the contract."""

from __future__ import annotations

from switch_box import FIRST, SECOND, Box
from virtual_time import VirtualClock

from bench_os.bench_device import BenchDevice
from provisioner.ports import SwitchAddress
from provisioner.runtime.switch_systems import Wires


class BenchBox(Box):
    """The operating system for tests."""

    ports = ("p1", "p2")

    def __init__(self) -> None:
        self.device = BenchDevice([("p1", FIRST), ("p2", SECOND)])
        self.clock = VirtualClock()
        self.wires = Wires(None, self.device)  # type: ignore[arg-type]  # it has no HTTPS
        self.address = SwitchAddress("bench://leaf-0")

    def true_vrf(self, port: str) -> str:
        return str(self.device.state["ports"][port]["vrf"])

    def saved_vrf(self, port: str) -> str:
        return str(self.device.startup["ports"][port]["vrf"])

    def plant(self, port: str, vrf: str, *, saved_only: bool = False) -> None:
        documents = (self.device.config, self.device.state)
        for document in (self.device.startup, *(() if saved_only else documents)):
            document["ports"][port]["vrf"] = vrf

    def fail(self, fault: str) -> None:
        self.device.faults.add(fault)

    def add_image(self) -> str:
        self.device.images["installed"].append("2.0")
        return "2.0"

    def count_boots(self) -> int:
        return self.device.boots

    def count_writes(self) -> int:
        return len(self.device.written)
