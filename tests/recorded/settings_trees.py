"""Reduced real trees with their BIOS, Secure Boot and BMC settings, over those of `writes/`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from golden_requests import read_tree, run_dry
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.reading import read_machine_settings
from provisioner.integrations.recordings.bmc_commands import Request
from provisioner.model.machine.settings import MachineSettings

HERE = Path(__file__).parent / "settings"
TREES = sorted(path.stem for path in HERE.glob("*.json"))


def read_settings_tree(name: str) -> dict[str, Any]:
    """Return the resources of a reduced tree by path, its settings included."""
    own: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())["tree"]
    return {path.rstrip("/"): body for path, body in (read_tree(name) | own).items()}


def find_bios(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the resource of the BIOS's running attributes."""
    return next(
        body
        for path, body in tree.items()
        if path.lower().endswith("/bios") and "Attributes" in body
    )


def find_pending(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the settings object of the BIOS."""
    target = find_bios(tree)["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
    resource: dict[str, Any] = tree[target.rstrip("/")]
    return resource


def read_all(tree: dict[str, Any]) -> MachineSettings:
    """Return the settings that the client reads from a tree."""
    quirk = quirks.identify(tree["/redfish/v1"])
    return asyncio.run(read_machine_settings(Service(_Lenient(tree), ADDRESS, quirk)))


class _Lenient(TreeTransport):
    """A tree that answers with and without a slash at the end of a path, as HPE does."""

    def __init__(self, tree: dict[str, Any]) -> None:
        super().__init__(_Stripped(tree))


class _Stripped(dict[str, Any]):
    def __contains__(self, path: object) -> bool:
        return super().__contains__(str(path).rstrip("/"))

    def __getitem__(self, path: str) -> Any:
        return super().__getitem__(path.rstrip("/"))


def serve_tree(tree: dict[str, Any]) -> TreeTransport:
    """Return a transport that answers from these resources."""
    return _Lenient(tree)


BIOS_SETS = {
    "dell_idrac9": {"iommu": "on", "x2apic": "on", "smt": "off", "secure_boot": "on"},
    "hpe_ilo5": {"iommu": "off", "numa_per_socket": "1", "acs": "off", "secure_boot": "on"},
    "lenovo_xcc": {"acs": "off", "smt": "off", "pxe_boot": "off", "secure_boot": "on"},
    "supermicro_x13": {"iommu": "on", "relaxed_ordering": "on", "numa_per_socket": "1"},
    "dgx_h100": {"iommu": "off", "pxe_boot": "off", "inband_bmc": "off", "secure_boot": "on"},
    "gb200": {"acs": "off", "uefi_shell": "off"},
    "bluefield3": {"attribute:BootPartitionProtection": "true"},
}
BMC_SETS = {
    name: {"ntp": "192.0.2.1,192.0.2.2", "ipmi": "off", "lockout_threshold": "4"}
    for name in BIOS_SETS
} | {"hpe_ilo5": {"ipmi": "off", "ssh": "off"}, "gb200": {"ssh": "off", "host_interface": "off"}}


def run_settings(name: str, action: Any, settings: dict[str, str]) -> dict[str, Any]:
    """Return what `bmc dry-run` prints for a set on a tree."""
    return run_on(read_settings_tree(name), action, settings)


def run_on(tree: dict[str, Any], action: Any, settings: dict[str, str]) -> dict[str, Any]:
    """Return what `bmc dry-run` prints for a set on these resources."""
    return run_dry(_Stripped(tree), Request(action, settings=tuple(settings.items())))


def record_settings(name: str) -> dict[str, Any]:
    """Return the requests of both actions on a tree."""
    return {
        "set-bios": run_settings(name, "set-bios", BIOS_SETS[name]),
        "set-bmc": run_settings(name, "set-bmc", BMC_SETS[name]),
    }


def settings_golden_of(name: str) -> Path:
    """Return the file of a tree's recorded requests."""
    return HERE.parent / "requests_of_settings" / f"{name}.json"


if __name__ == "__main__":
    for tree_name in TREES:
        golden = json.dumps(record_settings(tree_name), indent=1)
        settings_golden_of(tree_name).write_text(golden + "\n")
