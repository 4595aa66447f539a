"""Golden values of the demonstration: its devices must prove their simulated firmware.

A site's person admits manifests of the makers, and digests from a witness. Here the simulator is
the maker, and its root is trusted because this file adds it; no other matrix does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.checks.attestation.boot_databases import digest_entries
from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.demo.site import BASE, DRIVER, RELEASE, TRAY_CONTENTS
from provisioner.sim.hardware.build import HGX_TRAY, PACKAGES
from provisioner.sim.hardware.device_authority import find_authority
from provisioner.sim.hardware.report_devices import sign_manifest
from provisioner.sim.redfish.boot_databases import DATABASES, list_makers_entries
from provisioner.sim.redfish.redfish_integrity import measure_firmware

PROFILE = "hgx-h100-bf3"
ADMITTED = "2025-01-01"
WITNESS = "the simulator"
INDICES = (1, 2, 3, 4)
# root of trust -> how many there are, and the firmware that it measures
ROOTS: Mapping[str, tuple[int, str]] = {
    "HGX_ERoT_BMC_0": (1, "HGX_FW_BMC"),
    "HGX_ERoT_FPGA_0": (1, "HGX_FW_FPGA"),
    "HGX_ERoT_PCIeSwitch_0": (1, "HGX_FW_PCIeSwitch"),
    "HGX_ERoT_GPU_SXM_*": (8, "HGX_FW_GPU_SXM"),
    "HGX_ERoT_NVSwitch_*": (4, "HGX_FW_NVSwitch"),
}
# release -> firmware of the baseboard, and the driver
RUNS: Mapping[str, Mapping[str, str]] = {
    BASE: {
        "HGX_FW_BMC": HGX_TRAY["bmc"],
        "HGX_FW_FPGA": HGX_TRAY["fpga"],
        "HGX_FW_PCIeSwitch": HGX_TRAY["pcieswitch"],
        "HGX_FW_GPU_SXM": HGX_TRAY["gpu"],
        "HGX_FW_NVSwitch": HGX_TRAY["nvswitch"],
        "driver": PACKAGES["host.driver"],
    },
    RELEASE: {
        **{re.sub(r"_[0*]$", "", name): version for name, version in TRAY_CONTENTS.items()},
        "driver": DRIVER,
    },
}


def require_attestation(overlay: Path, references: Path) -> None:
    """Add the rules to the site's own matrix file, and write the manifests that they name."""
    references.mkdir(exist_ok=True)
    tree = json.loads(overlay.read_text(encoding="utf-8"))
    for release, runs in RUNS.items():
        profile = tree["releases"][release]["profiles"][PROFILE]
        profile["attestation"] = _build_rule(runs, references)
    overlay.write_text(json.dumps(tree, indent=1), encoding="utf-8")


def _build_rule(runs: Mapping[str, str], references: Path) -> dict[str, Any]:
    """Return the rule of a profile whose hosts run these versions."""
    root = find_authority().root.certificate
    maker = {
        "name": find_authority().root_name,
        "spki_sha256": digest_spki(root),
        "source": WITNESS,
    }
    return {
        "policy": "require",
        "makers": [maker],
        "components": {
            name: _admit_root(count, f"{firmware}={runs[firmware]}")
            for name, (count, firmware) in ROOTS.items()
        },
        "secure_boot": {
            "policy": "require",
            "state": "on",
            "databases": {
                name: [digest_entries(list_makers_entries(name)).sha256] for name in DATABASES
            },
        },
        "gpu_reports": {
            "policy": "require",
            "references": [
                _admit_manifest(references, "vbios", runs["HGX_FW_GPU_SXM"]),
                _admit_manifest(references, "driver", runs["driver"]),
            ],
        },
        "nvswitch_reports": {
            "policy": "require",
            "references": [_admit_manifest(references, "switch", runs["HGX_FW_NVSwitch"])],
        },
    }


def _admit_root(count: int, running: str) -> dict[str, Any]:
    values = measure_firmware([running])
    digests = {str(index): [values[index].hex()] for index in INDICES}
    return {"count": count, "digests": digests, "learned_from": WITNESS}


def _admit_manifest(references: Path, kind: str, version: str) -> dict[str, str]:
    rim_id, raw = sign_manifest(kind, version)
    (references / f"{rim_id}.xml").write_bytes(raw)
    return {"rim": rim_id, "sha256": hashlib.sha256(raw).hexdigest(), "admitted": ADMITTED}
