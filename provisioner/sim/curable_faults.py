"""Faults of parts that something cures: a GPU reset, host power, standby power, an image, a hand.

A part is broken by changing it; what it was before is kept, and comes back when one of the events
happens that cure it. Nothing else cures it: a ladder that stops too early leaves the node broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from provisioner.sim.parts import Device

if TYPE_CHECKING:  # they hold machines, which hold this
    from provisioner.sim.fault_preset import Preset
    from provisioner.sim.host import HostView, Output
    from provisioner.sim.machine import Machine
    from provisioner.sim.site import Site

GPU_RESET, COLD_BOOT, AC_CYCLE, REFLASH, RESEAT = (
    "gpu_reset",
    "cold_boot",
    "ac_cycle",
    "reflash",
    "reseat",
)
# name, number in the catalogue, meaning, slot, what cures it, what changes
ALL: tuple[tuple[str, str, str, str, tuple[str, ...], dict[str, Any]], ...] = (
    ("remap_until_reset", "H28", "a row waits for a GPU reset, which helps", "GPU_SXM_6",
     (GPU_RESET, COLD_BOOT), {"remap_pending": 1}),
    ("xid_until_reset", "H29", "a GPU has Xid 95 until it is reset", "GPU_SXM_2",
     (GPU_RESET, COLD_BOOT), {"xids": "95"}),
    ("gpu_lost_until_cold_boot", "H30", "a GPU is off the bus until host power is cycled",
     "GPU_SXM_5", (COLD_BOOT,), {"present": False}),
    ("link_narrow_until_ac", "H31", "a PCIe link is narrow until standby power is cycled",
     "GPU_SXM_7", (AC_CYCLE,), {"link_width": 8}),
    ("link_narrow_until_reseat", "H32", "a PCIe link is narrow until a person reseats the part",
     "GPU_SXM_7", (RESEAT,), {"link_width": 8}),
    ("queue_stuck_until_reflash", "H33", "a card stops until its firmware is written again",
     "NIC_2", (REFLASH,), {"queue_stuck": 1}),
)  # fmt: skip


def spoil(machine: Machine, slot: str, cured_by: tuple[str, ...], changes: dict[str, Any]) -> None:
    """Break a part until one of these events happens to the machine."""
    device: Device = machine.devices[slot]
    before, traits = copy(device), dict(device.traits)
    for key, value in changes.items():
        if hasattr(device, key):
            setattr(device, key, value)
        else:
            device.traits[key] = value

    def restore() -> None:
        for key in changes:
            if hasattr(device, key):
                setattr(device, key, getattr(before, key))
            elif key in traits:
                device.traits[key] = traits[key]
            else:
                device.traits.pop(key, None)

    machine.cures.append((frozenset(cured_by), restore))


def happened(machine: Machine, event: str) -> None:
    """Cure what this event cures."""
    cured = [c for c in machine.cures if event in c[0]]
    machine.cures = [c for c in machine.cures if event not in c[0]]
    for _, restore in cured:
        restore()


def exchange(machine: Machine, slot: str, serial: str, **changes: Any) -> None:
    """A person puts another part into a slot: it has another serial, and none of the faults."""
    device: Device = machine.devices[slot]
    healthy = {
        "present": True,
        "link_width": device.link_width_max,
        "link_gen": device.link_gen_max,
    }
    for key, value in {**healthy, "serial": serial, **changes}.items():
        setattr(device, key, value)
    for trait in ("xids", "remap_pending", "remap_failure", "remap_uncorrectable", "nvlinks_down",
                  "ecc_uncorrected", "host_gpu_gb_s"):  # fmt: skip
        device.traits.pop(trait, None)


def reset_gpus(view: HostView, command: str) -> Output:
    """`nvidia-smi --gpu-reset` with the services around it stopped and started.

    What the command writes into files of /run is kept until the host restarts (systemd's
    file-hierarchy(7): /run is a tmpfs).
    """
    from provisioner.sim.host import Output

    boot = view.machine.host.boot_id
    marks = re.findall(r"cat /proc/sys/kernel/random/uuid > (/run/[\w-]+);", command)
    failed = "gpu_reset_fails" in view.machine.faults
    for path in marks:
        view.volatile[path] = boot, f"{boot}-{view.now}\n{int(failed)}\n"
    if failed:
        return Output(1, "", "GPU 00000000:1B:00.0 is currently in use by another process.\n")
    view.machine.note(view.now, "gpu_reset", "gpus")
    happened(view.machine, GPU_RESET)
    lines = [f"GPU {gpu.pci} was successfully reset.\n" for gpu in view.gpus]
    return Output(0, "".join(lines) + "All done.\n")


def presets(make: Callable[..., Preset]) -> tuple[Preset, ...]:
    """As fault presets, made by `fault_presets.Preset`."""

    def preset(row: tuple[str, str, str, str, tuple[str, ...], dict[str, Any]]) -> Preset:
        name, number, meaning, slot, cured_by, changes = row

        def act(site: Site, node: str, part: str) -> None:
            spoil(site.machines[node], part or slot, cured_by, changes)

        return make(name, number, meaning, "node", act=act)

    return tuple(preset(row) for row in ALL)
