"""A release after the simulated site's own: what the journey's campaign brings its host to.

Its pins are those of the release before, but for the cards' firmware and the driver: one component
that a BMC writes, one that the host burns, one that a playbook installs. Versions are the site's
own choice, as everything in `demo_site`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml
from rig import MATRIX

from provisioner.integrations.demo.site import DRIVER, OWN_CHOICE, RELEASE, DemoFiles, build_overlay
from provisioner.integrations.sim.hardware.build import make_image

NEXT = "site-next"
BFB, NIC = "bf-bundle-next.bfb", "fw-next.bin"
BUNDLE_TO, NIC_TO, DRIVER_TO = "3.3.0-202_26.01", "32.48.1000", "535.183.06"
BUNDLE = f"bf-bundle-{BUNDLE_TO}_ubuntu-22.04_prod"
ARTIFACTS: Mapping[str, bytes] = {
    BFB: make_image("bluefield.bundle", {"DPU_OS": BUNDLE, "DPU_NIC": NIC_TO}),
    NIC: make_image("bluefield.nic", {"DPU_NIC": NIC_TO}),
}


def offer(files: DemoFiles) -> None:
    """Put the release beside the site's own: its pins, its moves, its files."""
    for name, content in ARTIFACTS.items():
        (files.artifacts / name).write_bytes(content)
    mine: dict[str, Any] = json.loads(json.dumps(build_overlay()))
    shipped = yaml.safe_load(MATRIX.read_text(encoding="utf-8"))["releases"][RELEASE]
    profiles = {}
    for name, own in mine["releases"][RELEASE]["profiles"].items():
        before = shipped["profiles"][name]
        pins = {k: {**v, **own["pins"].get(k, {})} for k, v in before["pins"].items()}
        profiles[name] = {"match": before["match"], "pins": {**own["pins"], **pins}}
    moved = {
        "bluefield.bundle": _pin(BUNDLE_TO, BFB),
        "bluefield.nic": _pin(NIC_TO),
        "supernic.nic": _pin(NIC_TO, NIC),
        "host.driver": _pin(DRIVER_TO),
        "host.fabric_manager": _pin(DRIVER_TO),
    }
    profiles["hgx-h100-bf3"]["pins"] |= moved
    mine["releases"][NEXT] = {
        "supersedes": RELEASE,
        "profiles": profiles,
        "requires": shipped["requires"],
    }
    edges = {
        "bluefield.bundle": _edge("2.10.0-147_25.01", BUNDLE_TO, "cold_boot", "bluefield.nic"),
        "supernic.nic": _edge("32.44.1036", NIC_TO, "cold_boot"),
        "host.driver": _edge(DRIVER, DRIVER_TO, "warm_reboot", "host.fabric_manager"),
    }
    for component, edge in edges.items():
        mine["edges"].setdefault(component, []).append(edge)
    files.overlay.write_text(json.dumps(mine, indent=1), encoding="utf-8")


def _pin(version: str, artifact: str = "") -> dict[str, str]:
    pin = {"version": version, "evidence": OWN_CHOICE}
    if artifact:
        digest = hashlib.sha256(ARTIFACTS[artifact]).hexdigest()
        pin |= {"artifact": artifact, "sha256": digest}
    return pin


def _edge(start: str, to: str, activation: str, carried: str = "") -> dict[str, Any]:
    edge = {"from": [start], "to": to, "activates_by": activation, "evidence": OWN_CHOICE}
    carries = {"bluefield.nic": NIC_TO, "host.fabric_manager": DRIVER_TO}
    return {**edge, "carries": {carried: carries[carried]}} if carried else edge
