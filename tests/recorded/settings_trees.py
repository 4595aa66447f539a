"""Reduced real trees with their BIOS, Secure Boot and BMC settings, over those of `writes/`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from golden_requests import read_tree
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.reading import read_machine_settings
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
