"""GPUs and NVSwitches that sign reports, and the manifests with their golden values.

The forms are those of NVIDIA's public evidence files, the keys are the simulator's. Measurements
follow from the running versions, so that equal firmware has equal values; a device whose slot is in
`machine.implants` runs something else under the same version.
"""

from __future__ import annotations

import base64
from functools import cache

from provisioner.integrations.sim.hardware.device_authority import SimulatedDevice, find_authority
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.hardware.simulated_tpm import (
    SpdmResponder,
    gpu_fields,
    make_values,
)

BOARD = "G520_0200_885"  # project, SKU and chip SKU of an HGX H100 (a public report states G520)
PPCIE = 2  # the mode in which GPUs and NVSwitches give reports
VBIOS_INDICES = range(1, 13)  # of manifests, from 0: as many as in NVIDIA's
DRIVER_INDICES = range(20, 42)
SWITCH_INDICES = range(31)
IMPLANTED = 5  # index of the measurement that hostile firmware changes, in the report
ARCHITECTURES = {"gpu": "HOPPER", "nvswitch": "LS10"}


def write_evidence(machine: Machine, device: Device, driver: str, nonce: bytes) -> dict[str, str]:
    """Return the entry of one device in the answer of `nvattest collect-evidence`."""
    vbios = machine.firmware["host", f"HGX_FW_{device.slot}"].running
    if device.kind == "gpu":
        signer = _make_signer("GH100 A01 GSP", device.serial)
        opaque = gpu_fields(driver, vbios, BOARD, signer.fwid, PPCIE)
        values = list_gpu_values(vbios, driver)
    else:
        signer = _make_signer("LS_10 A01 FSP", device.serial or f"{machine.name}-{device.slot}")
        opaque = {6: vbios.encode() + b"\0"}
        values = list_switch_values(vbios)
    if device.slot in machine.implants:
        values[IMPLANTED] = make_values("implant", IMPLANTED)[IMPLANTED]
    report = SpdmResponder(signer, values, opaque).answer(nonce)
    shown = {"driver_version": driver, "vbios_version": vbios} if device.kind == "gpu" else {}
    return {
        "arch": ARCHITECTURES[device.kind],
        "certificate": base64.b64encode(signer.chain_pem.encode()).decode(),
        "evidence": base64.b64encode(report).decode(),
        "nonce": nonce.hex(),
        "version": "1.0",
        **shown,
    }


def list_gpu_values(vbios: str, driver: str) -> dict[int, bytes]:
    """Return the measurements of a GPU that runs this VBIOS under this driver."""
    values = make_values("GH100")
    of_vbios = make_values(f"GH100 VBIOS {vbios}")
    of_driver = make_values(f"GH100 driver {driver}")
    values |= {i + 1: of_vbios[i + 1] for i in VBIOS_INDICES}
    return values | {i + 1: of_driver[i + 1] for i in DRIVER_INDICES}


def list_switch_values(bios: str) -> dict[int, bytes]:
    """Return the measurements of an NVSwitch that runs this BIOS."""
    return make_values(f"LS10 BIOS {bios}", len(SWITCH_INDICES))


@cache
def sign_manifest(kind: str, version: str) -> tuple[str, bytes]:
    """Return the id and the document of a manifest: of a "vbios", a "driver" or a "switch"."""
    digits = version.replace(".", "").upper()
    rim_id, product, indices, values = {
        "vbios": (
            f"NV_GPU_VBIOS_{BOARD}_{digits}",
            "GH100",
            VBIOS_INDICES,
            list_gpu_values(version, ""),
        ),
        "driver": (
            f"NV_GPU_DRIVER_GH100_{version}",
            "GH100",
            DRIVER_INDICES,
            list_gpu_values("", version),
        ),
        "switch": (
            f"NV_SWITCH_BIOS_5612_0002_890_{digits}",
            "LS10",
            SWITCH_INDICES,
            list_switch_values(version),
        ),
    }[kind]
    golden = {i: (values[i + 1],) for i in indices}
    return rim_id, find_authority().sign_manifest(product, version, golden)


@cache
def _make_signer(product: str, serial: str) -> SimulatedDevice:
    return find_authority().make_device(product, serial)
