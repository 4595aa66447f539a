"""A simulated host seen from inside: what its tools have to look at.

Everything comes from the machine's truth; only measured values vary, by a seeded `rng` of its own,
a little around a healthy level.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.hardware.parts import Device
from provisioner.sim.switches.switch import Switch


class Output(NamedTuple):
    """How a command ended. `rc` None: it did not end within its limit."""

    rc: int | None
    stdout: str
    stderr: str = ""


@dataclass(frozen=True)
class Cable:
    """One rail: which switch port a card is truly plugged into."""

    rail: int
    nic_slot: str
    switch: Switch
    interface: str


class HostView:
    """One host's inside at one moment of the simulated time (`now`, seconds since the epoch)."""

    def __init__(self, machine: Machine, cables: tuple[Cable, ...], seed: str) -> None:
        self.machine, self.cables = machine, cables
        self.rng = random.Random(seed)
        self.now = 0.0
        self.damaged: dict[str, int] = {}  # card's slot -> frames that its port received damaged
        # files in /run: path -> boot id of the system that wrote it, content
        self.volatile: dict[str, tuple[str | None, str]] = {}
        self.serving: dict[int, tuple[str, str]] = {}  # port -> RDMA device, boot id
        # address -> the host that has it, and the rail or -1 (the site fills it)
        self.peers: Mapping[str, tuple[HostView, int]] = {}

    @property
    def reachable(self) -> bool:
        """Whether its operating system answers SSH."""
        host = self.machine.host
        return host.phase == "up" and host.boot_id is not None

    @property
    def gpus(self) -> list[Device]:
        """The GPUs that the driver sees, in PCI order, as it numbers them."""
        return self._present("gpu")

    @property
    def cards(self) -> list[Device]:
        """SuperNICs and DPUs that the host sees, in PCI order: mlx5_0, mlx5_1, ..."""
        return sorted(self._present("nic") + self._present("dpu"), key=lambda d: d.pci)

    def _present(self, kind: str) -> list[Device]:
        found = [d for d in self.machine.devices.values() if d.kind == kind and d.present]
        return sorted(found, key=lambda d: d.pci)

    @property
    def driver(self) -> str:
        """The GPU driver whose kernel module is loaded."""
        return self.machine.host.loaded.get("host.driver", "")

    def link_up(self, card: Device) -> bool:
        """Carrier at a card: not pulled, and the switch at the other end is up."""
        if card.traits.get("link_down"):
            return False
        return all(
            c.switch.link_up(c.interface, self.now) for c in self.cables if c.nic_slot == card.slot
        )

    def near(self, level: float, spread: float, digits: int = 2) -> float | int:
        """A measured value: `level` give or take the fraction `spread`."""
        value = round(level * self.rng.uniform(1 - spread, 1 + spread), digits)
        return value if digits else int(value)
