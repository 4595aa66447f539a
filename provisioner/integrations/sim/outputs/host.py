"""A simulated host from the inside: the state that its tools read.

Everything comes from the machine's truth; only measured values vary a little around a healthy
level, by a seeded `rng` of their own.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from provisioner.integrations.sim.hardware.disks import Disk
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.switches.switch import Switch


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
        self.nccl_logs: dict[str, str] = {}  # file in /run -> what NCCL wrote
        # address -> its host, and the rail or -1 (the site fills it)
        self.peers: Mapping[str, tuple[HostView, int]] = {}
        # address -> (tenant, path) of what it may mount; None: no client (the site fills it)
        self.list_readable: Callable[[], Callable[[str], set[tuple[str, str]]] | None] = lambda: (
            None
        )

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


# ------------------------------------------------------------------------------
# A guest: a real system behind a simulated host, for what no output can stand in for.
#
# A program outside starts and ends it by the power, the boot id and the configuration drive of the
# host. Lines that change accounts of the system run in the guest; hardware stays simulated.


IN_GUEST = ("tenant_login=; ",)  # beginnings of the lines that run there
LIMIT_S = 600.0  # of real time: a guest may be starting


async def run_in_guest(program: Sequence[str], boot_id: str, line: str) -> Output:
    """Run a shell line in the guest; the program's last words are the host's boot id and it."""
    process = await asyncio.create_subprocess_exec(
        *program,
        boot_id,
        line,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Output(None, "", "")
    return Output(
        process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    )


def describe_guest(machine: Machine) -> dict[str, Any]:
    """Return whether the host's own system runs, of which boot, and its configuration drive."""
    disk = next((d for d in machine.disks.values() if d.bootable and d.device.present), None)
    runs = machine.host.phase == "up" and machine.host.os == "disk" and disk is not None
    return {
        "boot_id": machine.host.boot_id if runs else None,
        "image": machine.host.system,
        "drive": disk.drive if disk is not None else "",
    }


# ------------------------------------------------------------------------------
# NVMe drives of a simulated host: the kernel's attributes, `nvme id-ctrl` and `nvme fw-log`.
#
# source: nvme-cli 2.3 (nvme-print-json.c) for the documents, NVM Express Base Specification 2.0 for
# their values; OACS and FRMW of drives that tests/ansible/test_drive_readers.py names.


_OACS = 0x5E
_FRMW = 0x17  # three slots, the first read-only, activation without a reset


def print_drives(view: HostView, _command: str) -> Output:
    """Every drive behind PCIe, as one loop over /sys/class/nvme prints them."""
    lines = []
    for disk in _list_present(view):
        name = disk.name.removeprefix("/dev/").removesuffix("n1")
        serial = f"{disk.device.serial:20}"
        model = f"{disk.device.model:40}"
        lines += [f"drive {name}", "transport pcie", f"serial {serial}", f"model {model}"]
        lines.append(f"firmware_rev {disk.firmware:8}")
        identity = {"vid": 4932, "sn": serial, "mn": model, "fr": f"{disk.firmware:8}"}
        identity |= {"oacs": _OACS, "frmw": _FRMW}
        page: dict[str, Any] = {
            "Active Firmware Slot (afi)": disk.active_slot | disk.next_slot << 4
        }
        for slot, revision in sorted(disk.slots.items()):
            number = int.from_bytes(revision.ljust(8).encode(), "little")
            page[f"Firmware Rev Slot {slot}"] = f"{number} ({revision})"
        lines += [json.dumps(identity, indent=2), json.dumps({name: page}, indent=2)]
    return Output(0, "".join(f"{line}\n" for line in lines))


def select_drives(view: HostView, variables: Mapping[str, Any]) -> dict[str, Disk] | str:
    """The drives that the play is for, by serial number; or the play's refusal."""
    present = {disk.device.serial: disk for disk in _list_present(view)}
    chosen: dict[str, Disk] = {}
    for serial in variables.get("drives") or ():
        if serial not in present:
            return f"no NVMe drive has the serial {serial}"
        chosen[serial] = present[serial]
        model = chosen[serial].device.model
        if model != variables.get("model"):
            return f"{serial} is a {model}, the image is for {variables.get('model')}"
    return chosen


def find_following(disk: Disk) -> str:
    """The revision that runs after the next reset."""
    return disk.slots[disk.next_slot] if disk.next_slot else disk.firmware


def _list_present(view: HostView) -> list[Disk]:
    return [disk for disk in view.machine.disks.values() if disk.device.present]
