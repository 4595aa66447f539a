"""A simulated host from the inside: the state that its tools read.

Everything comes from the machine's truth; only measured values vary a little around a healthy
level, by a seeded `rng` of their own.
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
    """A command's result. `rc` None: it did not end within its limit."""

    rc: int | None
    stdout: str
    stderr: str = ""


@dataclass(frozen=True)
class Cable:
    """One rail: the switch port to which a card is truly cabled."""

    rail: int
    nic_slot: str
    switch: Switch
    interface: str


class HostView:
    """The inside of one host at one simulated time (`now`, seconds since the epoch)."""

    def __init__(self, machine: Machine, cables: tuple[Cable, ...], seed: str) -> None:
        self.machine = machine
        self.cables = cables
        self.rng = random.Random(seed)
        self.now = 0.0
        self.sent = ""  # standard input of the line that runs
        self.damaged: dict[str, int] = {}  # card's slot -> damaged frames that its port received
        # files in /run: path -> boot id of the writing system, content
        self.volatile: dict[str, tuple[str | None, str]] = {}
        self.serving: dict[int, tuple[str, str]] = {}  # port -> RDMA device, boot id
        # address -> its host, and the rail or -1 (the site fills it)
        self.peers: Mapping[str, tuple[HostView, int]] = {}

    @property
    def reachable(self) -> bool:
        """Whether its operating system answers SSH."""
        host = self.machine.host
        return host.phase == "up" and host.boot_id is not None

    @property
    def gpus(self) -> list[Device]:
        """The GPUs that the driver sees, numbered in PCI order."""
        return self._present("gpu")

    @property
    def switches(self) -> list[Device]:
        """The baseboard's NVSwitches, by slot."""
        return sorted(self._present("nvswitch"), key=lambda d: d.slot)

    @property
    def cards(self) -> list[Device]:
        """The host's SuperNICs and DPUs in PCI order: mlx5_0, mlx5_1, ..."""
        return sorted(self._present("nic") + self._present("dpu"), key=lambda d: d.pci)

    def _present(self, kind: str) -> list[Device]:
        devices = [d for d in self.machine.devices.values() if d.kind == kind and d.present]
        return sorted(devices, key=lambda d: d.pci)

    @property
    def driver(self) -> str:
        """The version of the loaded GPU driver's kernel module."""
        return self.machine.host.loaded.get("host.driver", "")

    def link_up(self, card: Device) -> bool:
        """Carrier of a card: not unplugged, and the switch at the other end is up."""
        if card.traits.get("link_down"):
            return False
        return all(
            c.switch.link_up(c.interface, self.now) for c in self.cables if c.nic_slot == card.slot
        )

    def vary_level(self, level: float, spread: float, digits: int = 2) -> float | int:
        """A measured value: `level` plus or minus the fraction `spread`."""
        value = round(level * self.rng.uniform(1 - spread, 1 + spread), digits)
        return value if digits else int(value)
