"""Faults of parts that an event cures: a GPU reset, host power, standby power, an image, a person.

A fault changes a part and keeps the previous values, which return with one of the events that cure
it. Nothing else cures it: a ladder that stops too early leaves the node broken.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

from provisioner.integrations.sim.hardware.parts import Device

GPU_RESET = "gpu_reset"
COLD_BOOT = "cold_boot"
AC_CYCLE = "ac_cycle"
REFLASH = "reflash"
RESEAT = "reseat"
# name, number in the catalogue, meaning, slot, events that cure it, changes
ALL: tuple[tuple[str, str, str, str, tuple[str, ...], dict[str, Any]], ...] = (
    (
        "remap_until_reset",
        "H28",
        "a row waits for a GPU reset, which helps",
        "GPU_SXM_6",
        (GPU_RESET, COLD_BOOT),
        {"remap_pending": 1},
    ),
    (
        "xid_until_reset",
        "H29",
        "a GPU has Xid 95 until it is reset",
        "GPU_SXM_2",
        (GPU_RESET, COLD_BOOT),
        {"xids": "95"},
    ),
    (
        "gpu_lost_until_cold_boot",
        "H30",
        "a GPU is off the bus until host power is cycled",
        "GPU_SXM_5",
        (COLD_BOOT,),
        {"present": False},
    ),
    (
        "link_narrow_until_ac",
        "H31",
        "a PCIe link is narrow until standby power is cycled",
        "GPU_SXM_7",
        (AC_CYCLE,),
        {"link_width": 8},
    ),
    (
        "link_narrow_until_reseat",
        "H32",
        "a PCIe link is narrow until a person reseats the part",
        "GPU_SXM_7",
        (RESEAT,),
        {"link_width": 8},
    ),
    (
        "queue_stuck_until_reflash",
        "H33",
        "a card stops until its firmware is written again",
        "NIC_2",
        (REFLASH,),
        {"queue_stuck": 1},
    ),
)


class Curable(Protocol):
    """The part of a machine that faults need: its parts, and the events that cure them."""

    devices: dict[str, Device]
    cures: list[tuple[frozenset[str], Callable[[], None]]]


def break_part(
    machine: Curable, slot: str, cured_by: tuple[str, ...], changes: dict[str, Any]
) -> None:
    """Break a part until one of these events happens to the machine."""
    device: Device = machine.devices[slot]
    before = copy(device)
    traits = dict(device.traits)
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


def cure_faults(machine: Curable, event: str) -> None:
    """Undo the faults that this event cures."""
    cured = [c for c in machine.cures if event in c[0]]
    machine.cures = [c for c in machine.cures if event not in c[0]]
    for _, restore in cured:
        restore()


def exchange_part(machine: Curable, slot: str, serial: str, **changes: Any) -> None:
    """Install another part in a slot: it has another serial, and none of the faults."""
    device: Device = machine.devices[slot]
    healthy = {
        "present": True,
        "link_width": device.link_width_max,
        "link_gen": device.link_gen_max,
    }
    for key, value in {**healthy, "serial": serial, **changes}.items():
        setattr(device, key, value)
    for trait in (
        "xids",
        "remap_pending",
        "remap_failure",
        "remap_uncorrectable",
        "nvlinks_down",
        "ecc_uncorrected",
        "host_gpu_gb_s",
    ):
        device.traits.pop(trait, None)
