"""The files that the operator of the demonstration's simulated site would have prepared.

They are an overlay that closes the pins without a public source, artifacts with digests, and the
expected-hardware list with two tenants. Versions that no public document pairs with Spectrum-X
1.3.0 are marked as the choice of this simulated site.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.integrations.sim.hardware.build import make_image
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# The daemon's settings under the fast clock of a simulated site.


DAY_S = 86400.0
PARTNERS_THERE = 5  # five sound nodes and a broken one: from here on each node finds three partners
# at this speed, too, a person who waits for a tenant is served first at its leaves
WINDOWS = (
    *("send_window_s", "request_max_s", "release_settle_s", "tenant_settle_s"),
    *("storage_gather_s", "watch_storage_s"),
)
BROWSER_LIMITS = ("api_session_h", "api_session_idle_s", "api_session_proof_s")
DEVICE_LIMITS = (
    "bmc_return_limit_s",
    "power_limit_s",
    "boot_limit_s",
    "switch_limit_s",
    "switch_drain_limit_s",
    "switch_settle_limit_s",
    "switch_apply_limit_s",
)
SWITCH_POLL_S = 10.0
SWITCH_POLL_REAL_S = 0.25  # at most; a fifth of it while a change is young
NODES_OF_HOST = 2  # with its share of leaves and spines
DEVICE_LIMIT_S = 60.0  # seconds of real time, at least


def choose_settings(nodes: int, speed: float) -> Settings:
    """Return settings for a site of so many hosts and a clock that runs `speed` times as fast.

    Frequent readings cost most of a real second. Tenants take every node at once, so that a late
    host would find no partners; all are gathered for one session of gate C. Requests take real time
    at any speed of the clock: the windows in which they may be sent are preserved, and so are the
    limits of a browser's session. A device that is polled until it reaches a state gets at least
    `DEVICE_LIMIT_S`. All nodes may be driven at once, and all devices have one address, this
    machine's.
    """
    settings = Settings(
        site="demo",
        poll_s=60.0,
        fresh_s=3600.0,
        switch_poll_s=min(SWITCH_POLL_S, SWITCH_POLL_REAL_S * speed),
        watch_s=DAY_S,
        watch_ports_s=3600.0,
        certify_gates="abc" if nodes >= PARTNERS_THERE else "ab",
        fabric_gather_s=DAY_S,
        fabric_wait_s=DAY_S,
        fabric_session_limit_s=DAY_S,
    )
    places = max(settings.operations_max, NODES_OF_HOST * nodes)
    crowd = {
        "operations_max": int(min(places, largest_value("operations_max"))),
        "artifacts_connections_per_peer": settings.artifacts_connections_max,
    }
    preserved = {
        name: min(getattr(settings, name) * speed, largest_value(name))
        for name in (*WINDOWS, *BROWSER_LIMITS)
    }
    waits = {n: max(getattr(settings, n), DEVICE_LIMIT_S * speed) for n in DEVICE_LIMITS}
    return settings.model_copy(update=preserved | waits | crowd)


def largest_value(name: str) -> float:
    """Return the largest value that a settings file may give to a setting."""
    bounds = [rule.le for rule in Settings.model_fields[name].metadata if hasattr(rule, "le")]
    return min(bounds, default=float("inf"))


OVERLAY = "overlay.yaml"  # the site's own matrix file
RELEASE = "spectrum-x-1.3.0"
BASE = "spectrum-x-1.2.0"  # the release that a simulated site runs at the beginning
FILE_STORAGE = {
    "quota_bytes": 200 * 10**12,
    "exports": [{"name": "scratch", "path": "/scratch", "quota_bytes": 100 * 10**12}],
}
NO_SETS: Mapping[str, Mapping[str, str]] = {}
OWN_CHOICE = "the choice of a simulated site; no document pairs it with this release"

BFB = "bf-bundle-2.10.0-147_25.01_ubuntu-22.04_prod.bfb"
NIC = "fw-BlueField-3-rel-32_44_1036.bin"
TRAY = "nvfw_HGX-H100x8_0002_230705.1.1.fwpkg"
CUMULUS = "cumulus-linux-5.12.1.100-mlx-amd64.bin"
DRIVER = "535.154.05"
SYSTEM = "ubuntu-22.04-hgx-1"  # the label of the system's image
MAINTENANCE_ISO = "maintenance-1.iso"

TRAY_CONTENTS: Mapping[str, str] = {
    "HGX_FW_BMC_0": "HGX-22.10-1-rc44",
    "HGX_FW_ERoT_*": "00.02.0134.0000_n00",
    "HGX_FW_FPGA_0": "2.2C",
    "HGX_FW_GPU_SXM_*": "96.00.74.00.01",
    "HGX_FW_NVSwitch_*": "96.10.3F.00.01",
    "HGX_FW_PCIeRetimer_*": "2.7.9",
    "HGX_FW_PCIeSwitch_0": "1.7.5F",
}
ARTIFACTS: Mapping[str, bytes] = {
    BFB: make_image(
        "bluefield.bundle",
        {
            "DPU_OS": "bf-bundle-2.10.0-147_25.01_ubuntu-22.04_prod",
            "DPU_NIC": "32.44.1036",
        },
    ),
    NIC: make_image("bluefield.nic", {"DPU_NIC": "32.44.1036"}),
    TRAY: make_image("hgx.bundle", TRAY_CONTENTS),
    CUMULUS: make_image("switch.os", {"switch.os": "5.12.1.100"}),
    f"{SYSTEM}.raw": make_image(
        "host.os",
        {
            "host.driver": "535.129.03",
            "host.fabric_manager": "535.129.03",
            "host.doca": "2.9.0-0.4.7",
            "host.spcx_cc": "2.9.0072-1",
        },
    ),
    MAINTENANCE_ISO: make_image("maintenance", {"maintenance": "1"}),
}


@dataclass(frozen=True)
class DemoFiles:
    """Where the prepared files are."""

    overlay: Path
    expected: Path
    artifacts: Path


def prepare_files(
    directory: Path,
    expected: Mapping[str, Any],
    hosts: int,
    sets: Mapping[str, Mapping[str, str]] = NO_SETS,
    *,
    with_storage: bool = False,
) -> DemoFiles:
    """Write all files; `expected` is the simulator's hardware list, as its operator has it.

    `sets`: settings of machines that both releases pin, by component. `with_storage`: both tenants
    have an export, of one name and path.
    """
    artifacts = directory / "artifacts"
    artifacts.mkdir(parents=True, exist_ok=True)
    for name, content in ARTIFACTS.items():
        (artifacts / name).write_bytes(content)
    files = DemoFiles(directory / OVERLAY, directory / "expected.yaml", artifacts)
    # JSON is valid YAML, and nothing in it needs another spelling
    files.overlay.write_text(json.dumps(build_overlay(sets), indent=1), encoding="utf-8")
    half = hosts // 2
    stored = {"file_storage": FILE_STORAGE} if with_storage else {}
    listed = {
        **expected,
        "release": RELEASE,
        "tenants": [
            {"name": "red", "vrf": "RED", "l3vni": 4001, "nodes_wanted": half, **stored},
            {"name": "blue", "vrf": "BLUE", "l3vni": 4002, "nodes_wanted": hosts - half, **stored},
        ],
    }
    files.expected.touch(mode=0o600)
    files.expected.write_text(json.dumps(listed, indent=1), encoding="utf-8")
    return files


def build_overlay(sets: Mapping[str, Mapping[str, str]] = NO_SETS) -> Mapping[str, Any]:
    """Return the site's own matrix file, which extends the shipped one."""

    def own_pin(version: str, **more: str) -> dict[str, str]:
        return {"version": version, "evidence": OWN_CHOICE, **more}

    pins = {
        "bluefield.bundle": _file(BFB),
        "supernic.nic": _file(NIC),
        "bluefield.bmc": own_pin("BF-24.10-10"),
        "host.driver": own_pin(DRIVER),
        "host.fabric_manager": own_pin(DRIVER),
        "host.os": own_pin(SYSTEM, **_file(f"{SYSTEM}.raw")),
        "hgx.bundle": own_pin("DGX-HGX-H100x8_0002_230705.1.1", **_file(TRAY)),
        "host.bmc": own_pin("11.01.01"),
        "host.bios": own_pin("BIOS Date: 08/04/2023 Ver 1.4"),
    }
    profiles = {"hgx-h100-bf3": {"pins": pins}, "sn5600": {"pins": {"switch.os": _file(CUMULUS)}}}
    chosen = {kind: own_pin(f"{kind}-1") for kind in sets}
    pins |= chosen
    # a reclaimed node is erased: both releases need a system image to write
    both = {"host.os": pins["host.os"]} | chosen
    if sets:
        both["host.bios"] = pins["host.bios"]
    system = {"hgx-h100-bf3": {"pins": both}}
    return {
        "releases": {RELEASE: {"profiles": profiles}, BASE: {"profiles": system}},
        "machine_settings": {f"{kind}-1": dict(values) for kind, values in sets.items()},
        "images": {"maintenance": own_pin("1", **_file(MAINTENANCE_ISO))},
        "edges": {
            **{
                kind: [
                    {
                        "from": ["*"],
                        "to": f"{kind}-1",
                        "activates_by": "none" if kind == "host.bmc_settings" else "warm_reboot",
                        "evidence": OWN_CHOICE,
                    }
                ]
                for kind in sets
            },
            "host.os": [
                {"from": ["*"], "to": SYSTEM, "activates_by": "none", "evidence": OWN_CHOICE}
            ],
            "host.driver": [
                {
                    "from": ["535.129.03"],
                    "to": DRIVER,
                    "carries": {"host.fabric_manager": DRIVER},
                    "activates_by": "warm_reboot",
                    "evidence": OWN_CHOICE,
                }
            ],
            "hgx.bundle": [
                {
                    "from": ["HGX-H100x8_0002_230517.3.0"],
                    "to": "DGX-HGX-H100x8_0002_230705.1.1",
                    "activates_by": "ac_cycle",
                    "evidence": OWN_CHOICE,
                }
            ],
        },
    }


def _file(name: str) -> dict[str, str]:
    return {"artifact": name, "sha256": hashlib.sha256(ARTIFACTS[name]).hexdigest()}
