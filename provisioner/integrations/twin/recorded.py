"""Simulated hardware at recorded versions, and images that bring it to a release's pins.

A component that the simulator does not have is listed (`unlike`), never invented: a rehearsal
reports the parts that it could not rehearse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix, Pin, Profile, Release

PACKAGES = frozenset({"host.driver", "host.fabric_manager", "host.doca", "host.spcx_cc"})
# component that is written by itself -> the simulator's item
_ITEMS: Mapping[str, str] = {
    "bluefield.nic": "DPU_NIC",
    "supernic.nic": "DPU_NIC",
    "bluefield.bmc": "BMC_Firmware",
    "host.bmc": "BMC",
    "host.bios": "BIOS",
    "switch.os": "switch.os",
}
_TRAY: Mapping[str, str] = {
    "hgx.bmc": "HGX_FW_BMC_0",
    "hgx.erot": "HGX_FW_ERoT_*",
    "hgx.fpga": "HGX_FW_FPGA_*",
    "hgx.gpu": "HGX_FW_GPU_SXM_*",
    "hgx.nvswitch": "HGX_FW_NVSwitch_*",
    "hgx.retimer": "HGX_FW_PCIeRetimer_*",
    "hgx.pcieswitch": "HGX_FW_PCIeSwitch_*",
}


@dataclass
class TwinFiles:
    """The matrix with simulated files, and the contents of the files by name."""

    matrix: Matrix
    files: dict[str, bytes] = field(default_factory=dict)


def restore(machine: Machine, inventory: Inventory) -> tuple[str, ...]:
    """Set a simulated host to the recorded versions; return the kinds that it does not have."""
    unlike = []
    for part in inventory.components:
        if not part.version:
            continue
        place = _find_place(machine, part.kind, part.slot, part.bmc, part.source)
        if place is not None:
            machine.firmware[place].running = part.version
            machine.firmware[place].staged = None
        elif part.kind in PACKAGES:
            machine.host.packages[part.kind] = part.version
            machine.host.loaded[part.kind] = part.version
        elif part.kind != "unclassified":
            unlike.append(part.kind)
    return tuple(sorted(set(unlike)))


def restore_switch(switch: Switch, inventory: Inventory) -> None:
    """Set a simulated switch to the recorded image."""
    for part in inventory.of_kind("switch.os"):
        if part.version:
            switch.partitions[switch.current] = part.version


def add_simulated_images(matrix: Matrix, releases: tuple[str, ...]) -> TwinFiles:
    """Return the matrix with simulator images for every pin of these releases.

    A pin that has no file yet gets one too, so that a rehearsal does not wait for downloads.
    """
    files = TwinFiles(matrix)
    changed: dict[str, Release] = dict(matrix.releases)
    for name in releases:
        release = matrix.releases[name]
        profiles = {
            key: profile.model_copy(
                update={
                    "pins": {
                        kind: _add_file(files, kind, pin, profile)
                        for kind, pin in profile.pins.items()
                    }
                }
            )
            for key, profile in release.profiles.items()
        }
        changed[name] = release.model_copy(update={"profiles": profiles})
    files.matrix = matrix.model_copy(update={"releases": changed})
    return files


def _find_place(
    machine: Machine, kind: str, slot: str, bmc: str, source: str
) -> tuple[str, str] | None:
    item = source.rpartition("/")[2] if "/FirmwareInventory/" in source else _ITEMS.get(kind, "")
    owner = slot if kind in ("bluefield.nic", "supernic.nic") else bmc or slot
    return (owner, item) if (owner, item) in machine.firmware else None


def _add_file(files: TwinFiles, kind: str, pin: Pin, profile: Profile) -> Pin:
    contents = _list_contents(files.matrix, kind, pin, profile)
    if not pin.known or not contents:
        return pin
    image = make_image(kind, contents)
    digest = hashlib.sha256(image).hexdigest()
    suffix = ".bfb" if kind == "bluefield.bundle" else ".bin"
    name = f"{kind}-{digest[:12]}{suffix}"
    files.files[name] = image
    return pin.model_copy(update={"artifact": name, "sha256": digest})


def _list_contents(matrix: Matrix, kind: str, pin: Pin, profile: Profile) -> dict[str, str]:
    """Return the contents of a pin's image by the simulator's items; {} if it is not one."""
    if kind == "bluefield.bundle":
        nic = profile.pins.get("bluefield.nic")
        bundle = f"bf-bundle-{pin.version}_ubuntu-22.04_prod"
        carried = {"DPU_NIC": nic.version} if nic is not None and nic.known else {}
        return {"DPU_OS": bundle, **carried}
    if kind == "hgx.bundle":
        inside = matrix.bundles.get(kind, {}).get(pin.version, {})
        return {_TRAY[part]: version for part, version in inside.items() if part in _TRAY}
    item = _ITEMS.get(kind)
    return {item: pin.version} if item else {}
